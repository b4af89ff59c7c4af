"""Chats as token ids. What a model sampled stays as it was sampled."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import Any

from rlanything.engines.base import ModelError
from rlanything.engines.hf.damage import rendering
from rlanything.engines.hf.images import Sight
from rlanything.engines.hf.text import ModelText
from rlanything.records import Completion, Message, Messages
from rlanything.roles.reasoning import find_reasoning
from rlanything.roles.tools import (
    PROBE_TOOL,
    PROBE_TURNS,
    Tools,
    shows_tools,
    template_calls,
    template_tools,
    tools_in_words,
)
from rlanything.surrogates import whole_characters

# From the first backslash of a run on: a run is then read once, however long it is.
_SCORE_LIKE = re.compile(r"(?<!\\)\\+(?=boxed)")
# The one clock that templates have.
_CLOCK = re.compile(r"""strftime_now\s*\(\s*(["'])([^"']*)\1\s*\)""")


@dataclass(frozen=True, slots=True)
class Prompt:
    """A rendered chat that ends where the model is to answer."""

    ids: tuple[int, ...]
    text: str
    images: tuple[str, ...] = ()
    """The names of those in it, in their order."""


class Chat:
    """Renders messages with a model's chat template and tokenizer."""

    def __init__(self, model: ModelText, day: datetime | None = None) -> None:
        """`day`: what templates that ask for the date are told; None: today. Raises `ModelError`
        for a template or tokenizer that fails at the shortest chat, and where the model's reasoning
        cannot be told from its answers, or its template asks for the date in a way that cannot be
        answered."""
        self._model = model
        self.day = day or datetime.now()
        self._reasoning = find_reasoning(model)
        self._template = _dated(model, self.day)
        # Some templates mark turns with added tokens that their tokenizer does not call special.
        # One character is a letter or a sign of the language, and no mark of anything.
        added = (token.content for token in model.tokenizer.added_tokens_decoder.values())
        specials = sorted((word for word in added if len(word.strip()) > 1), key=len, reverse=True)
        self._special = re.compile("|".join(map(re.escape, specials))) if specials else None
        self._in_parts = model.sight is not None and self._shows_parts(model.sight)
        self.prompt((Message("user", "Hello."),))

    def read(self, completion: Completion, prompt: Prompt) -> Completion:
        """Returns the completion with the place where its answer begins."""
        opened = self._reasoning.opened_by(prompt.text)
        start = self._reasoning.answer_start(completion.text, opened)
        return replace(completion, answer_at=start) if start else completion

    def prompt(self, messages: Messages, tools: Tools = ()) -> Prompt:
        """Returns the prompt of a chat in which `tools` may be called. Raises `ModelError` for
        images that the model, or its template, does not show."""
        text, images = self._render(messages, tools), _images(messages)
        return Prompt(tuple(self._encode(text, images)), text, images)

    def following(
        self, previous: Prompt, completion: Completion, messages: Messages, tools: Tools = ()
    ) -> Prompt:
        """Returns the prompt after `completion` answered `previous`.

        Where the new chat continues the old one, the old tokens and the sampled ones are kept as
        they are and only what is new is tokenised. Where the template rewrites history (some drop
        earlier thoughts), the chat is tokenised afresh."""
        text, images = self._render(messages, tools), _images(messages)
        so_far, seen = previous.text + self._model.decode(completion.token_ids), previous.images
        # As text one image is like another.
        if not text.startswith(so_far) or images[: len(seen)] != seen:
            return Prompt(tuple(self._encode(text, images)), text, images)
        new = self._encode(text[len(so_far) :], images[len(seen) :])
        return Prompt((*previous.ids, *completion.token_ids, *new), text, images)

    def _encode(self, text: str, images: Sequence[str]) -> list[int]:
        """Returns the token ids of a part of a rendered chat with these images in it."""
        sight = self._model.sight
        if sight is None:
            return self._model.encode(text)
        first, *others = text.split(sight.token)
        if len(others) != len(images):
            raise ModelError(
                f"model {self._model.name!r}: its chat template shows {len(others)} of "
                f"{len(images)} images; give its folder the one that it was published with"
            )
        shown = (sight.picture(name).text + rest for name, rest in zip(images, others, strict=True))
        return sight.placed(self._model.encode(first + "".join(shown)), images)

    def _render(self, messages: Messages, tools: Tools) -> str:
        model = self._model
        if model.sight is None and any(message.images for message in messages):
            raise ModelError(
                f"model {model.name!r} cannot be shown images: {model.blind}; choose a model that "
                "sees, or have the domain show text"
            )
        of_tools = tools or any(message.calls or message.role == "tool" for message in messages)
        if of_tools and not self._shows_tools:
            messages, tools = tools_in_words(messages, tools), ()
        try:
            turns = [self._turn(message) for message in messages]
            offered = template_tools(tools, self._harmless)
        except RecursionError:
            raise ModelError(
                "a tool, or the arguments of a call, is nested too deeply; send a flatter one"
            ) from None
        return self._apply(turns, offered)

    def _turn(self, message: Message) -> dict[str, Any]:
        turn: dict[str, Any] = {"role": message.role, "content": self._harmless(message.content)}
        if self._in_parts:
            images = [{"type": "image"} for _ in message.images]
            turn["content"] = [{"type": "text", "text": turn["content"]}, *images]
        if message.calls:
            turn["tool_calls"] = template_calls(message.calls, self._harmless)
        return turn

    def _shows_parts(self, sight: Sight) -> bool:
        """Whether the template takes a message that is a list of texts and images."""
        words = "Is it so?"
        parts = [{"type": "text", "text": words}, {"type": "image"}]
        try:
            shown = self._apply([{"role": "user", "content": parts}])
        except ModelError:
            return False
        return shown.count(sight.token) == 1 and shown.count(words) == 1

    @cached_property
    def _shows_tools(self) -> bool:
        """Whether the template has a place for tools, for calls of them and for what these give."""
        try:
            return shows_tools(self._apply(PROBE_TURNS, template_tools([PROBE_TOOL], str)))
        except ModelError:
            return False

    def _apply(self, turns: list[dict[str, Any]], tools: list[dict[str, Any]] | None = None) -> str:
        given: Any = {"tools": tools} if tools else {}
        with rendering(self._model.name):
            text = self._model.tokenizer.apply_chat_template(
                turns,
                chat_template=self._template,
                tokenize=False,
                add_generation_prompt=True,
                **given,
            )
        return str(text)

    def _harmless(self, content: str) -> str:
        """Text that spells a special token must not become one: a turn cannot be forged."""
        content = whole_characters(content)
        if self._special is None:
            return content
        return self._special.sub(lambda match: _torn(match[0]), content)


def _images(messages: Messages) -> tuple[str, ...]:
    return tuple(name for message in messages for name in message.images)


def _torn(token: str) -> str:
    """Returns a special token's text with a blank behind its first visible character."""
    first = len(token) - len(token.lstrip()) + 1
    return f"{token[:first]} {token[first:]}"


def _dated(model: ModelText, day: datetime) -> str | None:
    """Returns the model's template with this day in place of its questions for the date; None: it
    asks for none. Raises `ModelError` for a question that is put together while it renders."""
    template = model.tokenizer.get_chat_template()
    dated = _CLOCK.sub(lambda match: json.dumps(day.strftime(match[2])), template)
    if re.search(r"strftime_now\s*\(", dated):
        raise ModelError(
            f"model {model.name!r}: its chat template asks for the date in a format of its own "
            "making, so that a run could not be resumed on another day; write the format into "
            'chat_template.jinja, as in strftime_now("%d %b %Y")'
        )
    return None if dated == template else dated


def without_scores(text: str) -> str:
    r"""Returns quoted text in which nothing looks like a score: `\boxed{1}` becomes `boxed{1}`."""
    return _SCORE_LIKE.sub("", text)
