"""A model that brings code of its own runs none of it, whoever would say yes to that."""

from __future__ import annotations

import ast
import builtins
import json
import shutil
from pathlib import Path

import pytest

from helpers.command import call
from helpers.paths import SOURCE

CODE = """
from pathlib import Path
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
Path({mark!r}).touch()
class Config(LlamaConfig):
    model_type = "evil"
class Model(LlamaForCausalLM):
    config_class = Config
class Tokenizer(PreTrainedTokenizerFast): ...
"""
CLASSES = {"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"}


@pytest.fixture
def mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that is there once the model's code has run; every question is answered with yes."""
    monkeypatch.setattr(builtins, "input", lambda *_: "y")
    monkeypatch.setenv("HF_MODULES_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "PWNED"


def brings_code(mark: Path, model_type: str, tokenizer: bool) -> Path:
    """A folder of a model whose configuration, and perhaps tokenizer, names classes in a file."""
    folder = mark.with_name("model")
    shutil.copytree(SOURCE / "rlanything" / "models" / "nano-guess" / "policy", folder)
    (folder / "evil.py").write_text(CODE.format(mark=str(mark)))
    changes = {"config.json": {"model_type": model_type, "auto_map": CLASSES}}
    if tokenizer:
        changes["tokenizer_config.json"] = {
            "tokenizer_class": "Tokenizer",
            "auto_map": {"AutoTokenizer": [None, "evil.Tokenizer"]},
        }
    for name, change in changes.items():
        settings = json.loads((folder / name).read_text()) | change
        (folder / name).write_text(json.dumps(settings))
    return folder


@pytest.mark.parametrize("model_type", ["evil", "seed_oss"])
@pytest.mark.parametrize("tokenizer", [False, True], ids=["model", "tokenizer"])
@pytest.mark.parametrize("command", ["eval", "train", "plan"])
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
        "plan": f"plan guess policy.model={folder}",
    }[command]
    code = call(monkeypatch, *words.split())
    assert not mark.exists()
    if code:
        [line] = capsys.readouterr().err.splitlines()
        assert "brings code of its own, which is never run" in line
        assert "trust_remote_code" not in line
    else:
        assert model_type == "seed_oss", "without its code it is not known what it is"


@pytest.mark.parametrize("key", ["attn_implementation", "_attn_implementation"])
@pytest.mark.parametrize("command", ["eval", "plan"])
def test_no_kernel_is_fetched_that_a_configuration_names(
    command: str, key: str, mark: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = brings_code(mark, "seed_oss", tokenizer=False)
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(settings | {key: "strangers/kernel"}))
    asked: list[object] = []
    monkeypatch.setattr("transformers.modeling_utils.lazy_import_flash_attention", asked.append)
    words = {
        "eval": f"eval {folder} --domain guess:Guess --episodes 1 --max-steps 1 --workers 0 "
        "threads=1",
        "plan": f"plan guess policy.model={folder}",
    }[command]
    assert call(monkeypatch, *words.split()) == 0
    assert asked == []


LOADERS = ("from_pretrained", "from_config", "LLM")


def test_whatever_loads_a_model_says_that_its_code_is_not_run() -> None:
    calls = [
        (path.name, node.lineno, {word.arg: ast.unparse(word.value) for word in node.keywords})
        for path in (SOURCE / "rlanything").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and (getattr(node.func, "attr", None) or getattr(node.func, "id", None)) in LOADERS
    ]
    assert len(calls) > 8
    silent = [call[:2] for call in calls if call[2].get("trust_remote_code") != "False"]
    assert silent == []
