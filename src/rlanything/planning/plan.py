"""A recipe's plan: parameters, memory, tokens and seconds, each with its arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from rlanything.config.recipe import Recipe
from rlanything.config.roles import RoleConfig
from rlanything.planning.architecture import Architecture, architecture_of
from rlanything.planning.assumptions import Assumptions, assume
from rlanything.planning.devices import CPU, gpu, measured_rate, sheet_rate
from rlanything.planning.memory import role_memory
from rlanything.planning.placement import place
from rlanything.planning.quantities import PlanError, PlanSection, Quantity
from rlanything.planning.seconds import CAVEAT, PHASES, LocalModel, seconds_of_phases
from rlanything.planning.workload import RoleWorkload, task_count, workloads
from rlanything.runs.build import check_models


@dataclass(frozen=True, slots=True)
class Plan:
    """The needs of a run of a recipe on `count` devices."""

    recipe: str
    device: str
    count: int
    fits: bool
    """Whether every role fits, each whole on one of the devices."""
    sections: tuple[PlanSection, ...]
    seconds: dict[str, float]
    """The seconds of one iteration by phase; phases that run at an endpoint are not among them."""
    caveat: str
    """How far the seconds can be trusted."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def make_plan(recipe: Recipe, device: str, count: int, given: Sequence[str] = ()) -> Plan:
    """Works out the plan of a recipe. `given`: assumptions of the user, `name=value`.

    Loads no weights. On `cpu` a little arithmetic is timed; a GPU is never asked. Raises
    `PlanError` for a model, device or assumption that is not known, `RecipeError` for a role that
    cannot train."""
    if device == CPU and count != 1:
        raise PlanError("--count: this machine's CPU is one device; name a GPU with --device")
    if device != CPU:
        gpu(device)
    check_models(recipe)
    shared = recipe.adapter.model if recipe.adapter.shares else None
    if shared is not None:
        recipe = _sharing(recipe, getattr(recipe, shared))
    models, parameters = _models(recipe, shared)
    assumed = assume(recipe, given)
    if assumed.writes_tests:  # such an episode has one step
        loop = recipe.loop.model_copy(update={"max_steps": 1})
        recipe = recipe.model_copy(update={"loop": loop})
    values = assumed.values
    work = workloads(recipe, values, assumed.writes_tests)
    local: dict[str, LocalModel] = {}
    for role in work:
        if (model := models.get(role.name)) is not None:
            kind = {"device": CPU if device == CPU else "cuda"}
            role = replace(role, role=role.role.model_copy(update=kind))
            rate = (
                measured_rate(model, role.role.dtype, recipe.threads)
                if device == CPU
                else sheet_rate(device, role.role, values.utilisation, values.decoding_utilisation)
            )
            local[role.name] = LocalModel(role, model, rate)
    memories = {
        name: role_memory(role.work, role.model, role.work.role)
        for name, role in local.items()
        if name != "adapter" or shared is None
    }
    fits, placed = place(memories, device, count)
    by_phase, seconds = seconds_of_phases(recipe, work, local, assumed)
    rates = (
        Quantity(f"{name}: rate", role.rate.passes, "FLOP/s", role.rate.source)
        for name, role in local.items()
    )
    sections = (
        PlanSection("Parameters", parameters),
        assumed.section(),
        *(memory.section for memory in memories.values()),
        placed,
        _tokens(recipe, work, values),
        PlanSection("Rates", tuple(rates)),
        seconds,
    )
    return Plan(recipe.name, device, count, fits, sections, by_phase, CAVEAT)


def _sharing(recipe: Recipe, other: RoleConfig) -> Recipe:
    """Returns the recipe with an adapter that has the settings of the role whose model it
    shares."""
    same = {name: getattr(other, name) for name in ("model", "engine", "dtype", "device")}
    return recipe.model_copy(update={"adapter": recipe.adapter.model_copy(update=same)})


def _models(
    recipe: Recipe, shared: str | None
) -> tuple[dict[str, Architecture], tuple[Quantity, ...]]:
    """Returns the models that run in this process, by role, and a line about each role's model."""
    models: dict[str, Architecture] = {}
    lines: list[Quantity] = []
    for name in PHASES:
        role: RoleConfig = getattr(recipe, name)
        if name == "judge" and recipe.judge.name != "llm":
            continue
        if role.remote:
            how = f"{role.model} at an endpoint: not in this process, no memory here"
            lines.append(Quantity(name, None, "parameters", how))
        elif name == "adapter" and shared is not None:
            models[name] = models[shared]
            how = f"the {shared}'s model and engine: no memory of its own"
            lines.append(Quantity(name, None, "", how))
        else:
            models[name], source = architecture_of(role, name)
            lines.append(_parameters(name, models[name], source))
    return models, tuple(lines)


def _parameters(name: str, model: Architecture, source: str) -> Quantity:
    head = "the output layer is the embedding" if model.tied else "an output layer of its own"
    how = (
        f"{model.kind}: embedding {model.vocabulary:,} x {model.hidden:,}, {model.layers} layers "
        f"of {model.heads} heads ({model.key_value_heads} of keys) x {model.head_dim} and an MLP "
        f"of {model.intermediate:,}, {head}; from {source}"
    )
    if lora := model.adapters:
        how += (
            f"; {lora.parameters:,} more in adapters of rank {lora.rank} on {lora.layers} linear "
            "layers, which alone train"
        )
    return Quantity(name, model.parameters, "parameters", how)


def _tokens(recipe: Recipe, work: Sequence[RoleWorkload], assumed: Assumptions) -> PlanSection:
    tasks, rollouts = task_count(recipe, assumed), recipe.loop.rollouts_per_task
    asked = f"{tasks} tasks ({recipe.loop.tasks_per_iteration} and candidates) x {rollouts}"
    steps = tasks * rollouts * assumed.episode_steps
    totals = (
        Quantity("episodes", tasks * rollouts, "", asked),
        Quantity("steps", steps, "", f"{asked} x {assumed.episode_steps:.3g}"),
    )
    lines = (line for role in work for line in role.quantities())
    return PlanSection("Tokens of one iteration", (*totals, *lines))
