"""`rlanything eval` on programs: whose models they are, and the methods that choose among them."""

from __future__ import annotations

import pytest
from rich.console import Console

from helpers.command import call
from helpers.guess import GUESS
from rlanything.config.recipe import RecipeError
from rlanything.progress import Progress
from rlanything.runs.eval_target import EvalArgs, SelectionRule, run_eval, selection_rule

CODING = ["threads=1", "judge.samples_per_step=3"]


@pytest.mark.parametrize("method", ["best-of", "mpsc", "alphacodium", "s-star"])
def test_programs_are_chosen_by_every_method_and_what_it_took_is_told(method: str) -> None:
    target = "coding-nano"
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


def test_a_domain_with_nano_models_of_its_own_is_told_their_recipe() -> None:
    with pytest.raises(
        RecipeError, match="models of guess:Guess; for those of coding use coding-nano"
    ):
        run_eval(
            EvalArgs("nano-guess", "in_domain", 1, "coding", None, None, 1, 0),
            Progress(Console(quiet=True)),
        )


@pytest.mark.parametrize("method", ["mpsc", "alphacodium", "s-star"])
def test_a_domain_without_unit_tests_refuses_the_methods_that_need_them(
    method: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "eval", str(GUESS), "--select", f"{method}-4", "--episodes", "1") == 2
    said = capsys.readouterr().err
    assert f"--select {method}-4: {GUESS} has no judge that writes unit tests" in said
    assert "use best-of-4" in said


@pytest.mark.parametrize("text", ["mpsc", "best-of", "best-of-0", "s*-8", "codet-8", "mpsc-8 "])
def test_a_method_that_is_none_is_refused_with_those_there_are(text: str) -> None:
    with pytest.raises(RecipeError, match="write best-of-8 or alphacodium-8 or mpsc-8 or s-star-8"):
        selection_rule(text)
    assert selection_rule("s-star-8") == SelectionRule("s-star", 8)
