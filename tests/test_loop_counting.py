"""What the curriculum decides by where rollouts could not be played, or were lost by a fault."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from rich.console import Console

from rlanything.algorithm.curriculum import Candidate, Pool
from rlanything.config.recipe import load_recipe
from rlanything.domains.base import Episode, EpisodeError, Observation, StepResult
from rlanything.domains.text import TextRollouts
from rlanything.experience import Experience
from rlanything.loop import IterationResult, Loop
from rlanything.progress import Progress
from rlanything.records import Completion, Sample, Task
from rlanything.roles.adapter import Proposal, RewriteRequest
from rlanything.roles.judges.panel import JudgePanel
from rlanything.rollout.workers import EnvironmentPool
from rlanything.runs.metrics.iteration import rollouts
from rlanything.runs.results import IterationRecord


class Fated(TextRollouts):
    """Task data says how each rollout of a task ends, in their order."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def environment(self) -> FatedEnvironment:
        return FatedEnvironment(self)


class FatedEnvironment:
    def __init__(self, domain: Fated) -> None:
        self._domain = domain

    def reset(self, task: Task) -> Observation:
        self._id = task.id
        number = self._domain.counts[task.id] = self._domain.counts.get(task.id, -1) + 1
        self._fate = task.data["fates"][number]
        if self._fate == "unplayable":
            raise EpisodeError(task.id, "the machine is full")
        return Observation("?")

    def step(self, response: str) -> StepResult:
        if self._fate in ("crash", "masked"):
            # Its replay would have another fate, so it says itself who is to blame.
            raise EpisodeError(self._id, "the server is gone", lost=self._fate == "crash")
        return StepResult(Observation("!"), response, True, 1 if self._fate == "won" else -1)


class Mute:
    """Policy, learner and adapter in one: none of them matters here."""

    asked: Sequence[RewriteRequest] = ()

    def respond(self, episodes: Sequence[Episode], seeds: Sequence[int]) -> list[Completion]:
        return [Completion.unsampled("> go") for _ in seeds]

    def release_cache(self) -> None: ...

    def update(
        self,
        samples: Sequence[tuple[str, Sample]],
        seed: int,
        on_samples: Callable[[int], None] | None = None,
    ) -> dict[str, float]:
        return {}

    def propose(
        self, requests: Sequence[RewriteRequest], iteration: int, seed: int
    ) -> list[Proposal]:
        self.asked = requests
        return [Proposal(request.slot, None, (), ()) for request in requests]


def task(name: str, **fates: int) -> Task:
    return Task(name, "", data={"fates": [f for f, count in fates.items() for _ in range(count)]})


def iterated(
    root: Task, candidate: Task | None = None, parent: float = 1.0
) -> tuple[Pool, IterationResult, Mute]:
    data: dict[str, Any] = {"name": "t", "domain": {"name": "guess"}, "policy": {"model": "m"}}
    data["loop"] = {"tasks": 1, "tasks_per_iteration": 1, "rollouts_per_task": 8}
    pool, mute, domain = Pool([root], 0.2, 0.8), Mute(), Fated()
    if candidate is not None:
        pool.record(root.id, root.id, parent)
        pool.propose(root.id, Candidate(candidate, "harder", parent, (), 0))
    with EnvironmentPool(domain, {}, 0, 10.0) as environments:
        recipe, quiet = load_recipe(data), Progress(Console(quiet=True))
        loop = Loop(
            recipe=recipe,
            domain=domain,
            pool=pool,
            experience=Experience(recipe, pool, mute, environments, quiet),
            judges=JudgePanel({}),
            adapter=mute,
            learners={"policy": mute},
            engines=(),
            progress=quiet,
        )
        return pool, loop.iterate(1), mute


@pytest.mark.parametrize(
    ("fates", "accuracy", "accepted"),
    [
        ({"won": 4, "lost": 4}, 0.5, True),
        ({"won": 3, "lost": 2, "masked": 3}, 0.375, True),  # at most 6 of 8
        ({"won": 3, "lost": 1, "masked": 4}, 0.375, True),  # at most 7 of 8
        ({"won": 4, "masked": 4}, 0.5, False),  # perhaps 8 of 8: no harder than the root
        ({"won": 1, "lost": 1, "masked": 6}, 0.125, False),  # perhaps too hard
        ({"won": 1, "lost": 1, "unplayable": 6}, 0.125, False),
        ({"won": 1, "lost": 1, "crash": 6}, 0.125, False),
        ({"unplayable": 8}, 0.0, False),
        ({"masked": 8}, 0.0, False),
        ({"crash": 8}, 0.0, False),
    ],
)
def test_a_candidate_is_only_accepted_whichever_way_its_missing_rollouts_would_have_ended(
    fates: dict[str, int], accuracy: float, accepted: bool
) -> None:
    pool, result, _ = iterated(task("root", won=8), task("new", **fates))
    assert bool(result.accepted) is accepted
    event = pool.slot("root").history[-1]
    assert (event.kind, event.candidate_accuracy) == (
        "accepted" if accepted else "rejected",
        accuracy,
    )


def test_what_is_missing_makes_a_candidate_be_rejected_with_that_reason() -> None:
    pool, _, _ = iterated(task("root", won=8), task("new", won=4, masked=4))
    assert pool.slot("root").history[-1].reason == "rollouts are missing, and it depends on them"


@pytest.mark.parametrize("missing", ["unplayable", "masked"])
def test_a_task_does_not_move_on_the_strength_of_episodes_that_are_missing(missing: str) -> None:
    pool, result, adapter = iterated(task("root", won=4, **{missing: 4}))
    assert result.groups[0].accuracy == pool.slot("root").accuracy == 1.0
    assert not adapter.asked
    assert not iterated(task("root", lost=4, **{missing: 4}))[2].asked
    _, _, adapter = iterated(task("root", won=8))
    assert [request.direction for request in adapter.asked] == ["harder"]
    # With the missing ones won, or lost, they are still out of the window.
    _, _, adapter = iterated(task("root", won=7, **{missing: 1}))
    assert [request.direction for request in adapter.asked] == ["harder"]
    _, _, adapter = iterated(task("root", lost=7, **{missing: 1}))
    assert [request.direction for request in adapter.asked] == ["easier"]


def test_a_single_rollout_that_is_left_of_several_trains_nothing() -> None:
    _, result, _ = iterated(task("root", won=1, masked=7))
    assert len(result.groups) == 1
    assert not result.trainable_groups
    _, result, _ = iterated(task("root", won=1, lost=1, masked=6))
    assert result.trainable_groups == result.groups
    assert [len(group.judged) for group in result.groups] == [2]


def test_a_candidate_accepted_just_now_is_not_asked_about() -> None:
    pool, result, adapter = iterated(task("root", won=8), task("new", won=7, lost=1))
    assert pool.slot("root").active.id == "new"
    assert result.accepted == ["root"]
    assert not adapter.asked
    # Sampled as the active task, it is.
    _, _, adapter = iterated(task("new", won=7, lost=1))
    assert [request.direction for request in adapter.asked] == ["harder"]


def test_rollouts_show_bounds_only_where_some_could_not_be_played() -> None:
    def metrics(**fates: int) -> dict[str, float | None]:
        pool, result, _ = iterated(task("root", **fates))
        return dict(rollouts(IterationRecord(result=result, pool=pool)))

    plain = metrics(won=4, lost=4)
    assert set(plain) == {
        f"rollouts/{name}" for name in ("episodes", "steps", "success", "invalid_share", "failures")
    }
    bounded = metrics(won=4, lost=1, unplayable=2, crash=1)
    assert bounded["rollouts/success"] == 4 / 6
    assert bounded["rollouts/success_if_lost"] == 0.5
    assert bounded["rollouts/success_if_won"] == 0.75
    assert (bounded["rollouts/failures"], bounded["rollouts/crashes"]) == (2, 1)
    assert "rollouts/masked" not in bounded
    masked = metrics(won=4, lost=1, unplayable=1, masked=1, crash=1)
    assert masked == {**bounded, "rollouts/masked": 1}
