"""Chat models: the roles' interface to a language model, in this process or behind an endpoint."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Protocol

from rlanything.domains.requests import PromptTokens, RequestsRefused, TooLong
from rlanything.engines.base import (
    Choices,
    Engine,
    ModelError,
    OnSamples,
    PromptsTooLong,
    Request,
    Sampling,
)
from rlanything.engines.hf.text import ModelText
from rlanything.records import Completion, Messages
from rlanything.roles.chat_template import Chat, Prompt
from rlanything.roles.tools import Tools


@dataclass(frozen=True, slots=True)
class Actions:
    """Restricts an answer to `thought <marker> one of the admitted actions`."""

    marker: str
    admitted: tuple[str, ...]
    """Admitted actions, at least one."""
    thought_tokens: int
    """Number of tokens without a marker after which the marker is forced."""


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A chat that ends where the model is to answer."""

    messages: Messages
    seeds: tuple[int, ...]
    """One seed per answer (n = len(seeds))."""
    conversation: str = ""
    """Conversation id; requests of one conversation are likely to share a prefix."""
    after: Completion | None = None
    """Answer to the conversation's previous request."""
    actions: Actions | None = None
    tools: Tools = ()
    """Functions that may be called."""
    stop: tuple[str, ...] = ()
    """Stop strings; the answer ends before the first of them."""
    max_tokens: int | None = None
    """A limit below the sampling's own; it never cuts an admitted action."""
    refusable: bool = False
    """Whether the caller handles a refusal, as agents do."""
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Further variables of the chat template."""
    count_only: bool = False
    """Whether it is refused with the number of its prompt's tokens."""


class ChatModel(Protocol):
    """A language model that answers chats."""

    def answer(
        self,
        questions: Sequence[ChatRequest],
        sampling: Sampling,
        on_samples: OnSamples | None = None,
    ) -> list[list[Completion]]:
        """Returns completions [questions][n]; empty ones with stop reason "length" if a prompt is
        too long for the model. `on_samples` is not told of these, and of some twice if a call is
        repeated."""
        ...

    def check_marker(self, marker: str) -> None:
        """Raises `ModelError` if answers cannot be restricted to actions after this marker."""
        ...

    def release_cache(self) -> None:
        """Drops caches, before a while without requests."""
        ...

    def pop_usage(self) -> dict[str, int]:
        """Returns the usage since the last call, by name: `requests`, `prompt_tokens` (a prompt
        counts with every answer, as endpoints count it), `completion_tokens` and `too_long`, and,
        unless 0, the numbers of `cut`, `refused` and `empty` answers."""
        ...


class LocalChatModel:
    """A model behind an engine. It works on token ids, so that sampled tokens are never
    re-tokenised."""

    def __init__(
        self,
        model: ModelText,
        engine: Engine,
        day: datetime | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        """`day`: date for templates that ask for it; None: today.

        Raises `ModelError` if the model's reasoning cannot be separated from its answers, and for
        variables that its chat template does not read."""
        self._model = model
        self.engine = engine
        self._chat = Chat(model, day, chat_template_kwargs)
        self._prompts: dict[str, Prompt] = {}
        self._tokens: dict[str, tuple[int, ...]] = {}
        self._usage = _unused()

    @property
    def name(self) -> str:
        """The model's name."""
        return self._model.name

    @property
    def no_vision_reason(self) -> str | None:
        """Why the model can be shown no images; None: it can."""
        return self._model.no_vision_reason if self._model.vision is None else None

    @property
    def unknown_calls(self) -> bool:
        """Whether its chat template writes calls in a format of no known family."""
        return self._chat.template.unknown_calls

    def counted_separately(self) -> LocalChatModel:
        """Returns the same model with a usage count of its own, for another role."""
        return LocalChatModel(self._model, self.engine, self._chat.day, self._chat.options)

    def answer(
        self,
        questions: Sequence[ChatRequest],
        sampling: Sampling,
        on_samples: OnSamples | None = None,
    ) -> list[list[Completion]]:
        """Returns [questions][n]. Keeps each conversation's prompt until `release_cache`, so that
        the next can continue it.

        Raises `RequestsRefused` for refusable requests that the chat template cannot render, whose
        admitted actions `max_tokens` would cut, or that are too long for the engine; `ModelError`
        for other requests with one of the first two problems; and the engine's errors."""
        posed = self._posed(questions, sampling)
        prompts = [prompt for prompt, _ in posed]
        requests = [
            Request(prompt.ids, chat.seeds, choices, chat.conversation)
            for chat, (prompt, choices) in zip(questions, posed, strict=True)
        ]

        def generated(places: Sequence[int], limited: Sampling) -> list[list[Completion]]:
            try:
                return self.engine.generate([requests[i] for i in places], limited, on_samples)
            except PromptsTooLong as error:
                long = [places[i] for i in error.places]
                refusable = (i for i in long if questions[i].refusable)
                refused = dict.fromkeys(refusable, TooLong(error))
            if refused:
                raise RequestsRefused(refused)
            self._usage["too_long"] += len(long)
            rest = [i for i in places if i not in long]
            groups = dict(zip(rest, generated(rest, limited) if rest else (), strict=True))
            return [groups[i] if i in groups else _no_room(questions[i]) for i in places]

        groups = grouped_by_limit(questions, sampling, generated)
        # Only now: after a refusal the other requests are sent again.
        for question, prompt in zip(questions, prompts, strict=True):
            if question.conversation:
                self._prompts[question.conversation] = prompt
        for completion in (each for group in groups for each in group):
            self._usage["requests"] += 1
            self._usage["prompt_tokens"] += len(completion.prompt_ids)
            self._usage["completion_tokens"] += len(completion.token_ids)
            if completion.stop_reason == "length" and completion.token_ids:
                self._usage["cut"] = self._usage.get("cut", 0) + 1
        return [
            [self._read(completion, prompt, question) for completion in group]
            for question, prompt, group in zip(questions, prompts, groups, strict=True)
        ]

    def check_marker(self, marker: str) -> None:
        if self._marker_token(marker) is None:
            raise ModelError(
                f"decoding: choices needs the action marker {marker!r} to be one token of "
                f"{self._model.name}; use decoding: free"
            )
        if self._model.end_of_turn is None:
            raise ModelError(
                "decoding: choices needs a token that ends a turn, and neither the chat template "
                f"nor the configuration of {self._model.name} has one; set eos_token_id in its "
                "generation_config.json, or use decoding: free"
            )

    def release_cache(self) -> None:
        self._prompts = {}
        self.engine.release_cache()

    def pop_usage(self) -> dict[str, int]:
        taken, self._usage = self._usage, _unused()
        return taken

    def _posed(
        self, questions: Sequence[ChatRequest], sampling: Sampling
    ) -> list[tuple[Prompt, Choices | None]]:
        """Returns each request's prompt and the restriction of its answers."""
        posed: list[tuple[Prompt, Choices | None]] = []
        refused: dict[int, str] = {}
        for i, question in enumerate(questions):
            try:
                choices, prompt = self._choices(question.actions, sampling), self._prompt(question)
            except ModelError as error:
                if not question.refusable:
                    raise
                refused[i] = str(error)
                continue
            asked = min(question.max_tokens or 1, sampling.max_tokens)
            if question.count_only:
                refused[i] = PromptTokens(len(prompt.ids))
            elif question.refusable and (long := self._too_long(prompt, asked)):
                refused[i] = long
            posed.append((prompt, choices))
        if refused:
            raise RequestsRefused(refused)
        return posed

    def _too_long(self, prompt: Prompt, new: int) -> TooLong | None:
        # Only checked for refusable requests: most models bear somewhat more.
        context = self._model.context
        if context is None or len(prompt.ids) + new <= context:
            return None
        return TooLong(
            f"{self._model.name}: a prompt of {len(prompt.ids)} tokens plus {new} new ones exceed "
            f"its context of {context}; send fewer messages, or ask for fewer tokens"
        )

    def _prompt(self, question: ChatRequest) -> Prompt:
        previous = self._prompts.get(question.conversation)
        chat = (question.messages, question.tools, question.chat_template_kwargs)
        if question.after is None or previous is None:
            return self._chat.prompt(*chat)
        return self._chat.following(previous, question.after, *chat)

    def _read(self, completion: Completion, prompt: Prompt, question: ChatRequest) -> Completion:
        if prompt.unread:
            completion = replace(completion, unread=prompt.unread)
        if question.actions is not None:
            # The marker separates thought and action already.
            return completion
        return self._ended(self._chat.read(completion, prompt), question.stop)

    def _ended(self, completion: Completion, stop: Sequence[str]) -> Completion:
        """Returns an answer cut before the first stop string. Its tokens are kept up to the one
        that completes this string, as they were sampled."""
        start, ids = completion.answer_at, completion.token_ids
        place = stop_place(completion.text, start, stop)
        if place is None:
            return completion
        at, word = place
        kept = 1 + bisect_left(
            range(1, len(ids)), True, key=lambda n: word in self._model.decode(ids[:n])[start:]
        )
        return replace(
            completion,
            token_ids=ids[:kept],
            logprobs=completion.logprobs[:kept],
            allowed=completion.allowed[:kept],
            stop_reason="stop",
            text=completion.text[:at],
        )

    def _choices(self, actions: Actions | None, sampling: Sampling) -> Choices | None:
        """Raises `ModelError` if an action could be cut off, and so read as another."""
        if actions is None:
            return None
        marker = self._marker_token(actions.marker)
        assert marker is not None  # see check_marker
        assert self._model.end_of_turn is not None
        # An action ends the turn.
        end = (self._model.end_of_turn,)
        options = tuple(self._encoded(action) + end for action in actions.admitted)
        longest = max(range(len(options)), key=lambda i: len(options[i]))
        needed = actions.thought_tokens + 1 + len(options[longest])
        if needed > sampling.max_tokens:
            raise ModelError(
                f"policy.max_tokens: {sampling.max_tokens} would cut the action "
                f"{actions.admitted[longest]!r}: a thought of {actions.thought_tokens} tokens, the "
                f"marker, the action and the end of the turn take {needed}; raise it to that, or "
                "lower policy.thought_tokens"
            )
        return Choices(marker, options, actions.thought_tokens)

    def _marker_token(self, marker: str) -> int | None:
        """Returns the token of a marker that follows a space (which may be a token of its own);
        None: the marker is several tokens."""
        *space, token = self._encoded(marker)
        return None if self._model.decode(space).strip() else token

    def _encoded(self, word: str) -> tuple[int, ...]:
        """Returns the tokens of a marker or an action that follows a space."""
        if word not in self._tokens:
            self._tokens[word] = tuple(self._model.encode(f" {word}"))
        return self._tokens[word]


def _no_room(question: ChatRequest) -> list[Completion]:
    """Returns empty answers, for a prompt that is too long."""
    return [Completion.unsampled("", "length")] * len(question.seeds)


def stop_place(text: str, start: int, stop: Sequence[str]) -> tuple[int, str] | None:
    """Returns the offset of the first stop string from `start` on, and the string; None: there is
    none."""
    return min(((at, word) for word in stop if (at := text.find(word, start)) >= 0), default=None)


def grouped_by_limit(
    questions: Sequence[ChatRequest],
    sampling: Sampling,
    answered: Callable[[Sequence[int], Sampling], list[list[Completion]]],
) -> list[list[Completion]]:
    """Returns [questions][n], with one call of `answered` (on indices) for each token limit."""
    places: dict[int, list[int]] = {}
    for i, question in enumerate(questions):
        places.setdefault(_limit(question, sampling), []).append(i)
    groups: dict[int, list[Completion]] = {}
    for limit, members in places.items():
        limited = replace(sampling, max_tokens=limit)
        groups |= zip(members, answered(members, limited), strict=True)
    return [groups[i] for i in range(len(questions))]


def _limit(question: ChatRequest, sampling: Sampling) -> int:
    own = sampling.max_tokens if question.actions else question.max_tokens
    return min(own or sampling.max_tokens, sampling.max_tokens)


def _unused() -> dict[str, int]:
    return {"requests": 0, "prompt_tokens": 0, "completion_tokens": 0, "too_long": 0}
