"""What policy and judge are shown of an episode's screenshots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from helpers.scripted import Counting
from rlanything.domains.base import Episode, Image, Observation
from rlanything.engines.base import Sampling
from rlanything.records import Completion, Messages, Step, Task, Trajectory
from rlanything.roles.chat_model import ChatRequest
from rlanything.roles.judges.llm import LLMJudge
from rlanything.roles.policy import LanguagePolicy

TASK = Task("t", "count to 3")
SAMPLING = Sampling(1.0, 40)
IMAGES = [Image(bytes([number])) for number in range(5)]
NAMES = tuple(image.name for image in IMAGES)


class Asked:
    """A chat model that keeps what it was asked."""

    def __init__(self) -> None:
        self.chats: list[Messages] = []

    def answer(
        self, questions: Sequence[ChatRequest], sampling: Sampling, on_samples: Any = None
    ) -> list[list[Completion]]:
        self.chats += [question.messages for question in questions]
        return [[Completion.unsampled("\\boxed{1}") for _ in each.seeds] for each in questions]

    def check_marker(self, marker: str) -> None:
        raise NotImplementedError

    def release_cache(self) -> None:
        pass

    def pop_usage(self) -> dict[str, int]:
        return {}


def step(number: int, last: bool = False) -> Step:
    after = None if last else NAMES[number + 1]
    said = Completion.unsampled("> 1")
    return Step("before", said, "1", True, "after", NAMES[number], after)


@pytest.mark.parametrize(("most", "shown"), [(0, ()), (1, NAMES[4:]), (3, NAMES[2:]), (9, NAMES)])
def test_the_policy_sees_the_latest_screenshots(most: int, shown: tuple[str, ...]) -> None:
    seen = Observation("now", image=IMAGES[4])
    episode = Episode("e", TASK, seen, [step(number) for number in range(4)])
    chat = Asked()
    LanguagePolicy(chat, Counting(), SAMPLING, "free", 8, most).respond([episode], [0])
    [messages] = chat.chats
    assert messages[-1].images == shown
    assert not any(message.images for message in messages[:-1])


def test_the_judge_sees_the_screen_before_and_after_a_step() -> None:
    trajectory = Trajectory("e", TASK, (step(0), step(1), step(2, last=True)), 1)
    chat, blind = Asked(), Asked()
    LLMJudge(chat, Counting(), SAMPLING, 2, screenshots=True).judge([trajectory], 0)
    LLMJudge(blind, Counting(), SAMPLING, 2).judge([trajectory], 0)
    assert [messages[-1].images for messages in chat.chats] == [NAMES[:2], NAMES[1:3], NAMES[2:3]]
    assert not any(message.images for messages in blind.chats for message in messages)
    assert [[m.content for m in c] for c in chat.chats] == [
        [m.content for m in c] for c in blind.chats
    ]
