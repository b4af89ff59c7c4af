"""`rlanything bench learner`: shared beginnings against separate sequences, and against TRL."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from rlanything.bench import memory, trl
from rlanything.bench.arms import ROW_TOKENS, Arm, learner_arm, trl_arm
from rlanything.bench.experience import Tagged, episodes, recorded
from rlanything.config.recipe import Recipe
from rlanything.config.roles import TrainedRoleConfig
from rlanything.domains.registry import load_domain
from rlanything.engines.hf.model import LanguageModel
from rlanything.learning.learner import minibatches
from rlanything.learning.packing import pack
from rlanything.progress import Progress
from rlanything.records import Sample
from rlanything.runs.build import build_components
from rlanything.seeds import derive

QUICK_TASKS = 2
QUICK_ROW_TOKENS = 2048
REPEATS = 5
EPISODE_STEPS = (5, 10, 20, 40)
EPISODE_ROLLOUTS = 4
TRIAL_SHARE = 6
"""Row sizes are tried on every so manieth sample."""


@dataclass(frozen=True, slots=True)
class Row:
    """One minibatch, and what a step on it takes in each way."""

    name: str
    samples: int
    sample_tokens: int
    distinct_tokens: int
    """Nodes of the trie of all its samples."""
    computed_tokens: int
    row_tokens: dict[str, int]
    """The row size that was fastest, by arm."""
    seconds: dict[str, list[float]] = field(default_factory=dict)
    """By arm, one a round."""
    megabytes: dict[str, list[float]] = field(default_factory=dict)
    """By arm, at the peak of a step, one a round; none where it cannot be measured."""
    differences: dict[str, float] = field(default_factory=dict)
    """By arm, the relative difference of its gradient to that of `shared`."""

    def speedup(self, arm: str) -> float | None:
        """Median seconds of an arm over those of `shared`."""
        if arm not in self.seconds:
            return None
        return statistics.median(self.seconds[arm]) / statistics.median(self.seconds["shared"])


@dataclass(frozen=True, slots=True)
class Result:
    """All rows: policy and judge first, then episodes of growing length."""

    rows: tuple[Row, ...]
    repeats: int

    def to_json(self) -> dict[str, float | int | None]:
        """Tokens of policy and judge together."""
        policy, judge = real = self.rows[:2]
        ours = sum(statistics.median(row.seconds["shared"]) for row in real)
        has_trl = all("trl" in row.seconds for row in real)
        theirs = sum(statistics.median(row.seconds["trl"]) for row in real) if has_trl else None
        return {
            "sample_tokens": sum(row.sample_tokens for row in real),
            "distinct_tokens": sum(row.distinct_tokens for row in real),
            "computed_tokens": sum(row.computed_tokens for row in real),
            "speedup_policy": policy.speedup("padded"),
            "speedup_judge": judge.speedup("padded"),
            "speedup_trl": None if theirs is None else theirs / ours,
        }


def bench_learner(recipe: Recipe, quick: bool, progress: Progress) -> Result:
    """Records the first iteration of a recipe and measures steps on it.

    Raises `ModelError` or `DomainError` where the recipe cannot be set up, `BenchError` where no
    sample of an iteration trains."""
    if quick:
        loop = recipe.loop.model_copy(update={"tasks_per_iteration": QUICK_TASKS})
        recipe = recipe.model_copy(update={"loop": loop})
    domain = load_domain(recipe.domain.name, recipe.domain.options)
    cast = build_components(recipe, domain)
    if cast.judge is None:
        raise BenchError("this recipe's judge learns nothing: choose a model that is here")
    for role in (cast.policy, cast.judge):
        if role.model.sharing_problem is not None:
            raise BenchError(
                f"model {role.model.name!r} cannot share beginnings: {role.model.sharing_problem}. "
                "There is nothing to compare; choose a Qwen- or Llama-type model"
            )
    policy, judge = recorded(recipe, domain, cast, progress)
    seed = derive(recipe.seed, 1, "minibatches")
    cases: list[tuple[str, LanguageModel, TrainedRoleConfig, Sequence[Sample]]] = [
        ("policy", cast.policy.model, recipe.policy, _minibatch(policy, recipe.policy, seed)),
        ("judge", cast.judge.model, recipe.judge, _minibatch(judge, recipe.judge, seed)),
    ]
    if not quick:
        vocabulary = len(cast.policy.model.tokenizer)
        cases += [
            (
                f"{steps} steps",
                cast.policy.model,
                recipe.policy,
                episodes(steps, EPISODE_ROLLOUTS, vocabulary, seed),
            )
            for steps in EPISODE_STEPS
        ]
    repeats = 1 if quick else REPEATS
    arms = 3 if trl.available() else 2
    with progress.phase("steps", len(cases) * repeats * arms, "steps") as advance:
        rows = tuple(
            _measure(name, model, settings, samples, repeats, quick, advance)
            for name, model, settings, samples in cases
        )
    return Result(rows, repeats)


class BenchError(ValueError):
    """There is nothing to measure; the message is one line with the remedy."""


def _minibatch(samples: Tagged, settings: TrainedRoleConfig, seed: int) -> list[Sample]:
    if not samples:
        raise BenchError("no sample of the first iteration trains: try another seed, seed=1")
    return minibatches(samples, settings.updates_per_iteration, seed)[0]


def _measure(
    name: str,
    model: LanguageModel,
    settings: TrainedRoleConfig,
    samples: Sequence[Sample],
    repeats: int,
    quick: bool,
    advance: Callable[[int], None],
) -> Row:
    """Rounds of one step in every way; one more, not timed, to warm up and compare gradients."""
    build: dict[str, Callable[[int], Arm]] = {
        "padded": lambda tokens: learner_arm(model, settings, "padded", tokens)
    }
    if trl.available():
        build["trl"] = lambda tokens: trl_arm(model, settings, tokens)
    fastest = {
        arm: QUICK_ROW_TOKENS if quick else _fastest(make, samples[::TRIAL_SHARE])
        for arm, make in build.items()
    }
    arms = {"shared": learner_arm(model, settings, "shared", settings.max_pack_tokens)}
    arms |= {arm: make(fastest[arm]) for arm, make in build.items()}
    packs = pack(samples, settings.max_pack_tokens)
    row = Row(
        name=name,
        samples=len(samples),
        sample_tokens=sum(len(sample.completion.tokens) for sample in samples),
        distinct_tokens=sum(each.computed_tokens for each in pack(samples, 1 << 62)),
        computed_tokens=sum(each.computed_tokens for each in packs),
        row_tokens=fastest,
    )
    for arm, each in arms.items():
        # A few samples warm every kernel up; the whole minibatch is needed to compare gradients.
        few = samples[::TRIAL_SHARE]
        each.step(few if quick else samples)
        difference = each.gradient() - arms["shared"].gradient()
        row.differences[arm] = float(difference.norm() / arms["shared"].gradient().norm())
    for _ in range(repeats):
        for arm, each in arms.items():
            work = partial(_time, each, samples, row.seconds.setdefault(arm, []))
            if memory.measurable():
                row.megabytes.setdefault(arm, []).append(memory.peak_megabytes(work))
            else:
                work()
            advance(1)
    return row


def _fastest(make: Callable[[int], Arm], samples: Sequence[Sample]) -> int:
    """The row size that takes the least time, of two tries each."""
    seconds: dict[int, float] = {}
    for tokens in ROW_TOKENS:
        arm = make(tokens)
        rounds: list[float] = []
        for _ in range(2):
            _time(arm, samples, rounds)
        seconds[tokens] = min(rounds)
    return min(seconds, key=lambda tokens: seconds[tokens])


def _time(arm: Arm, samples: Sequence[Sample], seconds: list[float]) -> None:
    begun = time.perf_counter()
    arm.step(samples)
    seconds.append(time.perf_counter() - begun)
