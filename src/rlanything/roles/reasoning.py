"""Marks around what a model thinks before it answers, and the place where its answer begins."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from rlanything.engines.base import ModelError
from rlanything.engines.hf.damage import rendering
from rlanything.engines.hf.text import ModelText


@dataclass(frozen=True, slots=True)
class Reasoning:
    """The marks between which a family of models reasons."""

    begins: str
    ends: str

    def opened_by(self, prompt: str) -> bool:
        """Whether the template has begun the block that the model goes on with."""
        return prompt.rstrip().endswith(self.begins)

    def answer_start(self, text: str, opened: bool = False) -> int:
        """Returns where the answer begins after blocks of reasoning at the start of a response; the
        length of the text where a block never ends.

        `opened`: the prompt ended with the first mark. Where that is unknown (a template may be out
        of sight), a last mark without a first tells as much."""
        begins, ends = self.begins, self.ends
        reasoning, closed, _ = text.partition(ends)
        written_before = begins if opened or (closed and begins not in reasoning) else ""
        whole = written_before + text
        block = rf"\s*(?:{re.escape(begins)}.*?{re.escape(ends)}\s*)+"
        blocks = re.compile(block, re.DOTALL).match(whole)
        start = blocks.end() if blocks else 0
        if whole[start:].lstrip().startswith(begins):
            start = len(whole)
        return max(start - len(written_before), 0)


THINK = Reasoning("<think>", "</think>")
KNOWN = (
    THINK,
    Reasoning("[THINK]", "[/THINK]"),  # Magistral
    Reasoning("<seed:think>", "</seed:think>"),
    # gpt-oss writes in channels: all that comes before the final one's text is its own affair.
    Reasoning("<|channel|>", "final<|message|>"),
)
"""Of these, the one whose marks the model's template or tokenizer has."""


def find_reasoning(model: ModelText) -> Reasoning:
    """Returns the marks between which a model reasons; `<think>` where it has none of its own.

    Raises `ModelError` where its reasoning could not be told from its answer."""
    tokenizer = model.tokenizer
    added = (token.content for token in tokenizer.added_tokens_decoder.values())
    known = "\n".join((tokenizer.get_chat_template(), *added))
    marks = [each for each in KNOWN if each.begins in known or each.ends in known]
    if len(marks) > 1 or (not marks and _shows_reasoning(tokenizer)):
        names = (
            " and ".join(f"{each.begins} ... {each.ends}" for each in marks) or "none known here"
        )
        raise ModelError(
            f"model {model.name!r}: its reasoning cannot be told from its answers (marks of it: "
            f"{names}); give it a chat template with <think> and </think>, or choose another model"
        )
    return marks[0] if marks else THINK


def _shows_reasoning(tokenizer: Any) -> bool:
    """Whether the template has a place for what the assistant thought."""
    thought = "What can it be?"
    turns = [
        {"role": "user", "content": "Is it so?"},
        {"role": "assistant", "content": "It is.", "reasoning_content": thought},
    ]
    try:
        with rendering(str(tokenizer.name_or_path)):
            return thought in str(tokenizer.apply_chat_template(turns, tokenize=False))
    except ModelError:
        # A template is a program of its own: this chat may be none of those that it takes.
        return False
