"""Turns libraries' errors about a model's files into one line that names the model."""

from __future__ import annotations

import pickle
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from rlanything.alarm import raising_after
from rlanything.engines.base import ModelError
from rlanything.replies import quoted

TEMPLATE_SECONDS = 10.0
"""CPU time limit for rendering one chat, which normally takes milliseconds."""


class SlowTemplate(ModelError):
    """A chat template takes too long to render."""


class _Overtime(BaseException):
    """A timeout; not an `Exception`, so that nothing inside a template catches it."""


@contextmanager
def reading(doing: str, remedy: str) -> Iterator[None]:
    """Turns any error inside, while untrusted files are read or used, into a one-line
    `ModelError`."""
    try:
        yield
    except ModelError:
        raise
    except BaseException as error:
        # Rust's panics, such as a tokenizer's, have no importable class.
        panic = type(error).__name__ == "PanicException"
        if not isinstance(error, Exception | _Overtime) and not panic:
            raise
        raise ModelError(f"{doing}: {reason_of(error).rstrip('.')}. {remedy}") from error


def reason_of(error: BaseException) -> str:
    """Returns a library's error in one line, with its class if the message is not enough."""
    if isinstance(error, pickle.UnpicklingError):
        return "it contains more than tensors, which could be code, and is not opened"
    if "trust_remote_code" in str(error):
        return "it contains code of its own, which is never run"
    words = quoted(next(iter(str(error).strip().splitlines()), ""))
    plain = isinstance(error, OSError | ValueError | ImportError | _Overtime) and words
    return words if plain else f"{type(error).__name__}{f': {words}' if words else ''}"


@contextmanager
def rendering(model: str) -> Iterator[None]:
    """Limits the time that a model's chat template takes inside, and names the model if it fails.
    Raises `SlowTemplate` after that time, `ModelError` for other failures."""
    doing = f"model {model!r} cannot render a chat with its template"
    overtime = _Overtime(f"it takes more than {TEMPLATE_SECONDS:g} s")
    try:
        with (
            reading(doing, "Fix the chat_template of its folder, or choose another model."),
            raising_after(TEMPLATE_SECONDS, overtime, signal.ITIMER_VIRTUAL),
        ):
            yield
    except ModelError as error:
        if error.__cause__ is overtime:
            raise SlowTemplate(str(error)) from overtime
        raise
