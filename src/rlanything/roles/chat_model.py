"""Chat models: a role asks with a chat and gets answers, wherever the language model runs."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Protocol

from rlanything.domains.requests import RequestsRefused, TooLong
from rlanything.engines.base import (
    Choices,
    Engine,
    ModelError,
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
    """What answered the conversation's last question."""
    actions: Actions | None = None
    tools: Tools = ()
    """Functions that may be called."""
    stop: tuple[str, ...] = ()
    """The answer ends before the first of these."""
    max_tokens: int | None = None
    """A limit below that of the sampling; no admitted action is cut by it."""
    refusable: bool = False
    """Whether somebody awaits to hear that it cannot be asked, as agents do."""
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Further variables of the chat template."""


class ChatModel(Protocol):
    """A language model that answers chats."""

    def answer(
        self, questions: Sequence[ChatRequest], sampling: Sampling
    ) -> list[list[Completion]]:
        """Returns completions [questions][n]; empty ones, cut by length, where a prompt is too long
        for the model."""
        ...

    def check_marker(self, marker: str) -> None:
        """Raises `ModelError` where answers cannot be restricted to actions after this marker."""
        ...

    def release_cache(self) -> None:
        """Forgets what was remembered: nothing is asked for a while."""
        ...

    def pop_usage(self) -> dict[str, int]:
        """Returns what was asked since the last call, by name: `requests`, `prompt_tokens` (a
        prompt counts with every answer, as endpoints count it), `completion_tokens` and `too_long`
        among them; where there are any, `cut`, `refused` and `empty` answers."""
        ...


class LocalChatModel:
    """A model asked through an engine in token ids: what was sampled stays as it was sampled."""

    def __init__(
        self,
        model: ModelText,
        engine: Engine,
        day: datetime | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        """`day`: what templates that ask for the date are told; None: today.

        Raises `ModelError` where the model's reasoning cannot be told from its answers, and for
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
    def blind(self) -> str | None:
        """Why the model can be shown no images; None: it can."""
        return self._model.blind if self._model.sight is None else None

    def counted_separately(self) -> LocalChatModel:
        """Returns the same model for another role, which counts its own tokens."""
        return LocalChatModel(self._model, self.engine, self._chat.day, self._chat.options)

    def answer(
        self, questions: Sequence[ChatRequest], sampling: Sampling
    ) -> list[list[Completion]]:
        """Returns [questions][n]; remembers each conversation's prompt until `release_cache`, so
        that the next can continue it.

        Raises `RequestsRefused` for refusable questions that the chat template cannot render,
        whose admitted actions `max_tokens` would cut or that are too long for the engine;
        `ModelError` for others of the first two, and what the engine raises."""
        posed = self._posed(questions, sampling)
        prompts = [prompt for prompt, _ in posed]
        requests = [
            Request(prompt.ids, chat.seeds, choices, chat.conversation)
            for chat, (prompt, choices) in zip(questions, posed, strict=True)
        ]

        def generated(places: Sequence[int], limited: Sampling) -> list[list[Completion]]:
            try:
                return self.engine.generate([requests[i] for i in places], limited)
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
        # Not before: those that were not refused are asked again.
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
        """Returns what the engine is asked: prompts, and what their answers are restricted to."""
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
            if question.refusable and (long := self._too_long(prompt, asked)):
                refused[i] = long
            posed.append((prompt, choices))
        if refused:
            raise RequestsRefused(refused)
        return posed

    def _too_long(self, prompt: Prompt, new: int) -> TooLong | None:
        # Whoever cannot be refused is answered all the same: most models bear somewhat more.
        context = self._model.context
        if context is None or len(prompt.ids) + new <= context:
            return None
        return TooLong(
            f"{self._model.name}: a prompt of {len(prompt.ids)} tokens and {new} new ones are more "
            f"than its {context}; send fewer messages, or ask for fewer tokens"
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
            # Between its thought and its action it has a marker of its own.
            return completion
        return self._ended(self._chat.read(completion, prompt), question.stop)

    def _ended(self, completion: Completion, stop: Sequence[str]) -> Completion:
        """Returns an answer up to the first of some texts; what was sampled up to the token that
        ends this text is kept, as it was sampled."""
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
        """Raises `ModelError` where an action could be cut off, and so read as another."""
        if actions is None:
            return None
        marker = self._marker_token(actions.marker)
        assert marker is not None  # check_marker saw to it
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
        """Returns the token of a marker after a space, which may be one of its own; None where the
        marker is several."""
        *space, token = self._encoded(marker)
        return None if self._model.decode(space).strip() else token

    def _encoded(self, word: str) -> tuple[int, ...]:
        """Returns the tokens of a marker or an action, which follow a space."""
        if word not in self._tokens:
            self._tokens[word] = tuple(self._model.encode(f" {word}"))
        return self._tokens[word]


def _no_room(question: ChatRequest) -> list[Completion]:
    """Returns the answers to a prompt that is too long to be answered: there is nothing in them."""
    return [Completion.unsampled("", "length")] * len(question.seeds)


def stop_place(text: str, start: int, stop: Sequence[str]) -> tuple[int, str] | None:
    """Returns where the first of some texts begins, from `start` on, and which it is; None where
    there is none of them."""
    return min(((at, word) for word in stop if (at := text.find(word, start)) >= 0), default=None)


def grouped_by_limit(
    questions: Sequence[ChatRequest],
    sampling: Sampling,
    answered: Callable[[Sequence[int], Sampling], list[list[Completion]]],
) -> list[list[Completion]]:
    """Returns [questions][n]; the places of those with the same limit are `answered` together."""
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
