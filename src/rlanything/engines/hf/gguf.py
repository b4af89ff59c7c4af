"""GGUF files: converted once to a Hugging Face folder."""

from __future__ import annotations

import hashlib
import importlib.util
import os
from pathlib import Path
from typing import Any

from transformers import AutoModelForCausalLM, AutoTokenizer

from rlanything.engines.hf.completeness import read_network
from rlanything.files import new_folder

SUFFIX = ".gguf"


def find_gguf(source: str) -> Path | None:
    """Returns the file of `PATH.gguf` or `package:FILE.gguf`; None: the source is not GGUF.

    Raises FileNotFoundError if there is no such file or package."""
    if not source.endswith(SUFFIX):
        return None
    package, colon, name = source.rpartition(":")
    path = Path(name)
    if colon:
        spec = importlib.util.find_spec(package) if package.isidentifier() else None
        if spec is None or spec.origin is None:
            raise FileNotFoundError(f"the package {package!r} is not installed")
        path = Path(spec.origin).parent / name
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist")
    return path


def unpacked(path: Path) -> Path:
    """Returns the folder with the float32 weights and tokenizer of a GGUF file, in the user's
    cache.

    It is created on first use, atomically, under the file's SHA-256. Raises ImportError without the
    package `gguf`, and transformers' errors for files that it cannot read."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rlanything" / "gguf"
    place = cache / f"{path.stem}-{digest[:16]}"
    if place.is_dir():
        return place
    if importlib.util.find_spec("gguf") is None:
        raise ImportError("reading GGUF files needs the package gguf (pip install gguf)")
    network: Any = read_network(
        AutoModelForCausalLM, str(path.parent), str(path), gguf_file=path.name
    )
    tokenizer = AutoTokenizer.from_pretrained(
        str(path.parent), gguf_file=path.name, trust_remote_code=False
    )
    # The weights are plain numbers now; with this mark transformers would not save them.
    network.hf_quantizer = None
    del network.config.quantization_config
    try:
        with new_folder(place) as partial:
            network.save_pretrained(partial)
            tokenizer.save_pretrained(partial)
    except OSError:
        if not place.is_dir():  # another process may have been faster
            raise
    return place
