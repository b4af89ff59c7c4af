"""Classes written for TRL's `environment_factory`: tools, calls, ends, rewards, faults."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import rlanything as rl
from helpers.agents import said
from helpers.calling import call
from rlanything.config.recipe import RecipeError, load_recipe
from rlanything.domains.base import DomainError, EpisodeError, StepResult
from rlanything.domains.requests import Reply, TooLong
from rlanything.records import Completion, Task, Trajectory
from rlanything.roles.policy import LanguagePolicy
from rlanything.rollout.episodes import RolloutRequest, Rollouts, rollout
from rlanything.rollout.workers import EnvironmentPool
from rlanything_gyms.tools.domain import ToolsDomain

WRONG = "no"
ROWS = [{"prompt": "Guess.", "secret": secret, "split": "train"} for secret in (3, 5)]


class Guess:
    """A game as TRL's documentation would have it."""

    def reset(self, secret: int | None = None, **columns: Any) -> str | None:
        self.secret = random.randint(1, 9) if secret is None else secret
        self.columns = columns
        self.right = False
        return f" It is from 1 to 9 ({random.random():.4f})."

    def guess(self, number: int, tags: list[str] | None = None) -> str:
        """
        Guesses the number.

        Args:
            number: The guess.
            tags: Notes.

        Returns:
            Whether it is right.
        """
        if self.right:
            raise ValueError("Game over.")
        self.right = number == self.secret
        return "yes" if self.right else WRONG

    async def hint(self) -> list[dict[str, str]]:
        """Tells the number."""
        return [{"type": "text", "text": f"It is {self.secret}."}, {"type": "image"}]

    def leave(self) -> str:
        """Leaves the program."""
        raise SystemExit(1)


class Scored(Guess):
    async def get_reward(self) -> float:
        return 0.5 if self.right else 0.0


class Untold:
    def reset(self, **row: Any) -> None: ...

    def act(self, word: str) -> str:
        """Has no line for its argument."""
        return word


class Strict(Guess):
    def reset(self, prompt: Any) -> None:  # type: ignore[override]
        del prompt


def right(environments: Sequence[Any], secret: Sequence[int], **kwargs: Any) -> list[float]:
    assert [each.secret for each in environments] == list(secret)
    assert [message["role"] for message in kwargs["prompts"][0]] == ["user"]
    return [float(each.right) for each in environments]


def tools(**options: Any) -> ToolsDomain:
    return ToolsDomain(**{"environment": Guess, "reward": right, "tasks": ROWS, **options})


def results(domain: ToolsDomain, *answers: str, task: Task | None = None) -> list[StepResult]:
    """Steps of a policy that gives these answers, by default to the task whose number is 3."""
    environment = domain.environment()
    if task is None:
        task = next(each for each in domain.tasks("train", 2, 0) if each.id == "row-1")
    environment.reset(task)
    return [environment.step(answer) for answer in answers]


def test_public_methods_are_tools_and_the_first_observation_ends_the_prompt() -> None:
    domain = tools()
    seen = domain.environment().reset(domain.tasks("train", 1, 0)[0])
    assert seen.request is not None
    [message] = seen.request.messages
    assert re.fullmatch(r"Guess\. It is from 1 to 9 \(0\.\d{4}\)\.", message.content)
    guess, hint, leave = seen.request.tools
    assert [guess["name"], hint["name"], leave["name"]] == ["guess", "hint", "leave"]
    assert guess["description"] == "Guesses the number."
    assert guess["parameters"]["properties"]["number"] == {
        "type": "integer",
        "description": "The guess.",
    }
    assert guess["parameters"]["required"] == ["number"]
    assert seen.text == f"{message.content}\n[tools] guess, hint, leave"


def test_calls_are_carried_out_in_order_and_an_answer_without_one_ends_the_episode() -> None:
    answers = ("So. " + call("guess", number=1) + call("hint") + call("guess", number=3), "It is 3")
    called, ended = results(tools(), *answers)
    assert (called.action, called.valid, called.outcome) == (
        'guess({"number": 1}); hint({}); guess({"number": 3})',
        True,
        None,
    )
    request = called.observation.request
    assert request is not None
    assert request.follows == 0
    assert [(m.role, m.content, m.name) for m in request.messages[1:]] == [
        ("assistant", "So.", ""),
        ("tool", WRONG, "guess"),
        ("tool", "It is 3.\n[image: not shown]", "hint"),
        ("tool", "yes", "guess"),
    ]
    assert len(request.messages[1].calls) == 3
    assert (ended.outcome, ended.reward, ended.valid, ended.action) == (1, 1.0, True, "It is 3")


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (call("guess", number="3"), "argument 'number': Input should be a valid integer, not '3'"),
        (call("guess"), "missing a required argument: 'number'"),
        (call("guess", number=3, why="so"), "got an unexpected keyword argument 'why'"),
        (call("guess", number=1, tags=[1]), "argument 'tags': Input should be a valid string"),
        (call("reset"), "there is no tool 'reset', but guess, hint, leave"),
        (call("leave"), "1"),
    ],
)
def test_a_bad_call_is_an_observation_that_names_the_error(answer: str, error: str) -> None:
    bad, good, ended = results(tools(), answer, call("guess", number=3), "done")
    assert bad.observation.text.startswith(f"[tool] error: {error}")
    assert (bad.valid, good.valid, ended.outcome) == (False, True, 1)


def test_a_call_that_cannot_be_read_does_not_end_the_episode() -> None:
    bad, ended = results(tools(), "<tool_call>{", "I give up")
    assert bad.observation.text.startswith("error: this call cannot be read")
    assert (bad.valid, bad.outcome, ended.outcome, ended.reward) == (False, None, -1, 0.0)


def test_a_tools_exception_is_shown_as_in_trl() -> None:
    _, after, _ = results(tools(), call("guess", number=3), call("guess", number=3), "done")
    assert (after.observation.text, after.valid) == ("[tool] error: Game over.", False)


def test_rewards_of_the_function_and_of_the_class_add_up() -> None:
    won = (call("guess", number=3), "done")
    assert results(tools(environment=Scored), *won)[-1].reward == 1.5
    alone = results(tools(environment=Scored, reward=None, win_at=0.5), *won)[-1]
    assert (alone.reward, alone.outcome) == (0.5, 1)
    none = results(tools(environment=Scored, reward=lambda **_: [None]), *won)[-1]
    assert (none.reward, none.outcome) == (0.5, -1)


def test_a_horizon_and_a_chat_that_is_too_long_end_and_score_it() -> None:
    domain = tools(horizon=1)
    [cut] = results(domain, call("guess", number=3))
    assert (cut.outcome, cut.reward) == (1, 1.0)
    assert cut.observation.text == "[tool] yes\nThe episode has ended."
    environment = domain.environment()
    request = environment.reset(domain.tasks("train", 1, 0)[0]).request
    assert request is not None
    full = environment.reply(Reply(request.id, None, TooLong("9 tokens are more than 8")))
    assert (full.outcome, full.valid) == (-1, False)
    assert full.observation.text == "The episode has ended. 9 tokens are more than 8"


def test_tools_that_answer_a_replay_otherwise_cost_the_policy_nothing() -> None:
    domain = tools()
    environment = domain.environment()
    environment.reset(domain.tasks("train", 1, 0)[0])
    environment.step(call("guess", number=1))
    with pytest.raises(EpisodeError, match="returned something else") as fault:
        environment.reply(Reply("of another result", Completion.unsampled("3")))
    assert not fault.value.lost


def test_a_long_result_is_cut_with_a_line_that_says_so() -> None:
    [said_so] = results(tools(result_characters=5), call("hint"))
    shown = "It is\n[cut: the result has 27 characters, only 5 are shown]"
    assert said_so.observation.text == f"[tool] {shown}"


def test_without_rows_tasks_are_seeds_and_the_same_seed_is_the_same_episode() -> None:
    def reward(environments: Sequence[Any], **_: Any) -> list[float]:
        return [float(each.right) for each in environments]

    domain = tools(tasks=None, reward=reward)
    hints = []
    for task in [*domain.tasks("train", 4, 0), *domain.tasks("train", 4, 0)]:
        random.random()  # the process's own numbers play no part
        [hint] = results(domain, call("hint"), task=task)
        hints.append(hint.observation.text)
    assert hints[:4] == hints[4:]
    assert len(set(hints)) > 1
    ids = {task.id for split in ("train", "in_domain") for task in domain.tasks(split, 9, 0)}
    assert len(ids) == 18


def test_a_column_may_choose_among_several_environments() -> None:
    rows = [{**row, "environment": kind} for row, kind in zip(ROWS, "ab", strict=True)]
    domain = tools(environment={"a": Guess, "b": Scored}, tasks=rows)
    for task, reward in zip(sorted(domain.tasks("train", 2, 0), key=str), (1.0, 1.5), strict=True):
        number = task.data["row"]["secret"]
        ended = results(domain, call("guess", number=number), "done", task=task)[-1]
        assert (task.kind, ended.reward) == (task.data["row"]["environment"], reward)
    [lost] = tools(environment={"a": Guess}, tasks=[{**ROWS[0], "environment": "a"}]).tasks(
        "train", 1, 0
    )
    other = replace(lost, data={**lost.data, "row": {**lost.data["row"], "environment": "c"}})
    with pytest.raises(EpisodeError, match="its column environment is 'c'; write one of a"):
        tools(environment={"a": Guess}).environment().reset(other)


def test_rows_are_read_as_a_data_set_of_the_same_lines(tmp_path: Path) -> None:
    chat = [{"role": "system", "content": "Play."}, {"role": "user", "content": [
        {"type": "text", "text": "Guess."}]}]  # fmt: skip
    lines = [{"id": 7, "prompt": chat, "secret": 3}, {"prompt": None, "secret": 5, "more": [1]}]
    file = tmp_path / "rows.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)) + "\n")
    domain = tools(tasks=str(file), splits={"train": 1.0}, reward=lambda **_: [0])
    first, second = sorted(domain.tasks("train", 9, 0), key=lambda task: task.id)
    assert (first.id, first.instruction, second.id, second.instruction) == (
        *("7", "Guess."),
        *("row-2", ""),
    )
    environment = domain.environment()
    request = environment.reset(first).request
    assert request is not None
    assert [message.role for message in request.messages] == ["system", "user"]
    assert environment._instance.columns == {"id": 7, "prompt": chat, "more": None}


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"environment": Untold}, r"Untold\.act is no tool .*under `Args:` in its docstring"),
        ({"environment": Strict}, r"Strict\.reset cannot be called .*'secret'.*\*\*kwargs"),
        ({"environment": int}, r"int has no method reset"),
        ({"environment": lambda: 1 / 0}, r"cannot be made \(ZeroDivisionError: division by zero"),
        ({"environment": None}, r"name the tools: environment=module:Class, mcp="),
        ({"environment": "guess"}, r"environment is 'guess': write module:name"),
        ({"reward": None}, r"there is no reward: .* get_reward\(\)"),
        ({"reward": lambda completion_ids, **_: [0]}, r"reward cannot be called .*'completion_ids"),
        ({"tasks": []}, r"tasks holds no row"),
        ({"tasks": [3]}, r"tasks, row 1: write an object"),
        ({"tasks": [{"prompt": [{"role": "tool", "content": "x"}]}]}, r"row 1: prompt holds"),
        ({"tasks": [{"id": "a"}, {"id": "a"}]}, r"row 2: id 'a' is used twice"),
        ({"tasks": [{"id": "a", "split": "train"}, {"id": "b"}]}, r"'b' names no split"),
        ({"tasks": [{"id": True}]}, r"id is True; write a text or a number"),
        ({"tasks": "none.jsonl"}, r"none\.jsonl cannot be read"),
        ({"splits": {"train": 2.0}}, r"splits must be shares"),
        ({"mcp": {"a b": {"url": "http://x"}}}, r"mcp"),
        ({"rounds": 3}, r"rounds"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line(options: dict[str, Any], fault: str) -> None:
    with pytest.raises(DomainError, match=fault) as error:
        tools(**options).tasks("train", 1, 0)
    assert "\n" not in str(error.value)


class Scripted:
    """Answers with what each row says, in turn."""

    def respond(self, episodes: Sequence[Any], seeds: Sequence[int]) -> list[Completion]:
        del seeds
        rows = [episode.task.data["row"]["says"][len(episode.steps)] for episode in episodes]
        return [said(text) for text in rows]

    def release_cache(self) -> None: ...


def rollouts(domain: ToolsDomain, workers: int = 0) -> Rollouts:
    tasks = sorted(domain.tasks("train", 100, 0), key=lambda task: task.id)
    with EnvironmentPool(domain, {}, workers, 120.0) as pool:
        requests = [RolloutRequest(task.id, task, 0) for task in tasks]
        return rollout(Scripted(), pool, requests, 4, 8)


class Faulty(Guess):
    def reset(self, secret: int | None = None, **columns: Any) -> str | None:
        if secret == 4:
            raise ConnectionError("the table is gone")
        return super().reset(secret, **columns)

    def get_reward(self) -> Any:
        return {5: "much", 6: None, 7: 1 / (self.secret - 7) if self.secret == 7 else 0}.get(
            self.secret, 0.0
        )


def test_faults_of_a_class_are_those_of_their_episodes_alone() -> None:
    guess = [call("guess", number=3), "done"]
    rows = [{"id": f"{n}", "secret": n, "split": "train", "says": guess} for n in range(3, 8)]
    rows.append({"id": "8", "secret": 3, "split": "train", "says": [call("guess", number=1)] * 4})
    played = rollouts(tools(environment=Faulty, tasks=rows, reward=None, win_at=0.0))
    assert [(t.task.id, t.outcome) for t in played.trajectories] == [
        *(("3", 1), ("5", -1), ("6", -1), ("7", -1)),
        ("8", -1),  # at the most steps of a run it is lost
    ]
    assert [str(failure) for failure in played.failures] == [
        "task 4: reset failed (ConnectionError: the table is gone)"
    ]
    assert [re.sub(r"\(.*", "", crash.reason) for crash in played.crashes] == [
        "its reward is 'much': the environment must give finite numbers",
        "its reward is None: return a number for every episode",
        "reward failed ",
    ]


def test_workers_play_the_same_episodes() -> None:
    guess = [call("hint") + call("guess", number=3), "done"]
    rows = [{"secret": n, "split": "train", "says": guess} for n in (3, 4)]
    here, there = (rollouts(tools(tasks=rows), workers).trajectories for workers in (0, 1))
    assert here == there
    assert [trajectory.outcome for trajectory in here] == [1, -1]


SOURCE = '''"""A class for TRL."""


class Words:
    def reset(self, word, **row):
        self.word, self.reward = word, 0.0
        return f" It has {len(word)} letters."

    def guess(self, word: str) -> str:
        """
        Guesses the word.

        Args:
            word: The guess.
        """
        self.reward = float(word == self.word)
        return "right" if self.reward else "wrong"


def reward(environments, **kwargs):
    return [environment.reward for environment in environments]
'''
OPTIONS = '{environment: "words_trl:Words", reward: "words_trl:reward", tasks: words.jsonl}'
RECIPE = f"""name: words
domain:
  name: tools
  options: {OPTIONS}
policy: {{model: nano-guess, decoding: free, max_tokens: 16}}
judge: {{model: nano-guess, max_tokens: 8}}
evaluation: {{splits: [in_domain]}}
"""


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "words_trl.py").write_text(SOURCE)
    lines = [{"prompt": "Guess.", "word": word} for word in ("cat", "dog", "cow", "hen", "ant")]
    (tmp_path / "words.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (tmp_path / "words.yaml").write_text(RECIPE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path / "words.yaml"


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (OPTIONS, "domain.options.environment: words_trl:Words"),
        ("{mcp: {notes: {command: [python, notes.py]}}}", "python notes.py"),
    ],
)
def test_classes_and_commands_in_a_recipe_need_permission(
    options: str, code: str, recipe: Path
) -> None:
    recipe.write_text(RECIPE.replace(OPTIONS, options))
    with pytest.raises(RecipeError, match=rf"{code}.* would be run.*--allow-code"):
        load_recipe(str(recipe))


def judged(trajectory: Trajectory, index: int) -> int:
    return 1 if trajectory.steps[index].valid else -1


def test_a_class_written_for_trl_trains_without_a_line_of_python(
    recipe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A policy too small to call writes a call at every other answer, over its sampled tokens."""
    respond = LanguagePolicy.respond

    def calling(self: LanguagePolicy, episodes: Any, seeds: Any) -> list[Completion]:
        answers = respond(self, episodes, seeds)
        texts = [
            "done" if episode.steps else call("guess", word=("cat", "dog", "cow")[seed % 3])
            for episode, seed in zip(episodes, seeds, strict=True)
        ]
        return [replace(a, text=text, answer_at=0) for a, text in zip(answers, texts, strict=True)]

    monkeypatch.setattr(LanguagePolicy, "respond", calling)
    overrides = {
        "run_dir": recipe.parent / "run",
        "loop.iterations": 1,
        "loop.tasks": 4,
        "loop.tasks_per_iteration": 4,
        "loop.rollouts_per_task": 6,
        "judge.samples_per_step": 1,
        "environment.workers": 0,
        "evaluation.episodes": 2,
        "evaluation.judged_episodes": 1,
    }
    trainer = rl.Trainer(str(recipe), overrides=overrides, allow_code=True)
    [iteration] = trainer
    assert iteration.metrics["rollouts/failures"] == 0
    trajectories = [judged.trajectory for judged in iteration.judged]
    assert {trajectory.outcome for trajectory in trajectories} == {1, -1}
    assert {len(trajectory.steps) for trajectory in trajectories} == {2}
    first, last = trajectories[0].steps
    assert re.fullmatch(r"Guess\. It has 3 letters\.\n\[tools\] guess", first.observation)
    assert last.next_observation == "The episode has ended."
    assert iteration.metrics["policy/samples"]
    assert (recipe.parent / "run" / "report.html").exists()
