"""The faults of programs: where they occurred, and which are faults of a service the program
needs."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import multiprocessing
import os
import re
import sysconfig
import textwrap
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rlanything import plugins

_LIBRARIES = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib"))
_OWN = tuple(f"{Path(file or '').parent}{os.sep}" for file in (plugins.__file__, __file__))
"""Folders of the library and of this package."""
_PIPES = tuple(
    str(Path(module.__file__ or "").parent)
    for module in (asyncio, concurrent.futures, multiprocessing)
)
# Compared by name: the libraries need not be installed.
_UNREACHABLE = frozenset(
    {
        *("ConnectionError", "TimeoutError", "gaierror", "URLError"),  # Python's own
        *("TransportError", "ConnectTimeout", "ReadTimeout", "ClientConnectionError"),
        *("APIConnectionError", "InternalServerError", "RateLimitError", "ServiceUnavailable"),
        *("MaxRetryError", "NewConnectionError", "ProtocolError", "EndpointConnectionError"),
    }
)
_ANSWERS_DOING = frozenset({"BrokenPipeError", "HTTPError", "UnsupportedProtocol"})
_LOOPS = re.compile("different (event )?loop|Event loop is closed")
_HOST = re.compile(r"(?:://|host='|host )([\w.-]+)")


def reason(fault: BaseException) -> str:
    """Returns the error and its place in the program's own code, in one line."""
    fault = next(_leaves(fault))
    said = " ".join(f"{type(fault).__name__}: {fault}".split())
    frames = [f for f in _frames(fault) if not f.filename.startswith("<frozen")]
    own = [f for f in frames if not f.filename.startswith(_LIBRARIES) and not _installed(f)]
    # The program may itself be an installed package: then use the first frame.
    chosen = own[-1:] or frames[:1]
    place = "".join(f", in {frame.filename}, line {frame.lineno}" for frame in chosen)
    return f"{textwrap.shorten(said, 300, placeholder=' ...')}{place}"


def unreachable(fault: BaseException, answers: Sequence[str]) -> bool:
    """Returns whether a program failed because a service that it needs could not be reached. False
    if an answer caused it: code run from an answer, or an address that the answer named."""
    leaves = list(_leaves(fault))
    return all(
        any(_is_unreachable(each, answers) for each in _causes(leaf)) for leaf in leaves
    ) and not any(_runs_an_answer(leaf) for leaf in leaves)


def _is_unreachable(fault: BaseException, answers: Sequence[str]) -> bool:
    if isinstance(fault, RuntimeError) and _LOOPS.search(str(fault)):
        return True  # a client kept from another episode, which ran in another loop
    names = {kind.__name__ for kind in type(fault).__mro__}
    if not names & _UNREACHABLE or type(fault).__name__ in _ANSWERS_DOING:
        return False
    frames = _frames(fault)
    # A time limit that the program sets itself, or the pipe to a process that it runs.
    own = type(fault) in (TimeoutError, ConnectionResetError) and not getattr(fault, "errno", None)
    if own and frames and frames[-1].filename.startswith(_PIPES):
        return False
    said = "\n".join(answers)
    hosts = [urlsplit(url).hostname for url in _urls(fault)] or _HOST.findall(str(fault))
    return not any(host and host in said for host in hosts) if hosts else "://" not in said


def _urls(fault: Any) -> list[str]:
    with contextlib.suppress(Exception):  # httpx raises if there is no request
        return [str(fault.request.url)]
    return []


def _runs_an_answer(fault: BaseException) -> bool:
    """Returns whether code without a file was running, other than the program's own."""
    frames = _frames(fault)
    made = [f for f in frames if f.filename.startswith("<") and "frozen" not in f.filename]
    return any(frame.filename != frames[0].filename for frame in made)


def _leaves(fault: BaseException) -> Iterator[BaseException]:
    if isinstance(fault, BaseExceptionGroup):
        for member in fault.exceptions:
            yield from _leaves(member)
    else:
        yield fault


def _causes(fault: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = fault
    while cause is not None:
        yield cause
        cause = cause.__cause__


def _frames(fault: BaseException) -> list[traceback.FrameSummary]:
    """Returns the stack frames, starting with the program's first."""
    frames = traceback.extract_tb(fault.__traceback__)
    return [frame for frame in frames if not frame.filename.startswith(_OWN)]


def _installed(frame: traceback.FrameSummary) -> bool:
    return "site-packages" in frame.filename or "dist-packages" in frame.filename
