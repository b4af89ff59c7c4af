"""Seconds of each phase: the operations that its tokens need, over one rate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rlanything.config.recipe import Recipe
from rlanything.config.roles import TrainedRoleConfig
from rlanything.planning.architecture import Architecture
from rlanything.planning.assumptions import Assumed
from rlanything.planning.devices import Rate
from rlanything.planning.quantities import PlanSection, Quantity, amount, brief
from rlanything.planning.training import TrainingWorkload
from rlanything.planning.workload import RoleWorkload, task_count

PHASES = {
    "policy": ("rollouts", "policy update"),
    "judge": ("judgements", "judge update"),
    "adapter": ("proposals", "never"),
}
"""By role: the phase in which it generates, and the one in which it learns."""
CAVEAT = (
    "Seconds are rough: the two iterations of recipes/tiny.yaml took 1.3 and 3.5 times their plan "
    "on a quiet CPU, and 5 to 9 times on a busy one; no plan was compared with a run on a GPU."
)
"""As measured (benchmarks/plan.md)."""


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A role's model in this process, and the speed of its device."""

    work: RoleWorkload
    model: Architecture
    rate: Rate


def seconds_of_phases(
    recipe: Recipe,
    work: Sequence[RoleWorkload],
    local: Mapping[str, LocalModel],
    assumed: Assumed,
) -> tuple[dict[str, float], PlanSection]:
    """Returns the seconds of each phase in this process, and the arithmetic."""
    phases: dict[str, float] = {}
    lines: list[Quantity] = []

    def add(phase: str, parts: Sequence[Quantity]) -> None:
        values = [part.value or 0.0 for part in parts]
        phases[phase] = sum(values)
        how = " + ".join(map(brief, values))
        lines.extend((*parts, Quantity(phase, phases[phase], "s", how)))

    for role in work:
        phase = PHASES[role.name][0]
        if role.name in local:
            add(phase, [*_generating(local[role.name], phase), *_host(role.name, recipe, assumed)])
        else:
            how = "at an endpoint, whose speed is not known"
            lines.append(Quantity(phase, None, "s", how))
    for name, model in local.items():
        if model.work.learned is not None:
            add(PHASES[name][1], _updating(model, model.work.learned, PHASES[name][1]))
    total, count = sum(phases.values()), recipe.loop.iterations
    how = "the sum of its phases; more devices add memory, not speed"
    lines += [
        Quantity("one iteration", total, "s", how),
        Quantity("all iterations", total * count, "s", f"{count} x {brief(total)} s"),
        Quantity("evaluation, checkpoints, loading", None, "s", "not counted"),
    ]
    return phases, PlanSection("Seconds of one iteration", tuple(lines))


def _generating(local: LocalModel, phase: str) -> list[Quantity]:
    work, model, rate = local.work, local.model, local.rate
    prefill = model.forward_flops(work.prefilled_tokens, work.context_tokens, 0)
    decode = model.forward_flops(work.sampled_tokens, work.context_tokens, work.sampled_tokens)
    return [
        _computed(f"{phase}: prefill", prefill, rate.passes, work.prefilled_tokens),
        _computed(f"{phase}: decoding", decode, rate.decoding, work.sampled_tokens),
    ]


def _updating(local: LocalModel, learned: TrainingWorkload, phase: str) -> list[Quantity]:
    """Returns the lines of an update; the optimizer's own arithmetic is not counted."""
    rows, tokens = learned.samples * local.work.answer_tokens, learned.computed_tokens
    train = local.model.training_flops(tokens, learned.context, rows)
    forward = local.model.forward_flops(tokens, learned.context, rows)
    role, rate = local.work.role, local.rate.passes
    assert isinstance(role, TrainedRoleConfig)
    again = {
        "old log-probs": role.old_logprobs == "recomputed",
        "layers again": role.gradient_checkpointing,
        "reference model": role.reference_kl_weight > 0,
    }
    return [
        _computed(f"{phase}: passes", train, rate, tokens),
        *(_computed(f"{phase}: {name}", forward, rate, tokens) for name in again if again[name]),
    ]


def _host(name: str, recipe: Recipe, assumed: Assumed) -> list[Quantity]:
    """Returns the time of a role's phase outside its model: environments, or tests."""
    values = assumed.values
    episodes = task_count(recipe, values) * recipe.loop.rollouts_per_task
    if name == "policy":
        steps, seconds = episodes * values.episode_steps, values.environment_seconds
        how = f"{steps:,.0f} steps x {seconds:.3g} s"
        return [Quantity("rollouts: environment", steps * seconds, "s", how)]
    if name == "judge" and assumed.writes_tests:
        tests, seconds = recipe.judge.samples_per_step, values.test_seconds
        how = f"{episodes} responses x {tests} tests x {seconds:g} s"
        return [Quantity("judgements: tests run", episodes * tests * seconds, "s", how)]
    return []


def _computed(name: str, flops: float, rate: float, tokens: float) -> Quantity:
    how = f"{amount(flops, 'FLOP')} for {tokens:,.0f} tokens / {amount(rate, 'FLOP/s')}"
    return Quantity(name, flops / rate, "s", how)
