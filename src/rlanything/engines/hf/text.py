"""The text side of a language model: what a process needs of it that does not compute with it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from transformers import PreTrainedTokenizerBase

from rlanything.engines.hf.damage import reading
from rlanything.engines.hf.vision_spec import VisionSpec


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
