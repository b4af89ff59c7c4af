"""Checks that a model's files contain the whole model; missing weights would be random."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

from rlanything.engines.base import ModelError
from rlanything.replies import quoted

_SHOWN = 3
"""Number of names quoted in a message."""
_PEFT_PREFIX = "base_model.model."
_OLD_BUFFERS = (".masked_bias", ".inv_freq")
"""Constants that older versions of transformers saved next to the weights."""


def read_network(auto: Any, place: str, source: str, **files: Any) -> PreTrainedModel:
    """Returns the float32 network in a folder's files, or in a GGUF file in it.

    Raises `ModelError` if a weight of the architecture is missing or has another shape
    (transformers would use random numbers), or if the files have more weights for the same layers
    than the architecture (transformers would ignore them)."""
    with _without_report():
        network, report = auto.from_pretrained(
            place,
            dtype=torch.float32,
            trust_remote_code=False,
            ignore_mismatched_sizes=True,
            output_loading_info=True,
            **files,
        )
    _check_report(network, report, source)
    return network


def read_adapters(network: Any, folder: str, source: str) -> None:
    """Adds a folder's adapters to the network they belong to, as float32.

    Raises `ModelError` if an adapter weight is missing or has another shape, or if the folder has
    weights that belong to no adapter."""
    if (file := Path(folder) / "adapter_model.safetensors").is_file():
        with safe_open(file, framework="pt") as tensors:
            own = {name.removeprefix(_PEFT_PREFIX) for name in tensors.keys()}  # noqa: SIM118
        if whole := own & network.state_dict().keys():
            raise ModelError(
                f"the adapters of model {source!r} come with changed weights of the model itself "
                f"({_some(whole)}), as after its vocabulary was resized: merge them into the model "
                "(peft's merge_and_unload) and use that folder"
            )
    try:
        with _without_report():
            report = network.load_adapter(folder)
    except RuntimeError as error:
        if "ignore_mismatched_sizes" not in str(error):
            raise
        raise ModelError(
            f"the adapters of model {source!r} do not have the shapes of its adapter_config.json "
            "and their model: check base_model_name_or_path and r in it"
        ) from error
    if report is not None:  # older versions of transformers return nothing
        _check_report(network, report.to_dict(), source)
    for name, weights in network.named_parameters():
        if ".lora_" in name:
            weights.data = weights.data.to(torch.float32)


def check_vocabulary(
    network: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, source: str
) -> None:
    """Raises `ModelError` if the tokenizer has words without an embedding.

    Special tokens that no chat uses are exempt; some models have those."""
    embeddings: Any = network.get_input_embeddings()
    rows = embeddings.weight.shape[0]
    beyond = {word for word, i in tokenizer.get_vocab().items() if i >= rows}
    if not beyond:
        return
    special = {t.content for t in tokenizer.added_tokens_decoder.values() if t.special}
    template = str(tokenizer.chat_template)
    used = {word for word in beyond if word not in special or word in template}
    if used:
        raise ModelError(
            f"model {source!r} has {rows} embeddings, but its tokenizer has {len(used)} words "
            f"beyond them ({_some(used)}): use the model's own tokenizer, or resize its embeddings "
            "(resize_token_embeddings), train it, and save both"
        )


def _check_report(network: nn.Module, report: Mapping[str, Any], source: str) -> None:
    """Raises `ModelError` if the report of a load shows an incomplete model."""
    if other := sorted(report["mismatched_keys"]):
        name, saved, wanted = other[0]
        raise ModelError(
            f"model {source!r}: {quoted(name)} has shape {list(saved)} in its files and "
            f"{list(wanted)} by its config.json{_and_more(other)}: correct config.json (vocab_size "
            "if the vocabulary was resized)"
        )
    missing, unknown = report["missing_keys"], report["unexpected_keys"]
    if missing:
        instead = f" and hold {_some(unknown)} instead" if unknown else ""
        raise ModelError(
            f"model {source!r}: its files lack {len(missing)} of the weights that its config.json "
            f"names ({_some(missing)}){instead}, which would be random numbers. Save it again with "
            "save_pretrained; if it was compiled or wrapped, save the model inside the wrapper"
        )
    if dropped := _within(network, unknown):
        raise ModelError(
            f"model {source!r}: its files hold {len(dropped)} weights that its config.json does "
            f"not name ({_some(dropped)}), which would be ignored: correct config.json (such as "
            "num_hidden_layers, or whether layers have biases)"
        )


def _within(network: nn.Module, names: Collection[str]) -> set[str]:
    """Returns the names in a file that belong to the network's own layers, or to more of them.

    This excludes extra heads (such as a critic's, or for predicting further tokens) and towers."""
    modules = {name for name, _ in network.named_modules()}
    buffers = {name for name, _ in network.named_buffers()}
    own = {name for name in names if name not in buffers and not name.endswith(_OLD_BUFFERS)}
    lists = {name for name, part in network.named_modules() if isinstance(part, nn.ModuleList)}

    def inside(name: str) -> bool:
        parts = name.split(".")
        above = [".".join(parts[:n]) for n in range(1, len(parts))]
        known = [module for module in above if module in modules]
        # In a layer, in an additional layer of a list, or next to weights of the same module.
        return bool(known) and (bool(lists.intersection(known)) or known[-1] == above[-1])

    return {name for name in own if inside(name)}


def _some(names: Collection[str]) -> str:
    shown = ", ".join(quoted(name) for name in sorted(names)[:_SHOWN])
    return f"{shown}, ..." if len(names) > _SHOWN else shown


def _and_more(rest: Collection[Any]) -> str:
    return f", and {len(rest) - 1} more do not fit" if len(rest) > 1 else ""


@contextmanager
def _without_report() -> Iterator[None]:
    """Silences transformers' load report, which quotes untrusted files."""
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
