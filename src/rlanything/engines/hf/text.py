"""The text side of a language model: what a process needs of it that does not compute with it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedTokenizerBase

from rlanything.engines.base import ModelError
from rlanything.engines.hf.damage import SlowTemplate, reading, rendering
from rlanything.engines.hf.vision_spec import VisionSpec

_QUESTION, _ANSWER = "Is it so?", "It is."


@dataclass
class ModelText:
    """A model's name, its tokenizer, and the tokens that end what it says."""

    name: str
    tokenizer: PreTrainedTokenizerBase
    end_of_turn: int | None
    """The token that ends the model's turn; None: it has none."""
    stop_ids: tuple[int, ...]
    """All tokens that end a response."""
    vision: VisionSpec | None = None
    """How it takes in images; None: it is shown none."""
    no_vision_reason: str = ""
    """Why it is shown none."""
    context: int | None = None
    """Tokens of a prompt and its answer that it was made for; None: it does not say."""

    def encode(self, text: str) -> list[int]:
        """Returns token ids of a rendered chat; special tokens are written out in it, none are
        added."""
        with self._tokenizing():
            return self.tokenizer.encode(text, add_special_tokens=False)

    def decode(self, ids: Sequence[int]) -> str:
        """Returns the text of token ids, special tokens written out."""
        with self._tokenizing():
            text = self.tokenizer.decode(list(ids), skip_special_tokens=False)
        return text if isinstance(text, str) else "".join(text)

    def _tokenizing(self) -> AbstractContextManager[None]:
        doing = f"model {self.name!r} cannot read or write text with its tokenizer"
        return reading(doing, "Mend tokenizer.json in its folder, or take another model.")


def end_of_turn(tokenizer: PreTrainedTokenizerBase, stop_ids: Collection[int]) -> int | None:
    """Returns the token with which the model ends its turn; None: nothing says which.

    It is the first of `stop_ids` behind an answer in a chat that ends there, or that goes on: some
    models, such as GLM-4, end their turn with the token that opens the user's. Where the template
    has none of them there, it is the special token that it has: the configuration forgot it. A
    template that marks no end leaves the tokenizer's own end of sequence. Raises `SlowTemplate`."""
    behind = [
        _behind_answer(tokenizer, more, in_parts)
        for in_parts in (False, True)
        for more in ([], ["user"])
    ]
    for ids in behind:
        for token in ids:
            if token in stop_ids:
                return token
    special = {i for i, token in tokenizer.added_tokens_decoder.items() if token.special}
    for ids in behind:
        for token in ids:
            if token in special:
                return token
    own = tokenizer.eos_token_id
    return own if isinstance(own, int) else min(stop_ids, default=None)


def _behind_answer(
    tokenizer: PreTrainedTokenizerBase, more: list[str], in_parts: bool
) -> list[int]:
    """Returns the tokens behind an answer in a chat to which `more` turns are added; none where the
    template cannot render it, or shows no answers. `in_parts`: messages are lists of parts, which
    alone some models that see take."""
    if tokenizer.chat_template is None:
        return []
    roles = ["user", "assistant", *more]
    turns: list[Any] = [
        {"role": role, "content": _ANSWER if role == "assistant" else _QUESTION} for role in roles
    ]
    if in_parts:
        for turn in turns:
            turn["content"] = [{"type": "text", "text": turn["content"]}]
    try:
        with rendering(str(tokenizer.name_or_path)):
            text = str(tokenizer.apply_chat_template(turns, tokenize=False))
    except SlowTemplate:  # a template that loops for this chat loops for the next one
        raise
    except ModelError:
        # A template is a program of its own: this chat may be none of those that it takes.
        return []
    if in_parts and "'type'" in text:  # one that takes texts alone writes the list itself
        return []
    _, shown, rest = text.rpartition(_ANSWER)
    # Up to what the next turn says, which may hold tokens of other meanings.
    return tokenizer.encode(rest.partition(_QUESTION)[0], add_special_tokens=False) if shown else []
