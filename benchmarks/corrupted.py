"""The game guess whose judge is shown partly corrupted training episodes: a domain for the study
`make corruption`. Outcomes, oracle, policy and all held-out episodes stay true."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from guess import NUMBERS, Guess  # examples/guess.py, which the recipe guess.yaml brings

from rlanything.records import Completion, Messages, Step, Task
from rlanything.seeds import derive


class CorruptedGuess(Guess):
    """`share`: the share of training steps that the judge is shown corrupted, each in one of three
    ways; `seed`: another choice of steps."""

    def __init__(self, share: float = 0.0, seed: int = 0, **options: Any) -> None:
        super().__init__(**options)
        self._share, self._seed = share, seed

    def judge_prompt(self, task: Task, steps: Sequence[Step]) -> Messages:
        return super().judge_prompt(task, self.shown(task, steps))

    def shown(self, task: Task, steps: Sequence[Step]) -> list[Step]:
        """Returns the steps as the judge sees them. The same episode is always shown alike."""
        if not task.id.startswith("train"):
            return list(steps)
        shown: list[Step] = []
        for i, step in enumerate(steps):
            said = (task.id, *(each.response for each in steps[: i + 1]))
            if self._drawn("share", *said) < self._share:
                kind = int(self._drawn("kind", *said) * len(CORRUPTIONS))
                step = [*CORRUPTIONS.values()][kind](step, self._drawn("value", *said))
            shown.append(step)
        return shown

    def _drawn(self, *of: str) -> float:
        return derive(self._seed, *of) / 2**63


def contradicted(step: Step, drawn: float) -> Step:
    """Returns the step with the opposite hint; a win becomes a hint."""
    others = {"Higher.": "Lower.", "Lower.": "Higher."}
    hint = others.get(step.next_observation, "Higher." if drawn < 0.5 else "Lower.")
    return replace(step, next_observation=hint)


def swapped(step: Step, drawn: float) -> Step:
    """Returns the step with another number as its action."""
    others = [number for number in NUMBERS if number != step.action]
    action = others[int(drawn * len(others))]
    thought, marker, _ = step.response.rpartition(Guess.action_marker)
    return _saying(replace(step, action=action), f"{thought}{marker} {action}")


def pasted(step: Step, drawn: float) -> Step:
    """Returns the step with a judge's score in its thought, which the judge's prompt would
    otherwise take out."""
    thought, marker, action = step.response.rpartition(Guess.action_marker)
    score = "\\boxed{1}" if drawn < 0.5 else "\\boxed{-1}"
    return _saying(step, f"{thought}{score} {marker}{action}")


def _saying(step: Step, response: str) -> Step:
    return replace(step, completion=Completion.unsampled(response, step.completion.stop_reason))


CORRUPTIONS: Mapping[str, Callable[[Step, float], Step]] = {
    "observation contradicted": contradicted,
    "action swapped": swapped,
    "score pasted": pasted,
}
