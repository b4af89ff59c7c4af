"""A model's reasoning marks, read from its tokenizer and chat template."""

from __future__ import annotations

from typing import Any

from rlanything.domains.thoughts import KNOWN, THINK, Reasoning
from rlanything.engines.base import ModelError
from rlanything.engines.hf.damage import rendering
from rlanything.engines.hf.text import ModelText

THOUGHT_KEYS = ("reasoning_content", "reasoning", "thinking")
"""Templates' keys for an assistant's reasoning."""


def find_reasoning(model: ModelText) -> Reasoning:
    """Returns the marks around a model's reasoning; `<think>` if it has none of its own.

    Raises `ModelError` if its reasoning could not be separated from its answer."""
    tokenizer = model.tokenizer
    added = (token.content for token in tokenizer.added_tokens_decoder.values())
    known = "\n".join((tokenizer.get_chat_template(), *added))
    marks = [pair for pair in KNOWN if pair.begins in known or pair.ends in known]
    if len(marks) > 1 or (not marks and _shows_reasoning(tokenizer)):
        names = " and ".join(f"{pair.begins} ... {pair.ends}" for pair in marks) or "none known"
        raise ModelError(
            f"model {model.name!r}: its reasoning cannot be separated from its answers (marks: "
            f"{names}); give it a chat template with <think> and </think>, or choose another model"
        )
    return marks[0] if marks else THINK


def _shows_reasoning(tokenizer: Any) -> bool:
    """Whether the template renders an assistant's reasoning."""
    thought = "What can it be?"
    for key in THOUGHT_KEYS:
        turns = [
            {"role": "user", "content": "Is it so?"},
            {"role": "assistant", "content": "It is.", key: thought},
        ]
        try:
            with rendering(str(tokenizer.name_or_path)):
                if thought in str(tokenizer.apply_chat_template(turns, tokenize=False)):
                    return True
        except ModelError:
            continue  # the template refuses this chat
    return False
