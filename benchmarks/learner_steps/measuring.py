"""Measures steps with shared beginnings against separate sequences, and against TRL's."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from learner_steps import memory, trl_step
from learner_steps.contenders import ROW_TOKENS, Contender, learner_contender, trl_contender
from learner_steps.experience import Tagged, episodes, recorded
from rlanything.config.cluster import ClusterConfig
from rlanything.config.recipe import Recipe
from rlanything.config.roles import TrainedRoleConfig
from rlanything.domains.registry import load_domain
from rlanything.engines.hf.model import LanguageModel
from rlanything.learning.packing import pack
from rlanything.learning.shares import minibatches
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
"""Row sizes are tried on one sample in so many."""


@dataclass(frozen=True, slots=True)
class Row:
    """One minibatch, and what a step on it takes for each contender."""

    name: str
    samples: int
    sample_tokens: int
    distinct_tokens: int
    """Nodes of the trie of all its samples."""
    computed_tokens: int
    row_tokens: dict[str, int]
    """By contender, the row size that was fastest."""
    seconds: dict[str, list[float]] = field(default_factory=dict)
    """By contender, one a round."""
    megabytes: dict[str, list[float]] = field(default_factory=dict)
    """By contender, at the peak of a step, one a round; empty where it cannot be measured."""
    differences: dict[str, float] = field(default_factory=dict)
    """By contender, the relative difference of its gradient to that of `shared`."""

    def speedup(self, contender: str) -> float | None:
        """Returns its median seconds over those of `shared`; None: it did not take part."""
        if contender not in self.seconds:
            return None
        return statistics.median(self.seconds[contender]) / statistics.median(
            self.seconds["shared"]
        )


@dataclass(frozen=True, slots=True)
class Result:
    """All rows: policy and judge first, then episodes of growing length."""

    rows: tuple[Row, ...]
    repeats: int

    def to_json(self) -> dict[str, float | int | None]:
        """Returns tokens of policy and judge together, and speed-ups; null: TRL did not run."""
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


def measure(recipe: Recipe, quick: bool, progress: Progress) -> Result:
    """Records the first iteration of a recipe and measures steps on it.

    Raises `ModelError` or `DomainError` where the recipe cannot be set up, `BenchError` where no
    sample of an iteration trains."""
    if quick:
        loop = recipe.loop.model_copy(update={"tasks_per_iteration": QUICK_TASKS})
        recipe = recipe.model_copy(update={"loop": loop})
    recipe = recipe.model_copy(update={"cluster": ClusterConfig()})
    domain = load_domain(recipe.domain.name, recipe.domain.options)
    components = build_components(recipe, domain)
    if "judge" not in components.trained_models:
        raise BenchError("this recipe's judge learns nothing: choose a model that is here")
    models: dict[str, LanguageModel] = {}
    for name, role in components.trained_models.items():
        assert isinstance(role.model, LanguageModel)
        models[name] = role.model
        if role.model.sharing_problem is not None:
            raise BenchError(
                f"model {role.model.name!r} cannot share beginnings: {role.model.sharing_problem}. "
                "There is nothing to compare; choose a Qwen- or Llama-type model"
            )
    policy, judge = recorded(recipe, domain, components, progress)
    seed = derive(recipe.seed, 1, "minibatches")
    cases: list[tuple[str, LanguageModel, TrainedRoleConfig, Sequence[Sample]]] = [
        ("policy", models["policy"], recipe.policy, _minibatch(policy, recipe.policy, seed)),
        (
            "judge",
            models["judge"],
            recipe.judges["judge"],
            _minibatch(judge, recipe.judges["judge"], seed),
        ),
    ]
    if not quick:
        vocabulary = len(models["policy"].tokenizer)
        cases += [
            (
                f"{steps} steps",
                models["policy"],
                recipe.policy,
                episodes(steps, EPISODE_ROLLOUTS, vocabulary, seed),
            )
            for steps in EPISODE_STEPS
        ]
    repeats = 1 if quick else REPEATS
    contenders = 3 if trl_step.available() else 2
    with progress.phase("steps", len(cases) * repeats * contenders, "steps") as advance:
        rows = tuple(
            _measured(name, model, settings, samples, repeats, quick, advance)
            for name, model, settings, samples in cases
        )
    return Result(rows, repeats)


class BenchError(ValueError):
    """There is nothing to measure; the message is one line with the remedy."""


def _minibatch(samples: Tagged, settings: TrainedRoleConfig, seed: int) -> list[Sample]:
    if not samples:
        raise BenchError("no sample of the first iteration trains: try another seed, seed=1")
    return minibatches(samples, settings.minibatches, seed)[0]


def _measured(
    name: str,
    model: LanguageModel,
    settings: TrainedRoleConfig,
    samples: Sequence[Sample],
    repeats: int,
    quick: bool,
    advance: Callable[[int], None],
) -> Row:
    """Runs rounds of one step a contender; one more, not timed, warms up and compares gradients."""
    build: dict[str, Callable[[int], Contender]] = {
        "padded": lambda tokens: learner_contender(model, settings, "padded", tokens)
    }
    if trl_step.available():
        build["trl"] = lambda tokens: trl_contender(model, settings, tokens)
    fastest = {
        way: QUICK_ROW_TOKENS if quick else _fastest(make, samples[::TRIAL_SHARE])
        for way, make in build.items()
    }
    contenders = {"shared": learner_contender(model, settings, "shared", settings.max_pack_tokens)}
    contenders |= {way: make(fastest[way]) for way, make in build.items()}
    packs = pack(samples, settings.max_pack_tokens)
    row = Row(
        name=name,
        samples=len(samples),
        sample_tokens=sum(len(sample.completion.tokens) for sample in samples),
        distinct_tokens=sum(trie.computed_tokens for trie in pack(samples, 1 << 62)),
        computed_tokens=sum(packed.computed_tokens for packed in packs),
        row_tokens=fastest,
    )
    for way, contender in contenders.items():
        # A few samples warm every kernel up; the whole minibatch is needed to compare gradients.
        few = samples[::TRIAL_SHARE]
        contender.step(few if quick else samples)
        shared = contenders["shared"].gradient()
        row.differences[way] = float((contender.gradient() - shared).norm() / shared.norm())
    for _ in range(repeats):
        for way, contender in contenders.items():
            work = partial(_time, contender, samples, row.seconds.setdefault(way, []))
            if memory.measurable():
                row.megabytes.setdefault(way, []).append(memory.peak_megabytes(work))
            else:
                work()
            advance(1)
    return row


def _fastest(make: Callable[[int], Contender], samples: Sequence[Sample]) -> int:
    """Returns the row size that takes the least time, of two tries each."""
    seconds: dict[int, float] = {}
    for tokens in ROW_TOKENS:
        contender = make(tokens)
        rounds: list[float] = []
        for _ in range(2):
            _time(contender, samples, rounds)
        seconds[tokens] = min(rounds)
    return min(seconds, key=lambda tokens: seconds[tokens])


def _time(contender: Contender, samples: Sequence[Sample], seconds: list[float]) -> None:
    begun = time.perf_counter()
    contender.step(samples)
    seconds.append(time.perf_counter() - begun)
