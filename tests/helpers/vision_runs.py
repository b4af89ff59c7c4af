"""Runs whose policy and judge look at screens of a few colours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from safetensors.torch import load_file

from rlanything.progress import Progress
from rlanything.roles.chat_model import ChatRequest, LocalChatModel
from rlanything.runs.trainer import Trainer

QUIET = Progress(Console(quiet=True))
EVALUATED = (
    "evaluation.episodes=2",
    "evaluation.judged_episodes=2",
    "evaluation.splits=[in_domain]",
)


def role(model: Path, **more: Any) -> dict[str, Any]:
    return {"model": str(model), "max_tokens": 6, "learning_rate": 1e-3, "kl_weight": 0.1, **more}


def recipe(policy: Path, judge: Path) -> dict[str, Any]:
    return {
        "name": "seeing",
        "threads": 1,
        "domain": {"name": "helpers.patterns:Patterns"},
        "policy": role(policy),
        "judge": role(judge, samples_per_step=2),
        "loop": {
            **{"iterations": 2, "tasks": 3, "tasks_per_iteration": 3},
            **{"rollouts_per_task": 4, "max_steps": 2},
        },
        "environment": {"workers": 0},
        "evaluation": {"episodes": 0},
        "adapter": {"model": "policy", "max_tokens": 4, "tries": 1},
    }


def train(run: Path, source: dict[str, Any], *changes: str) -> list[Any]:
    changes = (f"run_dir={run}", *changes)
    return list(Trainer(source, overrides=changes, allow_code=True, progress=QUIET))


def weights(run: Path, iteration: int, name: str) -> dict[str, Any]:
    return load_file(run / f"checkpoints/iter-{iteration:05d}/{name}/model.safetensors")


@contextmanager
def asked_of_judges(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, ...]]]:
    """The names of the images in each question that judges answer meanwhile."""
    shown: list[tuple[str, ...]] = []
    answer = LocalChatModel.answer

    def answering(model: LocalChatModel, requests: Sequence[ChatRequest], *rest: Any) -> Any:
        shown.extend(
            tuple(name for message in request.messages for name in message.images)
            for request in requests
        )
        return answer(model, requests, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(LocalChatModel, "answer", answering)
        yield shown
