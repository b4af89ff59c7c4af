"""A chat model behind an endpoint, which takes messages and returns text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

from rlanything.domains.requests import RequestsRefused
from rlanything.domains.thoughts import THINK
from rlanything.engines.base import ModelError, OnSamples, Sampling
from rlanything.records import Completion
from rlanything.roles.chat_model import ChatRequest, grouped_by_limit, stop_place
from rlanything.roles.tools import tools_in_words
from rlanything_openai.endpoint import Answer, Endpoint

_UNKNOWN_TOKENS = "the policy is behind an endpoint, which counts no tokens: estimate them"


class OpenAIChatModel:
    """A model behind an endpoint. Its completions have no tokens, so nothing can train on them."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    def answer(
        self,
        questions: Sequence[ChatRequest],
        sampling: Sampling,
        on_samples: OnSamples | None = None,
    ) -> list[list[Completion]]:
        """Returns [questions][n], with one HTTP request per sample. Raises the errors of
        `Endpoint.ask`, and `RequestsRefused` for prompts whose tokens are to be counted."""
        if counts := [i for i, question in enumerate(questions) if question.count_only]:
            raise RequestsRefused(dict.fromkeys(counts, _UNKNOWN_TOKENS))
        return grouped_by_limit(
            questions,
            sampling,
            lambda places, limited: self._answered(
                [questions[i] for i in places], limited, on_samples
            ),
        )

    def _answered(
        self, questions: Sequence[ChatRequest], sampling: Sampling, on_samples: OnSamples | None
    ) -> list[list[Completion]]:
        chats = [
            (tools_in_words(question.messages, question.tools), seed)
            for question in questions
            for seed in question.seeds
        ]
        answers = iter(self._endpoint.ask(chats, sampling, on_samples))
        return [
            [_completion(answer, question) for answer in islice(answers, len(question.seeds))]
            for question in questions
        ]

    def check_marker(self, marker: str) -> None:
        raise ModelError(
            "decoding: choices picks among actions token by token, but an endpoint only exchanges "
            "text; use decoding: free"
        )

    def release_cache(self) -> None:
        """Does nothing: there is no cache."""

    def pop_usage(self) -> dict[str, int]:
        return self._endpoint.pop_usage()


def _completion(answer: Answer, question: ChatRequest) -> Completion:
    start = THINK.answer_start(answer.text)
    place = stop_place(answer.text, start, question.stop)
    completion = (
        Completion.unsampled(answer.text, answer.stop_reason, start)
        if place is None
        else Completion.unsampled(answer.text[: place[0]], "stop", start)
    )
    unread = _unread(question)
    return replace(completion, unread=unread) if unread else completion


def _unread(question: ChatRequest) -> tuple[str, ...]:
    """Returns the fields of a request that are not sent to endpoints."""
    unread = [f"chat_template_kwargs.{name}" for name in question.chat_template_kwargs]
    if any(message.thought for message in question.messages):
        unread.append("messages.reasoning_content")
    if any(message.name for message in question.messages):
        unread.append("messages.name")
    return tuple(unread)
