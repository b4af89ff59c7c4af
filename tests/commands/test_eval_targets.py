"""What `rlanything eval` is pointed at: a mistyped run or recipe is no model of a hub."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from helpers.command import call
from helpers.paths import RECIPES, TINY
from rlanything.config.recipe import RecipeError
from rlanything.domains.base import DomainError
from rlanything.progress import Progress
from rlanything.runs.eval_target import EvalArgs, SelectionRule, run_eval, selection_rule


def request(target: str, split: str = "in_domain") -> EvalArgs:
    return EvalArgs(target, split, 1, None, None, None, 1, 0)


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
        ("quikstart", "did you mean quickstart?"),
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


def test_a_domain_with_nano_models_of_its_own_is_told_their_recipe() -> None:
    with pytest.raises(RecipeError, match="AlfWorld's models; for those of coding use coding-nano"):
        run_eval(replace(request("nano"), domain="coding"), Progress(Console(quiet=True)))


@pytest.mark.parametrize("target", ["org/model", "gpt2", "tiny"])
def test_an_id_of_a_hub_and_a_shipped_recipe_are_taken_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DomainError, match="unknown split"):  # before any model is asked for
        run_eval(request(target, "soon"), Progress(Console(quiet=True)))


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("evaluation.episodes=7", "evaluation.episodes: say --episodes"),
        ("evaluation.seed=9", "evaluation.seed: say --seed"),
        ("policy.temperature=0.3", "policy.temperature: say --temperature"),
        ("cluster.offload=false", "cluster.offload: models run in this process; leave it out"),
    ],
)
def test_what_an_evaluation_does_not_follow_is_refused(override: str, said: str) -> None:
    with pytest.raises(RecipeError, match=said):
        run_eval(replace(request("tiny"), overrides=[override]), Progress(Console(quiet=True)))
    with pytest.raises(RecipeError, match="--temperature: random samples from no model"):
        run_eval(replace(request("random"), temperature=0.5), Progress(Console(quiet=True)))
    quiet = Progress(Console(quiet=True))
    with pytest.raises(RecipeError, match=r"policy\.max_tokens: expert asks no model"):
        run_eval(replace(request("expert"), overrides=["policy.max_tokens=9"]), quiet)


CODING = ["threads=1", "judge.samples_per_step=3"]


@pytest.mark.parametrize("method", ["best-of", "mpsc", "alphacodium", "s-star"])
def test_programs_are_chosen_by_every_method_and_what_it_took_is_told(method: str) -> None:
    target = str(RECIPES / "coding-nano.yaml")
    rule = selection_rule(f"{method}-3")
    chosen = EvalArgs(target, "in_domain", 2, None, None, None, 1, 0, CODING, rule)
    result = run_eval(chosen, Progress(Console(quiet=True)))
    assert result.selection is not None
    assert result.cost is not None
    assert result.cost.attempts == len(result.evaluation.trajectories) == 2 * 3
    assert result.cost.judgements in ({2 * 3} if method != "s-star" else {2 * 3, 3 * 3, 4 * 3})
    repairs = range(1 + 2 * 3 * 4) if method in ("alphacodium", "s-star") else range(1)
    assert result.cost.repairs in repairs
    share = result.selection.chosen.estimate * 2
    assert share in (0, 1, 2)
    assert method in ("alphacodium", "s-star") or share <= result.selection.possible * 2


@pytest.mark.parametrize("method", ["mpsc", "alphacodium", "s-star"])
def test_a_domain_without_unit_tests_refuses_the_methods_that_need_them(
    method: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "eval", str(TINY), "--select", f"{method}-4", "--episodes", "1") == 2
    said = capsys.readouterr().err
    assert f"--select {method}-4: {TINY} has no judge that writes unit tests" in said
    assert "use best-of-4" in said


@pytest.mark.parametrize("text", ["mpsc", "best-of", "best-of-0", "s*-8", "codet-8", "mpsc-8 "])
def test_a_method_that_is_none_is_refused_with_those_there_are(text: str) -> None:
    with pytest.raises(RecipeError, match="write best-of-8 or mpsc-8 or alphacodium-8 or s-star-8"):
        selection_rule(text)
    assert selection_rule("s-star-8") == SelectionRule("s-star", 8)


@pytest.mark.parametrize("key", ["policy.model", "judge.model"])
def test_a_run_is_asked_with_the_models_that_it_trained(tmp_path: Path, key: str) -> None:
    (tmp_path / "recipe.yaml").write_text(TINY.read_text(), encoding="utf-8")
    (tmp_path / "run.sqlite").touch()
    asked = replace(request(str(tmp_path)), overrides=[f"{key}=nano"])
    with pytest.raises(RecipeError, match=f"{key}: .* is asked with the model that it trained"):
        run_eval(asked, Progress(Console(quiet=True)))
