"""Frozen roles behind an endpoint: what they say, what it costs, and that no key stays behind."""

from __future__ import annotations

import io
import json
import random
import sqlite3
import time
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from helpers.command import call
from helpers.fake_endpoint import KEY, MODEL, FakeEndpoint, fake_endpoint, status, text
from helpers.guess import FEW, GUESS
from helpers.scripted import Counting
from rlanything.config.recipe import RecipeError, load_recipe
from rlanything.config.roles import AdapterConfig, PolicyConfig
from rlanything.domains.requests import RequestsRefused
from rlanything.engines.base import ModelError, Sampling
from rlanything.progress import Progress
from rlanything.records import Message
from rlanything.roles.chat_model import ChatRequest
from rlanything.roles.policy import LanguagePolicy
from rlanything.rollout.episodes import LiveEpisodes
from rlanything.runs.store.store import Store
from rlanything.runs.trainer import Trainer
from rlanything_openai.chat_model import OpenAIChatModel
from rlanything_openai.config import OpenAIEngineConfig

# Groups of four in which candidates are made, and nothing that this is not about.
SMALL = ("seed=0", "curriculum.alpha_low=0.25", "curriculum.alpha_high=0.75")
SMALL += ("evaluation.episodes=0", "loop.iterations=1", "loop.tasks_per_iteration=2")


def hosted(role: str, fake: FakeEndpoint, **settings: Any) -> list[str]:
    """Overrides that put a role behind the endpoint."""
    engine = json.dumps({"name": "openai", "url": fake.url, "key_variable": "MY_KEY", **settings})
    return [f"{role}.model={MODEL}", f"{role}.engine={engine}"]


def speaker_on(fake: FakeEndpoint) -> OpenAIChatModel:
    engine = {"name": "openai", "url": fake.url, "key_variable": "MY_KEY"}
    role = AdapterConfig.model_validate({"model": MODEL, "engine": engine})
    assert isinstance(role.engine, OpenAIEngineConfig)
    return role.engine.build(None, role.engine_setting("adapter", 1))


def test_a_remote_speaker_gives_n_texts_without_tokens_to_each_question(fake: FakeEndpoint) -> None:
    def say(body: dict[str, Any]) -> str:
        return f"<think>Hm.</think>{body['messages'][0]['content']} {body['seed']}"

    fake.say, fake.finish_reason = say, "length"
    questions = [
        ChatRequest((Message("user", "a"),), (1, 2)),
        ChatRequest((Message("user", "b"),), ()),
        ChatRequest((Message("user", "<|end|>"),), (3,)),
    ]
    found = speaker_on(fake).answer(questions, Sampling(1.0, 8))
    answers = [[each.answer for each in group] for group in found]
    assert answers == [["a 1", "a 2"], [], ["<|end|> 3"]]
    for each in (*found[0], *found[2]):
        assert each.text == f"<think>Hm.</think>{each.answer}"
        assert (each.tokens, each.logprobs, each.allowed) == ((), (), ())
        assert each.stop_reason == "length"


def test_a_policy_of_choices_cannot_be_remote(fake: FakeEndpoint) -> None:
    with pytest.raises(ModelError, match="use decoding: free"):
        LanguagePolicy(speaker_on(fake), Counting(), Sampling(1.0, 8), "choices", 4)


def adapt(body: dict[str, Any]) -> str:
    """Another number of tries: a candidate, as the guess game reads it, or a critic."""
    if not body["messages"][-1]["content"].startswith("Rewrite this task"):
        return "<think>Secret thoughts.</think>It never read a hint."
    tries = random.Random(body["seed"]).choice((2, 3, 5, 6))
    return f"<think>Secret thoughts.</think>{tries} tries"


def everything_in(run: Path) -> Iterator[bytes]:
    """The files of a run, and what is compressed in its store."""
    for path in run.rglob("*"):
        if path.is_file():
            yield path.read_bytes()
    connection = sqlite3.connect(run / "run.sqlite")
    for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'"):
        for row in connection.execute(f"SELECT * FROM {table}"):
            for value in row:
                if isinstance(value, bytes) and value[:1] == b"\x78":
                    yield zlib.decompressobj().decompress(value)
    connection.close()


def metrics_of(run: Path, iteration: int = 1) -> dict[str, float | None]:
    store = Store(run / "run.sqlite")
    found = store.metrics(iteration)
    store.close()
    return dict(found)


def trained(run: Path, overrides: Sequence[str]) -> str:
    """Runs the loop; what it said."""
    said = io.StringIO()
    recipe = load_recipe(GUESS, [*FEW, f"run_dir={run}", *SMALL, *overrides])
    lines = Trainer(recipe, progress=Progress(Console(file=said))).train()
    return "\n".join([said.getvalue(), *lines])


def test_a_run_whose_adapter_is_hosted(fake: FakeEndpoint, tmp_path: Path) -> None:
    fake.say = adapt
    fake.faults.extend([status(429, Retry_After="0.1"), status(500, KEY), text('{"choices": [{')])
    changes = [*hosted("adapter", fake), "adapter.tries=24", "judge.samples_per_step=1"]
    changes += ["curriculum.alpha_low=0.6"]  # so that tasks with failures are made easier
    said = trained(run := tmp_path / "run", changes)
    metrics = metrics_of(run)
    assert metrics["adapter/requests"] == fake.requests > 10
    assert metrics["adapter/retries"] == 3
    assert metrics["adapter/prompt_tokens"] == 7 * (fake.requests - 3)
    assert metrics["adapter/completion_tokens"] == 3 * (fake.requests - 3)
    assert metrics["tasks/proposed"], "no answer of the endpoint became a candidate"
    assert metrics["policy/samples"], "nobody trained beside it"
    assert set(fake.keys) == {f"Bearer {KEY}"}
    found = list(everything_in(run))
    assert any(b"It never read a hint." in each for each in found)
    assert any(b"MY_KEY" in each for each in found)
    assert not any(b"Secret thoughts" in each for each in found)
    assert not any(KEY.encode() in each for each in found)
    assert KEY not in said
    # The seeds are those of a local adapter: every sample has its own.
    assert len({body["seed"] for body in fake.bodies}) == fake.requests - 3


def test_hosted_judges_judge_while_episodes_are_played(
    fake: FakeEndpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[int]()
    turn, ended = LiveEpisodes.turn, list[int]()

    def waiting(episodes: LiveEpisodes) -> Any:
        if ended:  # the other episodes go on once there was a request
            deadline = time.monotonic() + 60
            while not fake.requests and time.monotonic() < deadline:
                time.sleep(0.01)
            asked.append(fake.requests)
        over = turn(episodes)
        ended.extend(over)
        return over

    monkeypatch.setattr(LiveEpisodes, "turn", waiting)
    fake.say = lambda body: "\\boxed{1}"
    changes = [*hosted("judge", fake), "judge.train=false", "judge.samples_per_step=1"]
    changes += ["evaluation.episodes=0", "loop.tasks_per_iteration=2"]
    trained(run := tmp_path / "run", changes)
    assert asked
    assert asked[0]
    assert fake.requests == metrics_of(run)["rollouts/steps"]


def test_a_hosted_judge_that_does_not_train(fake: FakeEndpoint, tmp_path: Path) -> None:
    fake.say = lambda body: f"So: \\boxed{{{1 if body['seed'] % 3 else -1}}}"
    changes = [*hosted("judge", fake, concurrency=32), "judge.train=false"]
    changes += ["judge.samples_per_step=2", "evaluation.episodes=2", "evaluation.splits=[ood]"]
    changes += ["evaluation.judged_episodes=1", "loop.tasks_per_iteration=1"]
    trained(run := tmp_path / "run", changes)
    first, before = metrics_of(run), metrics_of(run, 0)
    steps = first["rollouts/steps"]
    assert steps
    assert first["judge/requests"] == 2 * steps
    asked = [before["evaluation/judge/requests"], first["evaluation/judge/requests"]]
    assert asked[0] == asked[1]
    assert sum(each or 0 for each in asked) == fake.requests - 2 * steps
    assert [path.name for path in (run / "checkpoints/iter-00001").iterdir() if path.is_dir()] == [
        "policy"
    ]
    assert not any(KEY.encode() in each for each in everything_in(run))
    # It goes on, also where the endpoint has moved.
    asked_before = fake.requests
    with fake_endpoint() as moved:
        moved.say = fake.say
        overrides = [f"judge.engine.url={moved.url}", "loop.iterations=2"]
        Trainer.resume(run, overrides=overrides, progress=Progress(Console(quiet=True))).train()
        assert moved.requests > 0
    assert fake.requests == asked_before
    with pytest.raises(RecipeError, match="the way to an endpoint may change"):
        Trainer.resume(
            run, overrides=["judge.engine.name=embedded"], progress=Progress(Console(quiet=True))
        )


def test_a_stronger_model_labels_the_exam_once(fake: FakeEndpoint, tmp_path: Path) -> None:
    fake.say = lambda body: f"Thus \\boxed{{{1 if body['seed'] % 3 else -1}}}"
    changes = [*hosted("evaluation.labeller", fake), "evaluation.labeller.samples_per_step=9"]
    changes += ["evaluation.episodes=2", "evaluation.splits=[ood]", "evaluation.judged_episodes=1"]
    changes += ["loop.rollouts_per_task=2", "loop.max_steps=6", "judge.samples_per_step=1"]
    run = tmp_path / "run"
    trained(run, changes)
    with closing(Store(run / "run.sqlite")) as store:
        [episode], labels = store.judge_eval_episodes(), store.judge_eval_labels()
        counts = store.judge_eval_counts(0, "judge")[episode.task.id]
    before, after = metrics_of(run, 0), metrics_of(run)
    asked = 9 * len(episode.steps)
    votes: Counter[str] = Counter()
    for body in fake.bodies:
        votes[json.dumps(body["messages"])] += 1 if body["seed"] % 3 else -1
    said = sorted(1 if balance > 0 else -1 for balance in votes.values())
    assert sorted(labels[episode.id]) == said
    assert counts["good steps"][1] == labels[episode.id].count(1)
    assert counts["bad steps"][1] == labels[episode.id].count(-1)
    assert before["evaluation/labeller/requests"] == fake.requests == asked
    assert "evaluation/labeller/requests" not in after
    assert after["evaluation/judge/process_accuracy"] is not None
    assert not any(KEY.encode() in each for each in everything_in(run))
    # It was asked before training and is never asked again, whoever goes on or begins alike.
    Trainer.resume(
        run, overrides=["loop.iterations=2"], progress=Progress(Console(quiet=True))
    ).train()
    trained(tmp_path / "alike", [*changes, f"evaluation.baseline={run}"])
    assert fake.requests == asked
    with closing(Store(tmp_path / "alike" / "run.sqlite")) as alike:
        assert alike.judge_eval_labels() == labels


WRITES_TESTS = ("domain={name: 'helpers.at_least:AtLeast'}",)

REFUSED = [
    ("evaluation.labeller", ("evaluation.labeller={model: nano}",), "stronger than the judge"),
    ("evaluation.labeller", ("evaluation.judged_episodes=0",), "labeller: nothing is judged that"),
    ("evaluation.labeller", ("evaluation.labeller.engine.key_variable=NO_KEY",), "holds no key"),
    ("evaluation.labeller", WRITES_TESTS, "this domain's judge writes tests"),
    ("policy", (), "policy: engine: an endpoint gives no tokens or log-probs to train on"),
    ("policy", (), "`rlanything eval RECIPE`"),
    ("judge", (), "with judge.train=false"),
    (
        "adapter",
        ("adapter.model=nano",),
        "adapter: model: say here what the endpoint calls its model",
    ),
    ("adapter", ("adapter.device=cuda",), "adapter: dtype and device are the endpoint's own"),
    ("adapter", ("adapter.chat_template_kwargs={a: 1}",), "is sent them in engine.extra_body"),
    ("adapter", ("adapter.engine.key_variable=NO_KEY",), "variable NO_KEY holds no key"),
    ("adapter", (f"adapter.engine.url=http://{KEY}@host/v1",), "adapter.engine.url: give scheme"),
    ("adapter", (f"adapter.engine.url=http://host/v1?key={KEY}",), "adapter.engine.url: give"),
    ("adapter", ("adapter.engine.url=host",), "adapter.engine.url: give an address such as"),
    ("adapter", ("adapter.engine.url=http://host:99999/v1",), "adapter.engine.url: port out of"),
    ("adapter", (f"adapter.engine.key_variable={KEY}",), "adapter.engine.key_variable: string"),
    ("adapter", ("adapter.engine.model=x",), "adapter.engine.model: unknown key; known here: conc"),
    ("adapter", ("adapter.engine={name: openai}",), "adapter.engine.url: missing; add it"),
    ("adapter", ("adapter.engine={name: mainframe}",), "use one of embedded, openai"),
    ("adapter", ("adapter.engine={url: x}",), "adapter.engine: missing its name"),
    ("adapter", ("adapter.engine.concurrency=0",), "adapter.engine.concurrency: input should be"),
]


@pytest.mark.parametrize(("role", "changes", "said"), REFUSED)
def test_what_an_endpoint_cannot_do_is_refused_in_one_line_before_anything_is_written(
    fake: FakeEndpoint,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    role: str,
    changes: tuple[str, ...],
    said: str,
) -> None:
    run = tmp_path / "run"
    overrides = [f"run_dir={run}", *hosted(role, fake), *changes]
    assert call(monkeypatch, "train", str(GUESS), *FEW, *overrides) == 2
    [line] = capsys.readouterr().err.strip().splitlines()
    assert line.startswith("error: ")
    assert said in line
    assert KEY not in line
    assert (run.exists(), fake.requests) == (False, 0)


def test_a_lost_endpoint_stops_the_run_with_one_line_that_says_how_to_go_on(
    fake: FakeEndpoint,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    fake.faults.extend([status(401, f"Incorrect API key provided: {KEY}")] * 99)
    run = tmp_path / "run"
    overrides = [f"run_dir={run}", *SMALL, *hosted("adapter", fake)]
    assert call(monkeypatch, "train", str(GUESS), *FEW, *overrides) == 2
    [line] = capfd.readouterr().err.strip().splitlines()
    assert "answered 401 (Incorrect API key provided: [...]); put a valid key" in line
    assert f"continue with `rlanything resume {run}`" in line
    assert not any(KEY.encode() in each for each in everything_in(run))


def test_a_hosted_policy_is_evaluated_by_its_recipe(
    fake: FakeEndpoint,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    fake.say = lambda body: "<think>Where am I?</think>I look. > look"
    engine = f"{{name: openai, url: '{fake.url}', key_variable: MY_KEY}}"
    recipe = tmp_path / "hosted.yaml"
    recipe.write_text(
        f"name: hosted\ndomain: {{name: 'guess:Guess', module_folder: '{GUESS.parent}'}}\n"
        "loop: {max_steps: 2}\n"
        f"policy: {{model: {MODEL}, max_tokens: 99, engine: {engine}}}\n"
    )
    options = ["--episodes", "3", "--workers", "0", "--json"]
    assert call(monkeypatch, "eval", str(recipe), *options) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["episodes"], result["success"]) == (3, 0.0)
    assert fake.requests == 6
    assert fake.bodies[-1]["max_tokens"] == 99
    # The second step's chat holds the answer to the first, without its reasoning.
    assert fake.bodies[-1]["messages"][-2] == {"role": "assistant", "content": "I look. > look"}
    recipe.write_text(recipe.read_text().replace("max_tokens", "decoding: choices, max_tokens"))
    assert call(monkeypatch, "eval", str(recipe), *options) == 2
    assert "use decoding: free" in capsys.readouterr().err


def test_a_recipes_own_policy_is_evaluated_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--episodes", "2", "--max-steps", "2", "--workers", "0", "--json"]
    assert call(monkeypatch, "eval", str(GUESS), *options) == 0
    assert json.loads(capsys.readouterr().out)["episodes"] == 2


def test_a_prompt_whose_tokens_are_counted_is_not_sent(fake: FakeEndpoint) -> None:
    counted = ChatRequest((Message("user", "a"),), (0,), count_only=True)
    with pytest.raises(RequestsRefused, match="counts no tokens: estimate them"):
        speaker_on(fake).answer([counted], Sampling(1.0, 8))
    assert fake.requests == 0


def test_every_role_is_local_unless_the_recipe_says_otherwise() -> None:
    assert not PolicyConfig().remote
    assert not load_recipe(GUESS, FEW).adapter.remote
