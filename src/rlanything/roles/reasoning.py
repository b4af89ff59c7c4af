"""The marks between which a model reasons, as its tokenizer and chat template have them."""

from __future__ import annotations

from typing import Any

from rlanything.domains.thoughts import KNOWN, THINK, Reasoning
from rlanything.engines.base import ModelError
from rlanything.engines.hf.damage import rendering
from rlanything.engines.hf.text import ModelText

THOUGHT_KEYS = ("reasoning_content", "reasoning", "thinking")
"""Names by which templates know an assistant's thoughts."""


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
            # A template is a program of its own: this chat may be none of those that it takes.
            continue
    return False
