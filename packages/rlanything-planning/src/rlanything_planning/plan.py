"""A recipe's plan: parameters, memory, tokens and seconds, each with its calculation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rlanything.config.recipe import Recipe
from rlanything.config.roles import JudgeConfig, role_key
from rlanything.openmp import cores
from rlanything.runs.refusals import check_models
from rlanything_planning.architecture import Architecture, architecture_of
from rlanything_planning.assumptions import Assumptions, assume
from rlanything_planning.memory import on_devices, role_memory
from rlanything_planning.pauses import pauses
from rlanything_planning.report import Plan, PlanSection, Quantity, brief
from rlanything_planning.seconds import (
    CAVEAT,
    CPU,
    GPUS,
    memory_of,
    rate_of,
    seconds_of_phases,
)
from rlanything_planning.traffic import traffic
from rlanything_planning.workload import RoleWorkload, elsewhere, task_count, workloads


def make_plan(
    recipe: Recipe, device: str, count: int | None = None, given: Sequence[str] = ()
) -> Plan:
    """Returns the plan of a recipe on `count` seats (None: the recipe's number), each with a GPU or
    its share of this machine. `given`: the user's assumptions, `name=value`.

    Loads no weights. On `cpu` a short computation is timed; a GPU is never used. Raises `PlanError`
    for an unknown model, device or assumption, `RecipeError` for a role that cannot train."""
    seats = count or recipe.cluster.seats
    size = memory_of(device) / (seats if device == CPU else 1)
    check_models(recipe)
    shared, adapter = recipe.shared_role, recipe.adapter
    if shared is not None:
        keys = ("model", "engine", "dtype")
        same = {name: getattr(recipe.roles[shared], name) for name in keys}
        recipe = recipe.with_role(recipe.rewriting, adapter.model_copy(update=same))
    models, parameters = _models(recipe, shared)
    assumed = assume(recipe, given)
    roles = workloads(recipe, assumed)
    rewriting = recipe.rewriting
    adapts = recipe.curriculum.adapt_tasks
    if not (adapts and assumed.rewrites_tasks):
        models.pop(rewriting, None)
        roles = [role for role in roles if role.name != rewriting]
        parameters = [line for line in parameters if line.name != rewriting]
        why = (
            "this domain cannot rewrite its tasks" if adapts else "curriculum.adapt_tasks is false"
        )
        how = f"none: {why}"
        parameters.append(Quantity(rewriting, None, "", how))
    threads = recipe.threads or max(1, cores() // seats)
    local = {
        role.name: (model, rate_of(device, model, role.role.dtype, assumed, threads))
        for role in roles
        if (model := models.get(role.name))
    }
    memories = {
        role.name: role_memory(role, models[role.name], device == CPU, seats)
        for role in roles
        if role.name in local and (role.name != rewriting or shared is None)
    }
    # A seat has one device; in a single process each role is on its section's device.
    where = {role.name: role.role.device if seats == 1 else "" for role in roles}
    places = [[n for n in memories if where[n] == own] for own in dict.fromkeys(where.values())]
    largest = None
    if device != CPU:
        name = max(GPUS, key=lambda gpu: GPUS[gpu][2])
        largest = name, GPUS[name][2]
    places = [place for place in places if place]
    offload = recipe.cluster.offload
    free, devices = on_devices(places, memories, device, size, device == CPU, offload, largest)
    phases, seconds = seconds_of_phases(recipe, roles, local, assumed, seats)
    between_iterations, paused = pauses(recipe, models, local, assumed, seats, sum(phases.values()))
    apart = seats > 1 and device != CPU
    between = [traffic(recipe, roles, models, assumed, seats)] if apart else []
    sections = (
        PlanSection("Parameters", tuple(parameters)),
        assumed.section(apart),
        *(memory.section for memory in memories.values()),
        devices,
        PlanSection("Tokens of one iteration", tuple(_tokens(recipe, assumed, roles))),
        seconds,
        paused,
        *between,
    )
    fits = free >= 0
    return Plan(
        recipe.name, device, seats, fits, free, sections, phases, between_iterations, CAVEAT
    )


def _models(recipe: Recipe, shared: str | None) -> tuple[dict[str, Architecture], list[Quantity]]:
    """Returns the models in this process by role, and a line about each role's model."""
    models: dict[str, Architecture] = {}
    lines: list[Quantity] = []
    for name, role in recipe.roles.items():
        if isinstance(role, JudgeConfig) and not role.by_model:
            continue
        if holder := elsewhere(role):
            how = f"{role.model} at {holder}, which holds it: no memory here"
            lines.append(Quantity(name, None, "parameters", how))
        elif name == recipe.rewriting and shared is not None:
            if shared in models:
                models[name] = models[shared]
            how = f"the {shared}'s model and engine: no memory of its own"
            lines.append(Quantity(name, None, "", how))
        else:
            models[name], how = architecture_of(role, role_key(name))
            lines.append(Quantity(name, models[name].parameters, "parameters", how))
    labeller = recipe.evaluation.labeller
    if labeller is not None and not labeller.remote:
        model, how = architecture_of(labeller, "evaluation.labeller")
        how += "; loaded for the evaluation before training alone: in no other line of this plan"
        lines.append(Quantity("labeller", model.parameters, "parameters", how))
    return models, lines


def _tokens(recipe: Recipe, assumed: Assumptions, roles: list[RoleWorkload]) -> Iterator[Quantity]:
    """Yields episodes, steps, and the tokens that each role reads, samples and trains on."""
    tasks, rollouts = task_count(recipe, assumed), recipe.loop.rollouts_per_task
    how = f"{tasks} tasks ({recipe.loop.tasks_per_iteration} and candidates) x {rollouts}"
    yield Quantity("episodes", tasks * rollouts, "", how)
    steps = assumed.episode_steps
    yield Quantity("steps", tasks * rollouts * steps, "", f"{how} x {steps:.3g}")
    for work in roles:
        name, prefilled = work.name, work.prefilled_tokens
        how = f"{work.tasks:.3g} tasks x {len(work.task)}: {work.samples} to a prompt"
        yield Quantity(f"{name}: answers", work.answers, "", how)
        yield Quantity(f"{name}: prompts", work.prompt_tokens, "tokens", "of every answer")
        if work.images:
            how = f"{work.images:.3g} x {brief(work.image_tokens)} tokens in each prompt"
            yield Quantity(f"{name}: screenshots", work.shown, "", how)
        if elsewhere(work.role) is None:
            how = f"what is new in the prompts: 1 in {work.prompt_tokens / max(prefilled, 1):.1f}"
            yield Quantity(f"{name}: prefilled", prefilled, "tokens", how)
        how = f"{work.answers:,.0f} answers x {brief(work.answer_tokens)}"
        yield Quantity(f"{name}: sampled", work.sampled_tokens, "tokens", how)
        if learned := work.learned:
            samples, computed = learned.sample_tokens, learned.computed_tokens
            how = f"prompts and answers of {learned.samples:,} samples"
            yield Quantity(f"{name}: sample tokens", samples, "tokens", how)
            how = f"in {learned.passes} passes of at most {learned.largest:,}, {learned.updates} "
            how += f"updates: 1 in {samples / max(computed, 1):.1f}"
            yield Quantity(f"{name}: computed", computed, "tokens", how)
