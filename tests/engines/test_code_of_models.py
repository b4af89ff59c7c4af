"""A model that brings code of its own runs none of it, whoever would say yes to that."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from helpers.brought_code import (
    brings_code,
    check_fetches_no_kernel,
    check_never_run,
    willing,
)
from helpers.paths import PACKAGES, SOURCE


@pytest.fixture
def mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return willing(tmp_path, monkeypatch)


@pytest.mark.parametrize("model_type", ["evil", "seed_oss"])
@pytest.mark.parametrize("tokenizer", [False, True], ids=["model", "tokenizer"])
@pytest.mark.parametrize("command", ["eval", "train"])
def test_the_code_of_a_model_is_never_run(
    command: str,
    model_type: str,
    tokenizer: bool,
    mark: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = brings_code(mark, model_type, tokenizer)
    words = {
        "eval": f"eval {folder} --domain guess:Guess --episodes 1 --max-steps 1 --workers 0 "
        "threads=1",
        "train": f"train guess policy.model={folder} run_dir=run loop.iterations=0 "
        "evaluation.episodes=0 threads=1",
    }[command]
    check_never_run(mark, model_type, words.split(), monkeypatch, capsys)


@pytest.mark.parametrize("key", ["attn_implementation", "_attn_implementation"])
def test_no_kernel_is_fetched_that_a_configuration_names(
    key: str, mark: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = brings_code(mark, "seed_oss", tokenizer=False)
    words = f"eval {folder} --domain guess:Guess --episodes 1 --max-steps 1 --workers 0 threads=1"
    check_fetches_no_kernel(folder, key, words.split(), monkeypatch)


LOADERS = ("from_pretrained", "from_config", "LLM")


def test_whatever_loads_a_model_says_that_its_code_is_not_run() -> None:
    calls = [
        (path.name, node.lineno, {word.arg: ast.unparse(word.value) for word in node.keywords})
        for path in [*SOURCE.rglob("*.py"), *PACKAGES.glob("*/src/**/*.py")]
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and (getattr(node.func, "attr", None) or getattr(node.func, "id", None)) in LOADERS
    ]
    assert len(calls) > 8
    silent = [call[:2] for call in calls if call[2].get("trust_remote_code") != "False"]
    assert silent == []
