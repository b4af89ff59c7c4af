"""The text side of a language model, which processes need that do not compute with it."""

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
    """A model's name, its tokenizer, and the tokens that end its responses."""

    name: str
    tokenizer: PreTrainedTokenizerBase
    end_of_turn: int | None
    """The token that ends the model's turn; None: it has none."""
    stop_ids: tuple[int, ...]
    """All tokens that end a response."""
    vision: VisionSpec | None = None
    """Its image handling; None: it cannot be shown images."""
    no_vision_reason: str = ""
    """Reason why it cannot be shown images."""
    context: int | None = None
    """Context length in tokens, prompt and answer; None: unknown."""

    def encode(self, text: str) -> list[int]:
        """Returns token ids of a rendered chat, which already contains all special tokens."""
        with self._tokenizing():
            return self.tokenizer.encode(text, add_special_tokens=False)

    def decode(self, ids: Sequence[int]) -> str:
        """Returns the text of token ids, including special tokens."""
        with self._tokenizing():
            text = self.tokenizer.decode(list(ids), skip_special_tokens=False)
        return text if isinstance(text, str) else "".join(text)

    def _tokenizing(self) -> AbstractContextManager[None]:
        doing = f"model {self.name!r} cannot read or write text with its tokenizer"
        return reading(doing, "Fix tokenizer.json in its folder, or use another model.")


def end_of_turn(tokenizer: PreTrainedTokenizerBase, stop_ids: Collection[int]) -> int | None:
    """Returns the token that ends the model's turn in its chat template; None: unknown.

    It is the first of `stop_ids` after an answer, in a chat that ends there or continues: some
    models, such as GLM-4, end their turn with the token that opens the user's. If there is none, it
    is the first special token there (missing in the configuration), or else the tokenizer's end of
    sequence. Raises `SlowTemplate`."""
    after = [
        token
        for in_parts in (False, True)
        for more in ([], ["user"])
        for token in _after_answer(tokenizer, more, in_parts)
    ]
    special = {i for i, token in tokenizer.added_tokens_decoder.items() if token.special}
    for known in (stop_ids, special):
        if (end := next((token for token in after if token in known), None)) is not None:
            return end
    own = tokenizer.eos_token_id
    return own if isinstance(own, int) else min(stop_ids, default=None)


def _after_answer(tokenizer: PreTrainedTokenizerBase, more: list[str], in_parts: bool) -> list[int]:
    """Returns the tokens after an answer in a chat with `more` turns; empty if the template cannot
    render it or omits the answer. `in_parts`: messages are lists of parts, the only format of some
    vision models."""
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
    except SlowTemplate:  # it would be slow for the next chat too
        raise
    except ModelError:
        return []  # the template refuses this chat
    if in_parts and "'type'" in text:  # a template for texts prints the list itself
        return []
    _, shown, rest = text.rpartition(_ANSWER)
    # Stop before the next turn's text, which may contain other tokens.
    return tokenizer.encode(rest.partition(_QUESTION)[0], add_special_tokens=False) if shown else []
