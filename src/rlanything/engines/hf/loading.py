"""Opens model files: Hugging Face folders and ids, adapters, GGUF files."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from huggingface_hub import constants, try_to_load_from_cache
from torch import nn
from transformers import (
    AutoConfig,
    AutoImageProcessor,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging
from transformers.utils.hub import cached_file
from transformers.utils.peft_utils import find_adapter_config_file

from rlanything.engines.base import ModelError
from rlanything.engines.hf.completeness import check_vocabulary, read_adapters, read_network
from rlanything.engines.hf.damage import reading
from rlanything.engines.hf.gguf import find_gguf, unpacked
from rlanything.engines.hf.vision_spec import FAMILIES
from rlanything.engines.shipped import is_path

_WEIGHTS = ("model*.safetensors", "pytorch_model*.bin")
_TOKENIZER = ("tokenizer.json", "tokenizer_config.json")
DEFAULT_ATTENTION: Mapping[str, Any] = {"attn_implementation": None}
"""Overrides a configuration's attention with the architecture's default. An `org/kernel` there
would be code fetched from the hub."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A model's opened files."""

    network: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    load_processor: Callable[[], Any]
    """Opens the image processor."""


def open_files(source: str) -> Opened:
    """Returns a model's float32 network on the CPU, its tokenizer and processor. Raises
    `ModelError`."""
    # Their progress bars would disturb ours.
    logging.disable_progress_bar()
    with reading(
        f"cannot load model {source!r}",
        "Give a folder with config.json, model.safetensors and a tokenizer (`rlanything nano "
        "build` makes those in models/), a Hugging Face id, a GGUF file, or `nano`.",
    ):
        packed = find_gguf(source)
        if packed is None and is_path(source) and not Path(source).exists():
            built = " (`rlanything nano build` writes to models/)"
            raise ModelError(
                f"cannot load model {source!r}: there is no such folder; check the path"
                f"{built if source.startswith('models/') else ''}"
            )
        folder = str(unpacked(packed) if packed is not None else source)
        check_hub(folder)
        base = base_of(folder)
        check_hub(base)
        config = AutoConfig.from_pretrained(base, trust_remote_code=False)
        sees = config.model_type in FAMILIES
        auto: Any = AutoModelForImageTextToText if sees else AutoModelForCausalLM
        network = read_network(auto, base, source, config=config, **DEFAULT_ATTENTION)
        if base != folder:
            read_adapters(network, folder, source)
        tokenizer: Any = AutoTokenizer.from_pretrained(
            tokenizer_place(folder), trust_remote_code=False
        )
        if tokenizer.chat_template is None and base != folder:
            whole: Any = AutoTokenizer.from_pretrained(base, trust_remote_code=False)
            tokenizer.chat_template = whole.chat_template
        if tokenizer.chat_template is None and sees:
            _take_template(tokenizer, base)
        check_vocabulary(network, tokenizer, source)
    if tokenizer.chat_template is None:
        raise ModelError(
            f"model {source!r} has no chat template; choose an instruction-tuned model or add "
            "chat_template.jinja to its folder."
        )

    def load_processor() -> Any:
        # Always the same backend, or an image would have other pixels on another machine.
        return AutoImageProcessor.from_pretrained(base, backend="pil", trust_remote_code=False)

    return Opened(network, tokenizer, load_processor)


def check_hub(model: str) -> None:
    """Raises `ModelError` if a model is neither a folder nor cached and the hub cannot be reached,
    before the hub's client retries for a minute. Skipped behind a proxy, which resolves names."""
    if Path(model).exists() or constants.HF_HUB_OFFLINE or getproxies():
        return
    if isinstance(try_to_load_from_cache(model, "config.json"), str):
        return
    host = urlsplit(constants.ENDPOINT).hostname or ""
    try:
        socket.getaddrinfo(host, None)
    except OSError as error:
        raise ModelError(
            f"cannot load model {model!r}: there is no such folder, it is not in the cache, and "
            f"{host} cannot be reached ({error}); use a folder, or download it on a machine with "
            "network access"
        ) from None


def put(network: nn.Module, source: str, device: str) -> None:
    """Puts a network on a device. Raises `ModelError`."""
    try:
        nn.Module.to(network, device)
    except (AssertionError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ModelError(
            f"cannot put model {source!r} on device {device!r}: {reason}. "
            "Use `cpu`, or `cuda` with a GPU that has enough memory."
        ) from error
    if device == "cpu":
        _own_memory(network)


def is_adapters(source: str) -> bool:
    """Whether a source only has adapters of another model."""
    return find_gguf(source) is None and find_adapter_config_file(source) is not None


def base_of(folder: str) -> str:
    """Returns the base model of the adapters in a folder; any other folder unchanged. Raises
    `ModelError` if the adapters do not name a usable model."""
    adapters = find_adapter_config_file(folder)
    if adapters is None:
        return folder
    settings = json.loads(Path(adapters).read_text(encoding="utf-8"))
    base = settings.get("base_model_name_or_path")
    named = f"the adapters in {folder!r}"
    if not isinstance(base, str) or not base:
        raise ModelError(
            f"{named} do not name their base model: set its folder or id as "
            "base_model_name_or_path in adapter_config.json"
        )
    if is_path(base) and not Path(base).exists():
        raise ModelError(
            f"{named} belong to a model in {base!r}, but there is no such folder: correct "
            "base_model_name_or_path in adapter_config.json"
        )
    if find_adapter_config_file(base) is not None:
        raise ModelError(
            f"{named} belong to {base!r}, which are adapters too: merge those into their model "
            "(peft's merge_and_unload) and name that as base_model_name_or_path"
        )
    if any(True for pattern in _WEIGHTS for _ in Path(folder).glob(pattern)):
        raise ModelError(
            f"{folder!r} holds both a full model and adapters: move the adapters "
            "(adapter_config.json, adapter_model.safetensors) to a folder of their own"
        )
    return base


def tokenizer_place(folder: str) -> str:
    """Returns the source of a model's tokenizer: its folder, or the base model's for adapters that
    were saved without one."""
    base = base_of(folder)
    if base == folder:
        return folder
    own = any(
        cached_file(folder, name, _raise_exceptions_for_missing_entries=False)
        for name in _TOKENIZER
    )
    return folder if own else base


def _take_template(tokenizer: PreTrainedTokenizerBase, base: str) -> None:
    """Reads the chat template of older vision models, which is stored with their processor."""
    place = cached_file(base, "chat_template.json", _raise_exceptions_for_missing_entries=False)
    if place is not None:
        words = json.loads(Path(place).read_text(encoding="utf-8"))
        tokenizer.chat_template = words["chat_template"]


def _own_memory(network: nn.Module) -> None:
    """Copies weights out of a memory-mapped file.

    There they may start at any byte, and products of small matrices round differently depending on
    alignment, so that a resumed run would differ."""
    for weights in (*network.parameters(), *network.buffers()):
        weights.data = weights.data.clone()
