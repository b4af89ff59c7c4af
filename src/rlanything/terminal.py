"""The only place that prints to a terminal.

Untrusted text (of models, tasks, programs, files and endpoints) is shown literally: nothing in it
is interpreted as markup, and characters that control a terminal, or hide or reorder text, appear
as escapes.
"""

from __future__ import annotations

import json
import re
import sys
import traceback
import warnings
from types import TracebackType
from typing import Any

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.text import Text

from rlanything.strict_json import finite_json

_UNSEEN = re.compile(
    "["
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters, but not line feed and tab
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u206f"  # text direction
    "\u2028\u2029"  # line and paragraph separators
    "\u200b\u2060-\u2064\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"  # zero width
    "\ud800-\udfff"  # surrogates, which cannot be encoded
    "]"
)


def visible(text: str) -> str:
    r"""Returns the text with an escape such as `\x1b` for each invisible character."""
    return _UNSEEN.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)


def one_line(text: str) -> str:
    r"""Returns the visible text with `\n` in place of each line feed."""
    return visible(text).replace("\n", r"\n")


def literal(text: str) -> str:
    """Returns the text escaped for help texts, which typer interprets as markup."""
    return escape(visible(text))


class Terminal(Console):
    """A console that shows all strings literally, in tables and titles too."""

    def __init__(self, *, stderr: bool = False, **settings: Any) -> None:
        super().__init__(stderr=stderr, markup=False, emoji=False, highlight=False, **settings)

    def render_str(self, text: str, **settings: Any) -> Text:
        return super().render_str(visible(text), **settings)


def show(what: RenderableType) -> None:
    """Prints a table, or several, on stdout."""
    Terminal().print(what)


def write(text: str, *, stderr: bool = False) -> None:
    """Prints a text literally, on stdout or stderr."""
    print(visible(text), end="", file=sys.stderr if stderr else sys.stdout, flush=True)


def write_line(line: str, *, stderr: bool = False) -> None:
    """Prints a text as a single line, on stdout or stderr."""
    write(f"{one_line(line)}\n", stderr=stderr)


def write_json(value: Any) -> None:
    """Prints a value as one line of JSON, which has its own escapes. NaN and infinities become
    null."""
    print(json.dumps(finite_json(value)), flush=True)


class DamagedData(UserWarning):
    """Data that cannot be read are left out; the message is one line that names the file."""


def warn_of_damage(line: str) -> None:
    """Warns of data that are left out. Commands print it as one line."""
    warnings.warn(one_line(line), DamagedData, stacklevel=3)


def warnings_as_lines() -> None:
    """Prints warnings of damaged data as lines from now on, and others as Python does."""
    python_shows = warnings.showwarning

    def show_warning(message: Warning | str, category: type[Warning], *place: Any) -> None:
        if issubclass(category, DamagedData):
            write_line(f"warning: {message}", stderr=True)
        else:
            python_shows(message, category, *place)

    warnings.showwarning = show_warning


def write_traceback(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Prints a traceback, as `sys.excepthook`; its message may quote untrusted text."""
    write("".join(traceback.format_exception(kind, error, trace)), stderr=True)
