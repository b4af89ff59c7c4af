"""A model that brings code of its own."""

from __future__ import annotations

import builtins
import json
import shutil
from collections.abc import Sequence
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


def willing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
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


def check_never_run(
    mark: Path,
    model_type: str,
    arguments: Sequence[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Calls a command with such a model: its code does not run, and a refusal says so."""
    code = call(monkeypatch, *arguments)
    assert not mark.exists()
    if code:
        [line] = capsys.readouterr().err.splitlines()
        assert "contains code of its own, which is never run" in line
        assert "trust_remote_code" not in line
    else:
        assert model_type == "seed_oss", "without its code its kind is not known"


def check_fetches_no_kernel(
    folder: Path, key: str, arguments: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls a command with such a model, whose configuration names a kernel under `key`."""
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(settings | {key: "strangers/kernel"}))
    asked: list[object] = []
    monkeypatch.setattr("transformers.modeling_utils.lazy_import_flash_attention", asked.append)
    assert call(monkeypatch, *arguments) == 0
    assert asked == []
