"""What is too large for the endpoint or the model, and who else notices."""

from __future__ import annotations

import base64
import io
import threading
from typing import Any

import openai
import PIL.Image
import pytest

from helpers.agents import Narrow, agent, ask, played
from rlanything.records import Task
from rlanything_agent.asked import Denial
from rlanything_agent.dialects.chat import ChatCompletions


def test_an_image_of_too_many_pixels_is_refused_before_it_is_unpacked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rlanything_agent.turns.MOST_PIXELS", 63 * 64)
    buffer = io.BytesIO()
    PIL.Image.new("L", (64, 64)).save(buffer, "PNG")
    monkeypatch.setattr(PIL.Image.Image, "load", lambda self: pytest.fail("unpacked"))
    url = f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"
    content = [{"type": "image_url", "image_url": {"url": url}}]
    with pytest.raises(Denial, match="at most 4,032 pixels"):
        ChatCompletions().read(
            {"model": "policy", "messages": [{"role": "user", "content": content}]}, images=True
        )


def test_a_large_request_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read in a thread, while the event loop goes on."""
    threads: list[threading.Thread] = []
    read = ChatCompletions.read

    def reading(self: ChatCompletions, *given: Any) -> Any:
        threads.append(threading.current_thread())
        return read(self, *given)

    async def solve(task: Task, client: Any) -> bool:
        loop = threading.current_thread()
        await ask(client, "Hi")
        await ask(client, "Hi" * 2**16)
        return [thread is loop for thread in threads] == [True, False]

    monkeypatch.setattr(ChatCompletions, "read", reading)
    [trajectory] = played(agent(solve)).trajectories
    assert trajectory.outcome == 1


def test_a_chat_that_is_too_long_is_refused_with_the_code_that_clients_know() -> None:
    async def solve(task: Task, client: Any) -> bool:
        with pytest.raises(openai.BadRequestError, match="maximum context length") as refused:
            await ask(client, "a long one")
        await ask(client, "Hi")
        return (refused.value.code, refused.value.param) == ("context_length_exceeded", "messages")

    for workers in (0, 1):
        [trajectory] = played(agent(solve), policy=Narrow(), workers=workers).trajectories
        assert (trajectory.outcome, len(trajectory.steps)) == (1, 1)
