"""Chats as token ids. Sampled tokens are never re-tokenised."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from rlanything.engines.base import ModelError
from rlanything.engines.hf.text import ModelText
from rlanything.records import Completion, Message, Messages, Step
from rlanything.roles.template import ChatTemplate, Prompt, find_reasoning
from rlanything.roles.tools import Tools

# Matches a whole run of backslashes, so that each run is read only once.
_SCORE_LIKE = re.compile(r"(?<!\\)\\+(?=boxed)")


class Chat:
    """Renders messages with a model's chat template and tokenizer."""

    def __init__(
        self,
        model: ModelText,
        day: datetime | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """`day`: date for templates that ask for it; None: today. `options`: variables of the
        template, `chat_template_kwargs`. Raises `ModelError` if template or tokenizer fail at the
        shortest chat, if the template ignores an option or computes its date format, and if the
        model's reasoning cannot be separated from its answers."""
        self._model = model
        self.day = day or datetime.now()
        self.options = dict(options or {})
        self._reasoning = find_reasoning(model)
        self.template = ChatTemplate(model, self._reasoning, self.day, self.options)
        self.prompt((Message("user", "Hello."),))

    def read(self, completion: Completion, prompt: Prompt) -> Completion:
        """Returns the completion with the offset where its answer begins."""
        opened = self._reasoning.opened_by(prompt.text)
        start = self._reasoning.answer_start(completion.text, opened)
        if (start, prompt.family) == (completion.answer_at, completion.call_family):
            return completion
        return replace(completion, answer_at=start, call_family=prompt.family)

    def prompt(
        self, messages: Messages, tools: Tools = (), options: Mapping[str, Any] | None = None
    ) -> Prompt:
        """Returns the prompt of a chat in which `tools` may be called; `options`: further variables
        of the template. Raises `ModelError` for images that the model or its template cannot show,
        and for a chat that the template refuses."""
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

        If the new chat continues the old one, old and sampled tokens are kept and only the rest is
        tokenised. If the template rewrites history (some drop earlier reasoning), the whole chat is
        tokenised again."""
        prompt = self._rendered(messages, tools, options)
        so_far, seen = previous.text + self._model.decode(completion.token_ids), previous.images
        # All images have the same text.
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
        if model.vision is None and images:
            raise ModelError(
                f"model {model.name!r} cannot be shown images: {model.no_vision_reason}; choose a "
                "vision model, or have the domain show text"
            )
        return replace(self.template.render(messages, tools, options), images=images)

    def _encode(self, text: str, images: Sequence[str]) -> list[int]:
        """Returns the token ids of a part of a rendered chat that contains these images."""
        spec = self._model.vision
        if spec is None:
            return self._model.encode(text)
        first, *others = text.split(spec.token)
        if len(others) != len(images):
            raise ModelError(
                f"model {self._model.name!r}: its chat template shows {len(others)} of "
                f"{len(images)} images; restore the template that the model was published with"
            )
        shown = (
            spec.image_tokens(name).text + rest for name, rest in zip(images, others, strict=True)
        )
        return spec.placed(self._model.encode(first + "".join(shown)), images)


def without_scores(text: str) -> str:
    r"""Returns quoted text without anything that looks like a score: `\boxed{1}` becomes
    `boxed{1}`."""
    return _SCORE_LIKE.sub("", text)


def with_latest_screenshots(messages: Messages, names: Sequence[str | None], most: int) -> Messages:
    """Returns a policy's chat with the latest screenshots of an episode, at most `most` (at least
    1); `names`: names of all of them in order, None where there was none."""
    return _with_images(messages, [name for name in names if name is not None][-most:])


def with_step_screenshots(messages: Messages, step: Step) -> Messages:
    """Returns a judge's chat with the screenshots before and after the step it is about."""
    return _with_images(
        messages, [name for name in (step.image, step.next_image) if name is not None]
    )


def _with_images(messages: Messages, names: Sequence[str]) -> Messages:
    return (*messages[:-1], replace(messages[-1], images=tuple(names)))
