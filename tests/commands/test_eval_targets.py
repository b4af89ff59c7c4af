"""What `rlanything eval` is pointed at: a mistyped run or recipe is no model of a hub."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from helpers.guess import write_recipe
from rlanything.config.recipe import RecipeError
from rlanything.domains.base import DomainError
from rlanything.progress import Progress
from rlanything.runs.eval_target import EvalArgs, run_eval


def request(target: str, split: str = "in_domain", domain: str | None = None) -> EvalArgs:
    return EvalArgs(target, split, 1, domain, None, None, 1, 0)


@pytest.mark.parametrize(
    ("target", "remedy"),
    [
        ("runz/first", "did you mean runs/first?"),
        ("runs/frist", "did you mean runs/first?"),
        ("runs/other", "check the path"),
        ("runs/first/checkpoints/iter-9", "check the path"),
        ("models/mine", "check the path"),
        ("./mine", "check the path"),
        ("/mine", "check the path"),
        ("mine.yaml", "check the path"),
        ("model.gguf", "check the path"),
        ("guess-smolm2", "did you mean guess-smollm2"),
    ],
)
def test_what_looks_like_a_path_must_exist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, remedy: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "first").mkdir(parents=True)
    (tmp_path / "runs" / "first" / "recipe.yaml").touch()
    (tmp_path / "models").mkdir()
    with pytest.raises(RecipeError, match=r"there is no such run, recipe or folder") as caught:
        run_eval(request(target), Progress(Console(quiet=True)))
    assert remedy in str(caught.value)


@pytest.mark.parametrize("target", ["org/model", "gpt2", "expert", "random"])
def test_a_target_that_no_domain_belongs_to_is_asked_for_one(target: str) -> None:
    said = f"{target}: say what it plays with --domain, one of "
    with pytest.raises(RecipeError, match=said):
        run_eval(request(target), Progress(Console(quiet=True)))


@pytest.mark.parametrize(
    ("target", "domain"),
    [
        ("org/model", "guess:Guess"),
        ("gpt2", "guess:Guess"),
        ("guess", None),
        ("nano-guess", None),
    ],
)
def test_an_id_of_a_hub_a_shipped_model_and_a_shipped_recipe_are_taken_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, domain: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DomainError, match="no split 'soon'"):  # before any model is asked for
        run_eval(request(target, "soon", domain), Progress(Console(quiet=True)))


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("evaluation.episodes=7", "evaluation.episodes: say --episodes"),
        ("evaluation.seed=9", "evaluation.seed: say --seed"),
        ("seed=9", "seed: say --seed"),
        ("evaluation.every=2", "evaluation.every: an evaluation does not read it; leave it out"),
        (
            "evaluation.labeller.model=x",
            "evaluation.labeller.model: an evaluation does not read it",
        ),
        ("loop.tasks=9", "loop.tasks: an evaluation does not read it; leave it out"),
        ("loop={iterations: 9}", "loop: name what is meant, as in loop.max_steps=8"),
        ("feedback.policy_lambda=2", "feedback.policy_lambda: an evaluation does not read it"),
        ("policy.temperature=0.3", "policy.temperature: say --temperature"),
        ("cluster.offload=false", "cluster.offload: models run in this process; leave it out"),
    ],
)
def test_what_an_evaluation_does_not_follow_is_refused(override: str, said: str) -> None:
    with pytest.raises(RecipeError, match=said):
        run_eval(replace(request("guess"), overrides=[override]), Progress(Console(quiet=True)))
    with pytest.raises(RecipeError, match="--temperature: random samples from no model"):
        run_eval(
            replace(request("random", domain="guess:Guess"), temperature=0.5),
            Progress(Console(quiet=True)),
        )
    quiet = Progress(Console(quiet=True))
    with pytest.raises(RecipeError, match="--role: only --select asks a judge; leave it out"):
        run_eval(replace(request("guess"), role="judge"), quiet)
    with pytest.raises(RecipeError, match=r"policy\.max_tokens: expert asks no model"):
        run_eval(replace(request("expert"), overrides=["policy.max_tokens=9"]), quiet)


@pytest.mark.parametrize("key", ["policy.model", "judge.model"])
def test_a_run_is_asked_with_the_models_that_it_trained(tmp_path: Path, key: str) -> None:
    write_recipe(tmp_path / "recipe.yaml")
    (tmp_path / "run.sqlite").touch()
    asked = replace(request(str(tmp_path)), overrides=[f"{key}=nano-guess"])
    with pytest.raises(RecipeError, match=f"{key}: .* is asked with the model that it trained"):
        run_eval(asked, Progress(Console(quiet=True)))


WALK = """
from rlanything import Observation, StepResult, Task, TextDomain
from rlanything.domains.base import Capabilities, EpisodeError

class Walk(TextDomain):
    capabilities = Capabilities(whole_splits=("whole",))
    def tasks(self, split, count, seed):
        return [Task(str(number), "Do it.") for number in range(500)][:count]
    def environment(self):
        return self
    def reset(self, task):
        if int(task.id) % 2:
            raise EpisodeError(task.id, f"needs a file {task.id}")
        return Observation("go")
    def step(self, response):
        return StepResult(Observation("end"), response, True, outcome=1, reward=0.5)
    def close(self):
        pass
    def expert(self, task, steps):
        return "> go"
"""


@pytest.mark.parametrize(
    ("split", "episodes", "played"), [("whole", None, 500), ("whole", 7, 7), ("part", None, 240)]
)
def test_a_split_that_a_domain_wants_whole_is_played_whole_with_a_reason_for_each_task_left_out(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    split: str,
    episodes: int | None,
    played: int,
) -> None:
    (tmp_path / "walk.py").write_text(WALK)
    monkeypatch.syspath_prepend(tmp_path)
    asked = replace(request("expert", split, "walk:Walk"), episodes=episodes, allow_code=True)
    result = run_eval(asked, Progress(Console(quiet=True)))
    data = result.to_json()
    assert data["episodes"] == played - played // 2
    assert data["reasons"] == {str(n): f"needs a file {n}" for n in range(1, played, 2)}
    assert data["mean_reward"] == (0.5, pytest.approx(0.5 * (played - played // 2) / played))
    assert "mean reward, unplayed as 0" in [*result.table().columns[0].cells]
