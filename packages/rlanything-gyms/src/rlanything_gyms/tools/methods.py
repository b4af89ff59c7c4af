"""Tools of a class as TRL's `environment_factory` takes it: the public methods of an instance."""

from __future__ import annotations

import asyncio
import inspect
import json
import threading
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError

from rlanything.domains.base import DomainError, EpisodeError

NOT_TOOLS = ("reset", "get_reward")
"""Public methods that TRL calls itself."""
Factory = Callable[[], Any]


class ToolError(RuntimeError):
    """A call that failed; the message is shown to the policy."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the policy may call."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    """A JSON schema."""
    call: Callable[[Mapping[str, Any]], str]
    """Carries out a call with these arguments. Raises `ToolError`, and `EpisodeError` if the
    episode cannot go on."""

    @property
    def function(self) -> dict[str, Any]:
        """Its description for the model."""
        names = ("name", "description", "parameters")
        return {name: getattr(self, name) for name in names}


def made(factory: Factory, place: str) -> Any:
    """Returns a new instance of an environment. Raises `DomainError` if it cannot be made or has
    no `reset`."""
    try:
        instance = factory()
    except Exception as fault:  # the class's own error
        raise DomainError(
            f"{place} cannot be made ({said(fault)}): fix it; it is called without arguments"
        ) from fault
    if not callable(getattr(instance, "reset", None)):
        raise DomainError(f"{place} has no method reset(**row), which begins an episode: write it")
    return instance


def check_reset(instance: Any, columns: Mapping[str, Any]) -> None:
    """Raises `DomainError` if `reset` does not take these columns."""
    try:
        inspect.signature(instance.reset).bind(**columns)
    except TypeError as fault:
        raise DomainError(
            f"{type(instance).__qualname__}.reset cannot be called ({fault}): it gets every "
            f"column of a row, {', '.join(columns)}; take the others as **kwargs"
        ) from None


def method_tools(instance: Any, place: str) -> list[Tool]:
    """Returns the tools of an instance, sorted by name as TRL has them. Raises `DomainError` for a
    method without type hints, or without a description of each argument in its docstring."""
    members = inspect.getmembers(instance, predicate=inspect.ismethod)
    public = [(n, m) for n, m in members if n not in NOT_TOOLS and not n.startswith("_")]
    return [_tool(f"{place}.{name}", name, method) for name, method in public]


def _tool(place: str, name: str, method: Callable[..., Any]) -> Tool:
    # Slow to import, and MCP servers need none of it.
    from transformers.utils.chat_template_utils import get_json_schema

    try:
        schema = get_json_schema(method)["function"]
        hints = get_type_hints(method)
        signature = inspect.signature(method)
        named = [p.kind is p.POSITIONAL_OR_KEYWORD for p in signature.parameters.values()]
        if not all(named):
            raise TypeError("its arguments must have names of their own")
        kinds = {each: TypeAdapter(hints[each]) for each in signature.parameters}
    except Exception as fault:  # each library has its own errors
        raise DomainError(
            f"{place} is no tool ({said(fault)}): give it a type hint and, under `Args:` in its "
            "docstring, a line for each argument; or begin its name with _"
        ) from fault
    call = partial(_call, method, signature, kinds)
    return Tool(name, schema.get("description", ""), schema["parameters"], call)


def _call(
    method: Callable[..., Any],
    signature: inspect.Signature,
    kinds: Mapping[str, TypeAdapter[Any]],
    arguments: Mapping[str, Any],
) -> str:
    try:
        given = signature.bind(**arguments).arguments
    except TypeError as fault:
        raise ToolError(str(fault)) from None
    for name, value in given.items():
        try:
            # As JSON, so that a list fits a tuple; strictly, so that a text is no number.
            given[name] = kinds[name].validate_json(json.dumps(value), strict=True)
        except ValidationError as fault:
            reason = fault.errors(include_url=False)[0]["msg"]
            raise ToolError(f"argument {name!r}: {reason}, not {value!r:.80}") from None
    try:
        return as_text(settled(method(**given)))
    except (EpisodeError, ToolError):
        raise
    except (Exception, SystemExit) as fault:  # TRL shows any exception to the model
        raise ToolError(str(fault) or type(fault).__name__) from fault


def as_text(result: Any) -> str:
    """Returns a tool's result as the policy reads it. Images among parts of content are only
    named."""
    if isinstance(result, list) and result and all(_is_content(part) for part in result):
        return "\n".join(str(part.get("text", f"[{part['type']}: not shown]")) for part in result)
    return str(result)


def _is_content(part: Any) -> bool:
    return isinstance(part, Mapping) and "type" in part


def said(fault: BaseException) -> str:
    """Returns an exception in one line."""
    return " ".join(f"{type(fault).__name__}: {fault}".split())[:300]


def settled(value: Any) -> Any:
    """Returns a value, or the result of a coroutine, which runs on this process's own loop."""
    return on_loop(_result(value)) if inspect.isawaitable(value) else value


async def _result(value: Any) -> Any:
    return await value


def on_loop(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Returns the result of a coroutine that runs on this process's own loop."""
    future = asyncio.run_coroutine_threadsafe(coroutine, _loop())
    try:
        return future.result()
    except BaseException:
        future.cancel()  # for an interrupt; otherwise it has ended
        raise


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """Returns a loop in a thread that lasts as long as the process: boxes end with the thread that
    starts them."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    return loop
