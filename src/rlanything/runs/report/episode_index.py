"""Episodes for the page's trajectory browser: an index, and chunks that are decompressed when
opened."""

from __future__ import annotations

import json
import zlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlanything.algorithm.agreement import weighed
from rlanything.algorithm.feedback import (
    PolicyReward,
    Unreadable,
    combined_score,
    integrated_feedback,
)
from rlanything.engines.images import IMAGE_NAME
from rlanything.runs.paths import IMAGES, run_path
from rlanything.runs.report.history import Episode
from rlanything.runs.report.pointing import Units, pointed_at
from rlanything.runs.report.sampling import Shown
from rlanything.runs.store.store import Store
from rlanything.strict_json import finite_json

IMAGE_BYTES = 96_000
"""Largest screenshot that is shown, in bytes; larger ones are only named."""


@dataclass(slots=True)
class Pages:
    """The texts and images of a page besides its facts; shared by all runs on it."""

    image_budget: int
    """Bytes of screenshots that may still be added."""
    chunks: list[bytes] = field(default_factory=list)
    """Chunks of zlib-compressed JSON."""
    images: dict[str, bytes] = field(default_factory=dict)
    """PNG images by name."""

    def add(self, content: Any) -> int:
        """Compresses JSON data and returns the number of its chunk."""
        text = json.dumps(finite_json(content), ensure_ascii=False, separators=(",", ":"))
        # Half a surrogate pair, which a model may write, cannot be shown on a page.
        self.chunks.append(zlib.compress(text.encode("utf-8", "replace"), 6))
        return len(self.chunks) - 1


@dataclass(frozen=True, slots=True)
class Rewards:
    """The settings that the policy's R_i depends on."""

    weight: float
    """lambda of Eq. 1."""
    kind: PolicyReward
    unreadable: Unreadable = "missing"
    judges: Mapping[str, float] = field(default_factory=dict)
    """Weight of each judge; default 1."""
    lambdas: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    """lambda by iteration and judge, if it is adaptive."""

    def of(self, episode: Episode, scores: Mapping[str, Sequence[int]], measured: bool) -> float:
        """Returns R_i of a step with these scores, by judge; `measured`: all rollouts of its task
        have a reward; otherwise outcomes are compared."""
        if self.kind == "outcome":
            known = episode.reward if measured else None
            return float(episode.outcome) if known is None else known
        outcome = episode.outcome if self.kind == "integrated" else 0
        weight, weights = self.weight, {name: self.judges.get(name, 1.0) for name in scores}
        if lambdas := self.lambdas.get(episode.iteration):
            weight, weights = weighed(lambdas, weights)
        heard = [scores.get(name, ()) for name in weights]
        mean = combined_score(heard, [*weights.values()], self.unreadable)
        return float(integrated_feedback(outcome, mean, weight))


def index_episodes(
    store: Store,
    directory: Path,
    shown: Sequence[Shown],
    rewards: Rewards,
    pages: Pages,
    units: Units,
) -> dict[str, Any]:
    """Adds a chunk for each shown rollout group. Returns the tasks, each once, and a row for each
    episode; columns as in `columns`."""
    groups: dict[tuple[int, str], list[Shown]] = defaultdict(list)
    for pick in shown:
        groups[pick.episode.iteration, pick.episode.task].append(pick)
    tasks = list(dict.fromkeys(task for _, task in groups))
    numbers = {task: i for i, task in enumerate(tasks)}
    rows: list[list[Any]] = []
    for (iteration, task), members in groups.items():
        shared = _shared_judgements(store, iteration, task)
        measured = not store.query(
            "SELECT 1 FROM trajectories WHERE iteration = ? AND task = ? AND reward IS NULL",
            iteration,
            task,
        )
        with store.understanding():
            read = [_episode(store, pick.episode, rewards, measured, shared) for pick in members]
        world = task.partition("/")[0] if len(units) > 1 else next(iter(units))
        for step in (step for episode in read for step in episode["steps"]):
            action = step["action"] if step["valid"] else None
            image = _known_name(step["image"])
            step["points"] = pointed_at(action, directory, image, units.get(world))
        chunk = pages.add(read)
        for place, pick in enumerate(members):
            e = pick.episode
            attempt = e.id.removeprefix(f"{iteration}/{task}/")
            where = (chunk, place, iteration, numbers[task], attempt)
            split = sum(step["split"] for step in read[place]["steps"])
            counts = (e.outcome, e.reward, e.steps, e.judged, e.differs, split)
            rows.append([*where, *counts, pick.reason])
    _add_images(store, directory, [pick.episode for pick in shown], pages)
    known = {
        task: {"slot": slot, "instruction": instruction, "kind": kind}
        for task, slot, instruction, kind in store.query(
            "SELECT id, slot, instruction, kind FROM tasks"
        )
        if task in numbers
    }
    unknown = {"slot": "", "instruction": "", "kind": ""}
    columns = ("chunk", "place", "iteration", "task", "attempt", "outcome", "reward", "steps")
    return {
        "tasks": [{"id": task, **known.get(task, unknown)} for task in tasks],
        "columns": [*columns, "judged", "differs", "split", "reason"],
        "rows": rows,
    }


def _episode(
    store: Store, episode: Episode, rewards: Rewards, measured: bool, shared: list[list[str]]
) -> dict[str, Any]:
    observations, responses, judgements = store.texts(episode.number)
    if shared and len(responses) == 1 and not any(text for row in judgements for text in row):
        judgements = shared
    scored: Mapping[int, list[tuple[str, int, float | None]]] = defaultdict(list)
    for step, judge, score, advantage in store.query(
        "SELECT step, role, score, advantage FROM judgements WHERE trajectory = ?"
        " ORDER BY step, judgement",
        episode.number,
    ):
        scored[step].append((judge, score, advantage))
    steps, acting = list[dict[str, Any]](), store.acting
    for i, role, action, valid, label, advantage, image in store.query(
        "SELECT step, role, action, valid, label, advantage, image FROM steps"
        " WHERE trajectory = ? ORDER BY step",
        episode.number,
    ):
        said = judgements[i] if i < len(judgements) else []
        by_judge: defaultdict[str, list[int]] = defaultdict(list)
        for judge, score, _ in scored[i]:
            by_judge[judge].append(score)
        own = role == acting
        feedback = rewards.of(episode, by_judge, measured) if own else None
        sums = [sum(scores) for scores in by_judge.values()]
        steps.append(
            {
                "said": responses[i],
                "by": "" if own else role,
                "action": action,
                "valid": bool(valid),
                "label": label,
                "image": image,
                "feedback": _short(feedback),
                "advantage": _short(advantage),
                "split": min(sums, default=0) < 0 < max(sums, default=0),
                "judgements": [
                    [text, score, _short(earned), judge]
                    for text, (judge, score, earned) in zip(said, scored[i], strict=False)
                ],
            }
        )
    return {"observations": observations, "steps": steps}


def _known_name(image: str | None) -> str | None:
    return image if image is not None and IMAGE_NAME.fullmatch(image) else None


def _shared_judgements(store: Store, iteration: int, task: str) -> list[list[str]]:
    """Returns the judgements of the group's first episode if the task has one step, else nothing:
    tests that all programs of a task share are stored with the first program only."""
    rows = store.query(
        "SELECT number FROM transcripts JOIN trajectories ON number = trajectory"
        " WHERE iteration = ? AND task = ? ORDER BY number LIMIT 1",
        iteration,
        task,
    )
    judgements = store.texts(rows[0][0])[2] if rows else []
    return judgements if len(judgements) == 1 else []


def _add_images(store: Store, directory: Path, episodes: Sequence[Episode], pages: Pages) -> None:
    """Adds screenshots, newest episodes first, within the budget."""
    for episode in reversed(episodes):
        for (name,) in store.query(
            "SELECT image FROM steps WHERE trajectory = ? AND image IS NOT NULL ORDER BY step",
            episode.number,
        ):
            if name in pages.images or _known_name(str(name)) is None:
                continue
            path = run_path(directory, IMAGES, name)
            if not path.is_file():
                continue
            size = path.stat().st_size
            if size <= min(IMAGE_BYTES, pages.image_budget):
                pages.images[name] = path.read_bytes()
                pages.image_budget -= size


def _short(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
