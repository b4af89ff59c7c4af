"""The screenshots that policy and judge look at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rlanything.records import Messages, Step


def before_acting(messages: Messages, names: Sequence[str | None], most: int) -> Messages:
    """Returns a policy's chat with the latest `most` of an episode's screenshots, the present one
    last; `names`: of all of them, None where there was none; `most`: at least 1."""
    return _showing(messages, [name for name in names if name is not None][-most:])


def before_judging(messages: Messages, step: Step) -> Messages:
    """Returns a judge's chat with the screenshots before and after the step it is about."""
    return _showing(messages, [name for name in (step.image, step.next_image) if name is not None])


def _showing(messages: Messages, names: Sequence[str]) -> Messages:
    return (*messages[:-1], replace(messages[-1], images=tuple(names)))
