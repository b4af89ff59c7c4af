"""Marks around the reasoning of models before their answer."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reasoning:
    """The marks around the reasoning of a family of models."""

    begins: str
    ends: str
    call: str = ""
    """Regular expression of a call that ends the reasoning too."""

    def opened_by(self, prompt: str) -> bool:
        """Returns whether the template has opened the block that the model continues."""
        return prompt.rstrip().endswith(self.begins)

    def answer_start(self, text: str, opened: bool = False) -> int:
        """Returns where the answer begins after reasoning blocks at the start of a response; the
        length of the text if a block never ends.

        `opened`: the prompt ended with the first mark. If that is unknown (a template may be
        invisible), a closing mark without an opening one implies it."""
        begins, ends = self.begins, self.ends
        if self.call and (call := re.search(self.call, text)) and ends not in text[: call.start()]:
            return call.start()
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
_CALL = r"(?:<\|start\|>assistant(?:<\|channel\|>commentary)?|<\|channel\|>commentary|\A) to="
THINK = Reasoning("<think>", "</think>")
KNOWN = (
    THINK,
    Reasoning("[THINK]", "[/THINK]"),  # Magistral
    Reasoning("<seed:think>", "</seed:think>"),
    # gpt-oss writes in channels: all text before the final one is reasoning.
    Reasoning("<|channel|>", "final<|message|>", _CALL),
)
"""Known pairs of marks; a model has the pair that its template or tokenizer names."""
_MARKS = re.compile(
    r"</?think>|\[/?THINK\]|</?seed:think>"
    r"|<\|channel\|>(?:analysis|commentary|final)?<\|message\|>|<\|end\|>|<\|start\|>assistant"
)


def answer_start(text: str) -> int:
    """Returns where the answer begins in a response of a model with unknown marks."""
    begun = text.lstrip()
    return next((each for each in KNOWN if begun.startswith(each.begins)), THINK).answer_start(text)


def bare_thought(reasoning: str) -> str:
    """Returns the reasoning in a response before its answer, without the marks."""
    parts = _MARKS.split(reasoning)
    return "\n".join(part.strip("\n") for part in parts if part.strip())


def in_think_marks(thought: str, text: str) -> str:
    """Returns a message's text after its reasoning, which is put in `<think>` marks."""
    return f"{THINK.begins}\n{thought}\n{THINK.ends}\n\n{text}" if thought else text
