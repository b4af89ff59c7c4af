"""Chats as token ids. What a model sampled stays as it was sampled."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rlanything.engines.hf.model import LanguageModel
from rlanything.records import Completion, Messages
from rlanything.surrogates import whole_characters

# From the first backslash of a run on: a run is then read once, however long it is.
_SCORE_LIKE = re.compile(r"(?<!\\)\\+(?=boxed)")


@dataclass(frozen=True, slots=True)
class Prompt:
    """A rendered chat that ends where the model is to answer."""

    ids: tuple[int, ...]
    text: str

    @property
    def opens_reasoning(self) -> bool:
        """Whether the template has begun the `<think>` block that the model goes on with."""
        return self.text.rstrip().endswith("<think>")


class Chat:
    """Renders messages with a model's chat template and tokenizer."""

    def __init__(self, model: LanguageModel) -> None:
        self._model = model
        # Some templates mark turns with added tokens that their tokenizer does not call special.
        added = (token.content for token in model.tokenizer.added_tokens_decoder.values())
        specials = sorted((token for token in added if token.strip()), key=len, reverse=True)
        self._special = re.compile("|".join(map(re.escape, specials))) if specials else None

    def prompt(self, messages: Messages) -> Prompt:
        text = self._render(messages)
        return Prompt(tuple(self._model.encode(text)), text)

    def following(self, previous: Prompt, completion: Completion, messages: Messages) -> Prompt:
        """Returns the prompt after `completion` answered `previous`.

        Where the new chat continues the old one, the old tokens and the sampled ones are kept as
        they are and only what is new is tokenised. Where the template rewrites history (some drop
        earlier thoughts), the chat is tokenised afresh."""
        text = self._render(messages)
        so_far = previous.text + self._model.decode(completion.token_ids)
        if not text.startswith(so_far):
            return Prompt(tuple(self._model.encode(text)), text)
        new = self._model.encode(text[len(so_far) :])
        return Prompt((*previous.ids, *completion.token_ids, *new), text)

    def _render(self, messages: Messages) -> str:
        turns = [
            {"role": message.role, "content": self._harmless(message.content)}
            for message in messages
        ]
        text = self._model.tokenizer.apply_chat_template(
            turns, tokenize=False, add_generation_prompt=True
        )
        return str(text)

    def _harmless(self, content: str) -> str:
        """Text that spells a special token must not become one: a turn cannot be forged."""
        content = whole_characters(content)
        if self._special is None:
            return content
        return self._special.sub(lambda found: f"{found[0][0]} {found[0][1:]}", content)


def without_scores(text: str) -> str:
    r"""Returns quoted text in which nothing looks like a score: `\boxed{1}` becomes `boxed{1}`."""
    return _SCORE_LIKE.sub("", text)
