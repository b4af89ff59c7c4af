"""One line that names a damaged model, whatever libraries raise over its files."""

from __future__ import annotations

import pickle
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from rlanything.engines.alarm import raising_after
from rlanything.engines.base import ModelError
from rlanything.replies import quoted

TEMPLATE_SECONDS = 10.0
"""Most CPU time for one chat to be rendered, which takes milliseconds."""


class SlowTemplate(ModelError):
    """A chat template takes too long, whatever chat it is given."""


class _Overtime(BaseException):
    """Not an `Exception`, so that nothing inside a template takes it for its own."""


@contextmanager
def reading(doing: str, remedy: str) -> Iterator[None]:
    """Turns what is raised inside, while files that somebody else wrote are read or used, into a
    `ModelError` of one line."""
    try:
        yield
    except ModelError:
        raise
    except BaseException as error:
        # Rust's panics, such as a tokenizer's, have no class that could be imported.
        panic = type(error).__name__ == "PanicException"
        if not isinstance(error, Exception | _Overtime) and not panic:
            raise
        raise ModelError(f"{doing}: {reason_of(error).rstrip('.')}. {remedy}") from error


def reason_of(error: BaseException) -> str:
    """Returns what a library says is wrong, in one line; the kind of error where that alone says
    nothing."""
    if isinstance(error, pickle.UnpicklingError):
        return "it holds more than tensors, which could be code, and is not opened"
    if "trust_remote_code" in str(error):
        return "it brings code of its own, which is never run"
    words = quoted(next(iter(str(error).strip().splitlines()), ""))
    plain = isinstance(error, OSError | ValueError | ImportError | _Overtime) and words
    return words if plain else f"{type(error).__name__}{f': {words}' if words else ''}"


@contextmanager
def rendering(model: str) -> Iterator[None]:
    """Limits the time that the chat template of a model takes inside, and names the model where it
    fails. Raises `SlowTemplate` where that time is over, `ModelError` for other failures."""
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
