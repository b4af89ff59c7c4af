"""Seconds of each phase: the FLOPs of its tokens divided by the rate of the device."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import torch

from rlanything.config.recipe import Recipe
from rlanything.config.roles import TrainedRoleConfig
from rlanything.openmp import cores
from rlanything_planning.architecture import Architecture, random_layer
from rlanything_planning.assumptions import Assumptions
from rlanything_planning.report import PlanError, PlanSection, Quantity, amount, brief
from rlanything_planning.workload import RoleWorkload, elsewhere

GPUS = {
    "a100-40gb": (19.5e12, 312e12, 40e9),
    "a100-80gb": (19.5e12, 312e12, 80e9),
    "h100": (67e12, 989e12, 80e9),
    "h200": (67e12, 989e12, 141e9),
    "l4": (30.3e12, 121e12, 24e9),
    "l40s": (91.6e12, 362e12, 48e9),
    "rtx-4090": (82.6e12, 165.2e12, 24e9),
}
"""Public data sheets: dense FLOP/s of the highest-power variant, in float32 (without
TensorFloat-32, torch's default) and in bfloat16; and bytes of memory."""
CPU = "cpu"
TOKENS, ROUNDS = 256, 9
GENERATING = {"acts": "rollouts", "scores": "judgements", "rewrites": "proposals"}
"""Phases in which roles generate, by the role's task."""
# Measured (benchmarks/plan.md).
CAVEAT = (
    "Seconds are rough: two iterations of the recipe tiny took 1.3 and 3.5 times their plan "
    "on a quiet CPU, and 5 to 9 times on a busy one; no plan's seconds were compared with a run on "
    "a GPU, or on several seats."
)


class Rate(NamedTuple):
    """Speed of a role's model in FLOP/s: for many tokens at once (prompts and updates), and for
    decoding token by token."""

    passes: float
    decoding: float
    source: str


Local: TypeAlias = Mapping[str, tuple[Architecture, Rate]]
"""Models and speeds of the roles that run locally."""


def memory_of(device: str) -> float:
    """Returns the bytes of one device; for `cpu`, of this machine. Raises `PlanError`."""
    if device not in (CPU, *GPUS):
        known = f"{CPU} (this machine) or {', '.join(GPUS)}"
        raise PlanError(f"device {device!r} is not known: use {known}")
    here = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    return here if device == CPU else GPUS[device][2]


def rate_of(device: str, model: Architecture, dtype: str, use: Assumptions, threads: int) -> Rate:
    """Returns this machine's measured rate, or a GPU's peak times the assumed utilisation."""
    if device == CPU:
        layer = model.flops(TOKENS, TOKENS, 0) / model.layers
        return measured_rate(model.shape, layer, dtype, threads)
    peak, decoding = GPUS[device][dtype == "bfloat16"], use.decoding_utilisation
    source = f"data sheet: {amount(peak, 'FLOP/s')} in {dtype}, "
    source += f"x utilisation {use.utilisation:g} (decoding {decoding:g})"
    return Rate(peak * use.utilisation, peak * decoding, source)


@cache
def measured_rate(shape: tuple[Any, ...], flops: float, dtype: str, threads: int) -> Rate:
    """Returns this machine's rate, timed on forward passes of one random layer of that shape."""
    torch.set_num_threads(threads or cores())
    decoder, ids = random_layer(*shape), torch.zeros(1, TOKENS, dtype=torch.long)
    # One thread's CPU time does not grow with the load of the machine.
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    times: list[float] = []
    with torch.inference_mode(), torch.autocast("cpu", enabled=dtype == "bfloat16"):
        for _ in range(2 + ROUNDS):
            times.append(clock())
            decoder(input_ids=ids, use_cache=False)
    # The first pass warms up.
    rate = flops / statistics.median(after - before for before, after in pairwise(times[1:]))
    how = f"measured here: a layer of its shape on {TOKENS} tokens, {torch.get_num_threads()}"
    return Rate(rate, rate, f"{how} thread(s), in {dtype}")


def generation(
    work: RoleWorkload, model: Architecture, rate: Rate
) -> Iterator[tuple[str, float, float, float]]:
    """Yields the parts of a role's generation: name, FLOPs, tokens, and FLOP/s."""
    known, new, context = work.prefilled_tokens, work.sampled_tokens, work.context_tokens
    yield "prefill", model.flops(known, context, 0), known, rate.passes
    yield "decoding", model.flops(new, context, new), new, rate.decoding
    if work.images and (per_image := image_flops(work, model)):
        tokens = work.shown * work.image_tokens
        yield "screenshots", work.shown * per_image, tokens, rate.passes


def image_flops(work: RoleWorkload, model: Architecture) -> float:
    """Returns the FLOPs of a screenshot; 0 for a model without a tower."""
    return 0.0 if model.vision is None else model.vision.flops(work.image_tokens)


def acting_workers(recipe: Recipe) -> int:
    """Returns the number of episodes that take a step at the same time."""
    env = recipe.environment
    return min(env.parallel_episodes, env.per_machine or max(1, env.workers))


def seconds_of_phases(
    recipe: Recipe, roles: Sequence[RoleWorkload], local: Local, assumed: Assumptions, seats: int
) -> tuple[dict[str, float], PlanSection]:
    """Returns the seconds of each phase on this many seats, and the calculation."""
    phases, lines = dict[str, float](), list[Quantity]()
    updates = [f"{name} update" for name in recipe.trained_roles]
    parts = {phase: list[Quantity]() for phase in (*GENERATING.values(), *updates)}
    several = sum(judge.by_model for judge in recipe.judges.values()) > 1

    def add(phase: str, part: str, seconds: float, how: str) -> None:
        whose = f"{work.name}, " if several and phase == GENERATING["scores"] else ""
        parts[phase].append(Quantity(f"{phase}: {whose}{part}", seconds, "s", how))

    def compute(
        phase: str, part: str, flops: float, tokens: float, rate: float, share: float
    ) -> None:
        how = f"{amount(flops, 'FLOP')} for {tokens:,.0f} tokens / {amount(rate, 'FLOP/s')}"
        how += f" x {share:.3g}, the most that one of {seats} seats does" if seats > 1 else ""
        add(phase, part, flops / rate * share, how)

    for work in roles:
        role, answers = work.role, work.answers
        phase = GENERATING[role.does]
        if work.name not in local:
            how = f"at {elsewhere(role) or 'another role'}, whose speed is not known"
            for unknown in (phase, *[f"{work.name} update"] * (work.learned is not None)):
                parts[unknown].append(Quantity(unknown, None, "s", how))
            continue
        model, rate = local[work.name]
        context = work.context_tokens
        lines.append(Quantity(f"{work.name}: rate", rate.passes, "FLOP/s", rate.source))
        for part, flops, tokens, speed in generation(work, model, rate):
            compute(phase, part, flops, tokens, speed, 1 / seats)
        per_image = image_flops(work, model)
        if role.does == "acts":
            seconds, acting = assumed.environment_seconds, acting_workers(recipe)
            how = f"{answers:,.0f} steps x {seconds:.3g} s / {acting} workers"
            add(phase, "environment", answers * seconds / acting, how)
        if role.does == "scores" and assumed.writes_tests:
            rollouts, seconds = recipe.loop.rollouts_per_task, assumed.test_seconds
            how = f"{answers:,.0f} tests x {rollouts} responses x {seconds:.3g} s"
            add(phase, "tests run", answers * rollouts * seconds, how)
        if (learned := work.learned) and isinstance(role, TrainedRoleConfig):
            # The optimizer's own FLOPs are not counted.
            phase, tokens = f"{work.name} update", learned.computed_tokens
            flops = tokens, context, learned.samples * work.answer_tokens
            most = learned.turns(seats) / max(1, learned.passes)
            compute(phase, "passes", model.flops(*flops, learns=True), tokens, rate.passes, most)
            again = {
                "old log-probs": role.old_logprobs == "recomputed",
                "layers again": role.gradient_checkpointing * role.epochs,
                "reference model": (role.reference_kl_weight > 0) * role.epochs,
            }
            for part, times in again.items():
                if part_of_passes := times / role.epochs:
                    forward = model.flops(*flops) * part_of_passes
                    compute(phase, part, forward, tokens * part_of_passes, rate.passes, most)
            if work.images and per_image:
                shown = learned.samples / role.epochs / work.samples * work.images
                times = (3 * role.epochs if role.train_vision else 1) + sum(again.values())
                times -= 0 if role.train_vision else again["layers again"]
                tokens = shown * work.image_tokens
                compute(phase, "screenshots", times * shown * per_image, tokens, rate.passes, most)
    for phase, own in parts.items():
        lines += own
        if values := [part.value for part in own if part.value is not None]:
            phases[phase] = sum(values)
            lines.append(Quantity(phase, sum(values), "s", " + ".join(map(brief, values))))
    total, count = sum(phases.values()), recipe.loop.iterations
    how = "the sum of its phases" + "; traffic between seats is apart" * (seats > 1)
    lines += [
        Quantity("one iteration", total, "s", how),
        Quantity("all iterations", total * count, "s", f"{count} x {brief(total)} s"),
    ]
    return phases, PlanSection("Seconds of one iteration", tuple(lines))
