"""What `rlanything eval` is pointed at: a mistyped run or recipe is no model of a hub."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from rlanything.config.recipe import RecipeError
from rlanything.domains.base import DomainError
from rlanything.progress import Progress
from rlanything.runs.eval_target import EvalRequest, run_eval


def request(target: str, split: str = "in_domain") -> EvalRequest:
    return EvalRequest(target, split, 1, None, None, None, 1, 0)


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


@pytest.mark.parametrize("target", ["org/model", "gpt2", "tiny"])
def test_an_id_of_a_hub_and_a_shipped_recipe_are_taken_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DomainError, match="unknown split"):  # before any model is asked for
        run_eval(request(target, "soon"), Progress(Console(quiet=True)))
