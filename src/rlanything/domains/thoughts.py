"""Marks around what models think before they answer."""

from __future__ import annotations

import re
from dataclasses import dataclass


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


THOUGHT_KEYS = ("reasoning_content", "reasoning", "thinking")
"""Keys for reasoning in messages, of templates and of APIs."""
THINK = Reasoning("<think>", "</think>")
KNOWN = (
    THINK,
    Reasoning("[THINK]", "[/THINK]"),  # Magistral
    Reasoning("<seed:think>", "</seed:think>"),
    # gpt-oss writes in channels: all that comes before the final one's text is its own affair.
    Reasoning("<|channel|>", "final<|message|>"),
)
"""Known pairs of marks; a model has the pair that its template or tokenizer names."""
_MARKS = re.compile(
    r"\n*(?:</?think>|\[/?THINK\]|</?seed:think>|<\|channel\|>(?:analysis|final)?<\|message\|>"
    r"|<\|end\|>|<\|start\|>assistant)\n*"
)


def answer_start(text: str) -> int:
    """Returns where the answer begins in a response of a model whose marks nobody knows."""
    begun = text.lstrip()
    return next((each for each in KNOWN if begun.startswith(each.begins)), THINK).answer_start(text)


def bare_thought(reasoning: str) -> str:
    """Returns the thoughts in the part of a response before its answer, without the marks around
    them."""
    return "\n".join(part for part in _MARKS.split(reasoning) if part.strip()).strip("\n")


def in_think_marks(thought: str, text: str) -> str:
    """Returns a message's text after its thought, which stands in `<think>` marks."""
    return f"{THINK.begins}\n{thought}\n{THINK.ends}\n\n{text}" if thought else text
