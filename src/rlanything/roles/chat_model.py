"""Chat models: a role asks with a chat and gets answers, wherever the language model runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from rlanything.engines.base import Choices, Engine, ModelError, Request, Sampling
from rlanything.engines.hf.model import LanguageModel
from rlanything.records import Completion, Messages, answer_start
from rlanything.roles.chat_template import Chat, Prompt


@dataclass(frozen=True, slots=True)
class Actions:
    """Restricts an answer to `thought <marker> one of the admitted actions`."""

    marker: str
    admitted: tuple[str, ...]
    """At least one."""
    thought_tokens: int
    """After so many tokens without a marker the marker is forced."""


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A chat that ends where the model is to answer."""

    messages: Messages
    seeds: tuple[int, ...]
    """A seed for each answer wanted (n = len(seeds))."""
    conversation: str = ""
    """Questions of one conversation may well begin alike."""
    after: Completion | None = None
    """What answered the conversation's question in the call before this one."""
    actions: Actions | None = None


class ChatModel(Protocol):
    """A language model that answers chats."""

    def answer(
        self, questions: Sequence[ChatRequest], sampling: Sampling
    ) -> list[list[Completion]]:
        """Returns completions [questions][n]."""
        ...

    def check_marker(self, marker: str) -> None:
        """Raises `ModelError` where answers cannot be restricted to actions after this marker."""
        ...

    def release_cache(self) -> None:
        """Forgets what was remembered: nothing is asked for a while."""
        ...

    def pop_usage(self) -> dict[str, int]:
        """Returns what was asked since the last call, by name: `requests`, `prompt_tokens` (a
        prompt counts with every answer, as endpoints count it) and `completion_tokens` among
        them."""
        ...


class LocalChatModel:
    """A model asked through an engine in token ids: what was sampled stays as it was sampled."""

    def __init__(self, model: LanguageModel, engine: Engine) -> None:
        self._model = model
        self.engine = engine
        self._chat = Chat(model)
        self._prompts: dict[str, Prompt] = {}
        self._tokens: dict[str, tuple[int, ...]] = {}
        self._usage = _unused()

    def counted_separately(self) -> LocalChatModel:
        """Returns the same model for another role, which counts its own tokens."""
        return LocalChatModel(self._model, self.engine)

    def answer(
        self, questions: Sequence[ChatRequest], sampling: Sampling
    ) -> list[list[Completion]]:
        """Returns [questions][n]; remembers each conversation's prompt, so that the next can
        continue it.

        Raises what the engine raises."""
        prompts = [self._prompt(question) for question in questions]
        self._prompts = {
            question.conversation: prompt
            for question, prompt in zip(questions, prompts, strict=True)
            if question.conversation
        }
        requests = [
            Request(prompt.ids, chat.seeds, self._choices(chat.actions), chat.conversation)
            for chat, prompt in zip(questions, prompts, strict=True)
        ]
        groups = self.engine.generate(requests, sampling)
        for completion in (each for group in groups for each in group):
            self._usage["requests"] += 1
            self._usage["prompt_tokens"] += len(completion.prompt_ids)
            self._usage["completion_tokens"] += len(completion.token_ids)
        return [
            # Between its thought and its action a restricted answer has a marker of its own.
            group if question.actions is not None else [_read(each, prompt) for each in group]
            for question, prompt, group in zip(questions, prompts, groups, strict=True)
        ]

    def check_marker(self, marker: str) -> None:
        if len(self._model.encode(f" {marker}")) != 1:
            raise ModelError(
                f"decoding: choices needs the action marker {marker!r} to be one token of "
                f"{self._model.name}; use decoding: free"
            )

    def release_cache(self) -> None:
        self._prompts = {}
        self.engine.release_cache()

    def pop_usage(self) -> dict[str, int]:
        taken, self._usage = self._usage, _unused()
        return taken

    def _prompt(self, question: ChatRequest) -> Prompt:
        previous = self._prompts.get(question.conversation)
        if question.after is None or previous is None:
            return self._chat.prompt(question.messages)
        return self._chat.following(previous, question.after, question.messages)

    def _choices(self, actions: Actions | None) -> Choices | None:
        if actions is None:
            return None
        [marker] = self._encoded(actions.marker)
        # An action ends the turn.
        end: int = self._model.tokenizer.eos_token_id  # pyright: ignore[reportAssignmentType]
        options = tuple((*self._encoded(action), end) for action in actions.admitted)
        return Choices(marker, options, actions.thought_tokens)

    def _encoded(self, word: str) -> tuple[int, ...]:
        """Returns the tokens of a marker or an action, which follow a space."""
        if word not in self._tokens:
            self._tokens[word] = tuple(self._model.encode(f" {word}"))
        return self._tokens[word]


def _unused() -> dict[str, int]:
    return {"requests": 0, "prompt_tokens": 0, "completion_tokens": 0}


def _read(completion: Completion, prompt: Prompt) -> Completion:
    """Returns the completion with the place where its answer begins."""
    start = answer_start(completion.text, prompt.opens_reasoning)
    return replace(completion, answer_at=start) if start else completion
