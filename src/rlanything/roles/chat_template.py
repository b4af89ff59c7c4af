"""Chats as token ids. What a model sampled stays as it was sampled."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from rlanything.engines.base import ModelError
from rlanything.engines.hf.text import ModelText
from rlanything.records import Completion, Message, Messages
from rlanything.roles.reasoning import find_reasoning
from rlanything.roles.template import ChatTemplate
from rlanything.roles.tools import Tools

# From the first backslash of a run on: a run is then read once, however long it is.
_SCORE_LIKE = re.compile(r"(?<!\\)\\+(?=boxed)")


@dataclass(frozen=True, slots=True)
class Prompt:
    """A rendered chat that ends where the model is to answer."""

    ids: tuple[int, ...]
    text: str
    images: tuple[str, ...] = ()
    """The names of those in it, in their order."""
    unread: tuple[str, ...] = ()
    """Fields of the request that it does not show."""


class Chat:
    """Renders messages with a model's chat template and tokenizer."""

    def __init__(
        self,
        model: ModelText,
        day: datetime | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """`day`: what templates that ask for the date are told; None: today. `options`: variables
        of the template, `chat_template_kwargs`. Raises `ModelError` for a template or tokenizer
        that fails at the shortest chat or does not read an option, and where the model's reasoning
        cannot be told from its answers, or its template asks for the date in a way that cannot be
        answered."""
        self._model = model
        self.day = day or datetime.now()
        self.options = dict(options or {})
        self._reasoning = find_reasoning(model)
        self._template = ChatTemplate(model, self._reasoning, self.day, self.options)
        self.prompt((Message("user", "Hello."),))

    def read(self, completion: Completion, prompt: Prompt) -> Completion:
        """Returns the completion with the place where its answer begins."""
        opened = self._reasoning.opened_by(prompt.text)
        start = self._reasoning.answer_start(completion.text, opened)
        return replace(completion, answer_at=start) if start else completion

    def prompt(
        self, messages: Messages, tools: Tools = (), options: Mapping[str, Any] | None = None
    ) -> Prompt:
        """Returns the prompt of a chat in which `tools` may be called; `options`: further variables
        of the template. Raises `ModelError` for images that the model, or its template, does not
        show, and for what the template refuses."""
        prompt = self._rendered(messages, tools, options)
        return replace(prompt, ids=tuple(self._encode(prompt.text, prompt.images)))

    def following(
        self,
        previous: Prompt,
        completion: Completion,
        messages: Messages,
        tools: Tools = (),
        options: Mapping[str, Any] | None = None,
    ) -> Prompt:
        """Returns the prompt after `completion` answered `previous`.

        Where the new chat continues the old one, the old tokens and the sampled ones are kept as
        they are and only what is new is tokenised. Where the template rewrites history (some drop
        earlier thoughts), the chat is tokenised afresh."""
        prompt = self._rendered(messages, tools, options)
        so_far, seen = previous.text + self._model.decode(completion.token_ids), previous.images
        # As text one image is like another.
        if not prompt.text.startswith(so_far) or prompt.images[: len(seen)] != seen:
            return replace(prompt, ids=tuple(self._encode(prompt.text, prompt.images)))
        new = self._encode(prompt.text[len(so_far) :], prompt.images[len(seen) :])
        return replace(prompt, ids=(*previous.ids, *completion.token_ids, *new))

    def _rendered(
        self, messages: Messages, tools: Tools, options: Mapping[str, Any] | None
    ) -> Prompt:
        """Returns a prompt without its tokens."""
        model = self._model
        images = tuple(name for message in messages for name in message.images)
        if model.sight is None and images:
            raise ModelError(
                f"model {model.name!r} cannot be shown images: {model.blind}; choose a model that "
                "sees, or have the domain show text"
            )
        rendered = self._template.render(messages, tools, options)
        return Prompt((), rendered.text, images, rendered.unread)

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


def without_scores(text: str) -> str:
    r"""Returns quoted text in which nothing looks like a score: `\boxed{1}` becomes `boxed{1}`."""
    return _SCORE_LIKE.sub("", text)
