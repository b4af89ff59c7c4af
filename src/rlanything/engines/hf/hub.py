"""Checks that a model hub can be reached, before its client tries for a minute."""

from __future__ import annotations

import socket
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies

from huggingface_hub import constants, try_to_load_from_cache

from rlanything.engines.base import ModelError


def check_hub(model: str) -> None:
    """Raises `ModelError` if a model is neither a folder nor in the cache, and the hub's name
    cannot be resolved. Behind a proxy nothing is checked: names are the proxy's to resolve."""
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
            f"{host} cannot be reached ({error}); name a folder, or download it where there is a "
            "network"
        ) from None
