"""Bytes and seconds of what a run does between iterations: evaluations and checkpoints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import ceil

from rlanything.config.recipe import Recipe
from rlanything.config.roles import TrainedRoleConfig
from rlanything_planning.architecture import Architecture
from rlanything_planning.assumptions import Assumptions
from rlanything_planning.memory import snapshot
from rlanything_planning.report import PlanSection, Quantity, amount, brief
from rlanything_planning.seconds import Local, acting_workers, generation
from rlanything_planning.workload import elsewhere, evaluation_workloads


def pauses(
    recipe: Recipe,
    models: Mapping[str, Architecture],
    local: Local,
    assumed: Assumptions,
    seats: int,
    iteration: float,
) -> tuple[dict[str, float], PlanSection]:
    """Returns the seconds of an evaluation and of waiting for a checkpoint's file, and the
    calculation; `iteration`: seconds of one iteration."""
    lines: list[Quantity] = []
    seconds = dict[str, float]()
    if recipe.evaluation.episodes:
        parts = list(_evaluation(recipe, local, assumed, seats))
        seconds["evaluation"] = sum(part.value or 0.0 for part in parts)
        count, how = _evaluations(recipe)
        lines += [
            *parts,
            Quantity("one evaluation", seconds["evaluation"], "s", "the sum of its parts"),
            Quantity("all evaluations", count * seconds["evaluation"], "s", how),
        ]
    written, every = 0.0, recipe.checkpoints.write_every
    for name, role in recipe.roles.items():
        if name in models and isinstance(role, TrainedRoleConfig) and role.trains:
            saved = snapshot(models[name], role)
            written += saved.bytes
            lines.append(Quantity(f"{name}: checkpoint", saved.bytes, "bytes", saved.how))
    if written:
        how = "all of it, until it is written; of several machines the first has the weights, and "
        how += "each the moments of its seats"
        lines.append(Quantity("snapshot in host memory", written, "bytes", how))
        writing = 2 * written / assumed.disk_bandwidth
        how = f"{amount(written, 'bytes')} written, and read for its checksums, at "
        how += f"{amount(assumed.disk_bandwidth, 'bytes/s')}, while the next iterations run"
        lines.append(Quantity("writing one checkpoint", writing, "s", how))
        seconds["checkpoint"] = wait = max(0.0, writing - every * iteration)
        how = f"{brief(writing)} s, less {every} x {brief(iteration)} s of iterations "
        how += f"(checkpoints.write_every={every}): one is written at a time"
        if wait:
            how += f"; {ceil(writing / max(iteration, 1e-9))} would not wait"
        lines.append(Quantity("waiting for one checkpoint", wait, "s", how))
        count = ceil(recipe.loop.iterations / every)
        how = f"{count - 1} x {brief(wait)} s, and all of the last one"
        lines.append(Quantity("all checkpoints", (count - 1) * wait + writing, "s", how))
        kept = recipe.checkpoints.keep + 1
        how = f"checkpoints.keep={kept - 1}, and the one that is being written"
        lines.append(Quantity("checkpoints on disk", kept * written, "bytes", how))
    lines.append(Quantity("downloading and loading models", None, "s", "not counted"))
    return seconds, PlanSection("Between iterations", tuple(lines))


def _evaluations(recipe: Recipe) -> tuple[int, str]:
    """Returns the number of evaluations in a run, and when they take place."""
    every, last = recipe.evaluation.every, recipe.loop.iterations
    after = len({*range(every, last, every), last}) if every else 1
    when = f"after {after} iterations"
    if recipe.evaluation.baseline:
        return after, f"{when}; the one before training is copied"
    return 1 + after, f"before training, and {when}"


def _evaluation(
    recipe: Recipe, local: Local, assumed: Assumptions, seats: int
) -> Iterator[Quantity]:
    """Yields the seconds of one evaluation by role."""
    for work in evaluation_workloads(recipe, assumed):
        if work.name not in local:
            how = f"at {elsewhere(work.role) or 'another role'}, whose speed is not known"
            yield Quantity(f"evaluation: {work.name}", None, "s", how)
            continue
        parts = generation(work, *local[work.name])
        seconds = sum(flops / rate for _, flops, _, rate in parts) / seats
        how = f"{work.tasks * work.conversations:,.0f} episodes, {work.answers:,.0f} answers: as in"
        if work.role.does == "acts":
            played = work.answers * assumed.environment_seconds / acting_workers(recipe)
            yield Quantity(f"evaluation: {work.name}", seconds + played, "s", f"{how} rollouts")
        else:
            yield Quantity(f"evaluation: {work.name}", seconds, "s", f"{how} judgements")
