"""rlanything: policy, judge and tasks improve one another (RLAnything, arXiv 2602.02488).

    import rlanything as rl

    trainer = rl.Trainer("tiny", run_dir="runs/mine")
    for iteration in trainer:
        print(iteration.number, iteration.metrics["rollouts/success"])

Names are imported when they are first used: `import rlanything` loads neither torch nor a domain.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rlanything.openmp import sleep_at_barriers
from rlanything.version import __version__

if TYPE_CHECKING:
    from rlanything.algorithm.feedback import FeedbackSettings
    from rlanything.algorithm.signals import task_signals
    from rlanything.config.recipe import Recipe, load_recipe
    from rlanything.domains.base import (
        Domain,
        Environment,
        InvalidTask,
        Observation,
        StepResult,
    )
    from rlanything.domains.text import TextDomain
    from rlanything.loop import Loop
    from rlanything.records import Step, Task, Trajectory
    from rlanything.roles.judges.base import FunctionJudge, StepJudge
    from rlanything.roles.judges.llm import LLMJudge
    from rlanything.runs.open import open_run
    from rlanything.runs.trainer import Trainer

sleep_at_barriers()

_HOMES = {
    "Domain": "domains.base",
    "Environment": "domains.base",
    "FeedbackSettings": "algorithm.feedback",
    "FunctionJudge": "roles.judges.base",
    "InvalidTask": "domains.base",
    "LLMJudge": "roles.judges.llm",
    "Loop": "loop",
    "Observation": "domains.base",
    "Recipe": "config.recipe",
    "Step": "records",
    "StepJudge": "roles.judges.base",
    "StepResult": "domains.base",
    "Task": "records",
    "TextDomain": "domains.text",
    "Trainer": "runs.trainer",
    "Trajectory": "records",
    "load_recipe": "config.recipe",
    "open_run": "runs.open",
    "task_signals": "algorithm.signals",
}
"""The module of each public name."""

__all__ = [
    "Domain",
    "Environment",
    "FeedbackSettings",
    "FunctionJudge",
    "InvalidTask",
    "LLMJudge",
    "Loop",
    "Observation",
    "Recipe",
    "Step",
    "StepJudge",
    "StepResult",
    "Task",
    "TextDomain",
    "Trainer",
    "Trajectory",
    "__version__",
    "load_recipe",
    "open_run",
    "task_signals",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'rlanything' has no attribute {name!r}")
    value = getattr(import_module(f"rlanything.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
