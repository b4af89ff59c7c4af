"""Replaces modules that desktop_env imports and that would need several GB."""

from __future__ import annotations

import importlib.machinery
import sys
import types

STUBS = ("easyocr", "librosa", "acoustid", "pydrive", "pydrive.auth", "pydrive.drive")
"""Modules for optical character recognition, sound and Google Drive."""


class _Stub(types.ModuleType):
    """A module in which every name is an empty class."""

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


def install() -> None:
    """Makes the modules importable."""
    for name in STUBS:
        stub = _Stub(name)
        stub.__spec__ = importlib.machinery.ModuleSpec(name, None)
        stub.__path__ = []
        sys.modules[name] = stub
