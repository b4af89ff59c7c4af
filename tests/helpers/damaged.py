"""Damages of a model's folder."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

Change = Callable[[Path], Any]


class Code:
    """Creates a file when it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.trace),)


def pickled(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    torch.save({"weight": Code(folder / "trace")}, folder / "pytorch_model.bin")


def no_pickle(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"abc" * 99)


def cut(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:5000])


def huge_header(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes((2**62).to_bytes(8, "little") + b"{}")


def text(name: str, content: str) -> Change:
    return lambda folder: (folder / name).write_text(content)


def key(name: str, key: str, value: Any) -> Change:
    def change(folder: Path) -> None:
        file = folder / name
        file.write_text(json.dumps(json.loads(file.read_text()) | {key: value}))

    return change


def split(regex: str) -> Change:
    how = {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}
    return key("tokenizer.json", "pre_tokenizer", how)


FILES: dict[str, Change] = {
    "weights are a pickle": pickled,
    "weights are no pickle": no_pickle,
    "weights are cut": cut,
    "huge header": huge_header,
    "tokenizer without parts": text("tokenizer.json", "{}"),
    "tokenizer is a list": text("tokenizer.json", "[1]"),
    "tokenizer's settings are a list": text("tokenizer_config.json", "[1]"),
    "tokenizer with a bad regex": split("("),
    "config is a list": text("config.json", "[1]"),
    "config is deep": text("config.json", "[" * 100_000),
    "no heads": key("config.json", "num_attention_heads", 0),
    "size is a text": key("config.json", "hidden_size", "x"),
    "generation settings are a list": text("generation_config.json", "[1]"),
}
TEMPLATES: dict[str, Change] = {
    name: text("chat_template.jinja", template)
    for name, template in {
        "syntax": "{% for %}",
        "unsafe": "{{ ''.__class__.__mro__ }}",
        "refuses": "{{ raise_exception('no\nway \x1b[31m') }}",
        "divides by zero": "{{ 1 / 0 }}",
        "calls itself": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "long range": "{% for i in range(10 ** 9) %}{% endfor %}",
        "too much": "{{ 'x' * 10 ** 15 }}",
    }.items()
}
LOOP = "{% for i in range(99999) %}{% for j in range(99999) %}{{ i is sequence }}"
LOOP += "{% endfor %}{% endfor %}"
ENDLESS: dict[str, Change] = {
    "loops": text("chat_template.jinja", LOOP),
    "multiplies": text("chat_template.jinja", "{{ 7 ** (10 ** 9) }}"),
}
DAMAGES = {**FILES, **TEMPLATES, **ENDLESS}
