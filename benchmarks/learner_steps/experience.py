"""The samples that learners are measured on: of a real iteration, and of made-up episodes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from rlanything.algorithm.curriculum import Pool
from rlanything.config.recipe import Recipe
from rlanything.domains.base import Domain
from rlanything.experience import Experience
from rlanything.loop import Loop
from rlanything.progress import Progress
from rlanything.records import Completion, Sample
from rlanything.rollout.workers import EnvironmentPool
from rlanything.runs.build import RunComponents
from rlanything.seeds import derive

Tagged = list[tuple[str, Sample]]
"""Samples with the id of their task, as learners take them."""


class _Recorder:
    """A learner that only keeps the samples it is given."""

    def __init__(self) -> None:
        self.samples: Tagged = []

    def update(
        self,
        samples: Sequence[tuple[str, Sample]],
        seed: int,
        on_samples: Callable[[int], None] | None = None,
    ) -> dict[str, float]:
        self.samples = list(samples)
        return {}


def recorded(
    recipe: Recipe, domain: Domain, components: RunComponents, progress: Progress
) -> tuple[Tagged, Tagged]:
    """Plays and judges the first iteration of a recipe. Returns the samples of policy and judge."""
    policy, judge = _Recorder(), _Recorder()
    roots = domain.tasks("train", recipe.loop.tasks, derive(recipe.seed, "roots"))
    environment = recipe.environment
    with EnvironmentPool(
        recipe.domain.name, recipe.domain.options, environment.workers, environment.timeout_seconds
    ) as environments:
        pool = Pool(roots, recipe.curriculum.alpha_low, recipe.curriculum.alpha_high)
        Loop(
            recipe=recipe,
            domain=domain,
            pool=pool,
            experience=Experience(recipe, pool, components.train_policy, environments, progress),
            judges=components.judges,
            adapter=components.adapter,
            learners={"policy": policy, "judge": judge},
            engines=components.engines,
            progress=progress,
        ).iterate(1)
    return policy.samples, judge.samples


OPENING, OBSERVATION, RESPONSE = 150, 25, 9
"""Tokens, about those of the quickstart."""


def episodes(steps: int, rollouts: int, vocabulary: int, seed: int) -> list[Sample]:
    """Returns the policy's samples of a rollout group of made-up episodes, one a step.

    Tokens are random; what counts is how they overlap: rollouts share their opening, and a step's
    prompt is the one before it with its response and what was seen then."""
    rng = np.random.default_rng(seed)

    def some(count: int) -> tuple[int, ...]:
        return tuple(rng.integers(0, vocabulary, count).tolist())

    opening = some(OPENING)
    samples: list[Sample] = []
    for rollout in range(rollouts):
        prompt = opening
        for step in range(steps):
            response = some(RESPONSE)
            samples.append(
                Sample(f"{rollout}/{step}", _completion(prompt, response, vocabulary), rng.normal())
            )
            prompt = prompt + response + some(OBSERVATION)
    return samples


def _completion(prompt: tuple[int, ...], response: tuple[int, ...], vocabulary: int) -> Completion:
    count = len(response)
    logprobs = (-math.log(vocabulary),) * count
    return Completion(prompt, response, logprobs, ((),) * count, "length", "")
