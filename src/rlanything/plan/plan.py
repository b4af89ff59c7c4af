"""A recipe's plan: parameters, memory, tokens and seconds, each with its arithmetic."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rlanything.config import Recipe
from rlanything.plan.architecture import Architecture, architecture_of
from rlanything.plan.assumptions import Assumed, Assumptions, assume
from rlanything.plan.devices import CPU, Rates, gpu, sheet_rates
from rlanything.plan.episodes import (
    Batches,
    batches,
    episode_lengths,
    group_count,
    judge_leaves,
    policy_leaves,
)
from rlanything.plan.figures import Figure, PlanError, Section, amount, brief
from rlanything.plan.generation import (
    Generation,
    adapter_generation,
    judge_generation,
    policy_generation,
)
from rlanything.plan.memory import role_memory
from rlanything.plan.seconds import Player, generating, updating
from rlanything.role_settings import Role

PHASES = ("rollouts", "judgements", "proposals", "policy update", "judge update")


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run of a recipe needs on `count` devices."""

    recipe: str
    device: str
    count: int
    fits: bool
    """Whether every role fits, each whole on one of the devices."""
    sections: tuple[Section, ...]
    seconds: dict[str, float]
    """By phase, of one iteration."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class _Work:
    """What a role's model does in an iteration."""

    generated: Generation
    learned: Batches | None
    answer_tokens: float


def make_plan(recipe: Recipe, device: str, count: int, given: Sequence[str] = ()) -> Plan:
    """`given` are assumptions that the user knows better, `name=value`.

    Loads no weights. On `cpu` a few seconds of arithmetic are timed; a GPU is never asked. Raises
    `PlanError` for a model, device or assumption that is not known."""
    if device == CPU and count != 1:
        raise PlanError("--count: this machine's CPU is one device; name a GPU with --device")
    if device != CPU:
        gpu(device)
    assumed = assume(recipe, given)
    work = _work(recipe, assumed.values)
    players: dict[str, Player] = {}
    architectures: list[Figure] = []
    for name in work:
        role: Role = getattr(recipe, name)
        role = role.model_copy(update={"device": CPU if device == CPU else "cuda"})
        model, source = architecture_of(role.model, name)
        architectures.append(_architecture(name, model, source))
        rates = _rates(recipe, model, role, device, assumed.values.efficiency)
        players[name] = Player(name, model, role, rates)
    memories = [
        role_memory(
            name,
            player.model,
            player.role,
            work[name].learned,
            work[name].answer_tokens,
            work[name].generated,
        )
        for name, player in players.items()
    ]
    fits, placed = _place({n: m.total for n, m in zip(work, memories, strict=True)}, device, count)
    seconds = _seconds(recipe, players, work, assumed.values, count)
    sections = (
        Section("Parameters", tuple(architectures)),
        assumed.section(),
        *(memory.section for memory in memories),
        placed,
        _tokens(recipe, work, assumed),
        Section("Rates", tuple(f for p in players.values() for f in p.rates.figures(p.name))),
        seconds,
    )
    by_phase = {
        f.name: f.value for f in seconds.figures if f.name in PHASES and f.value is not None
    }
    return Plan(recipe.name, device, count, fits, sections, by_phase)


def _work(recipe: Recipe, assumed: Assumptions) -> dict[str, _Work]:
    """By role; no judge where the oracle judges."""
    groups = group_count(recipe, assumed)
    tasks = round(groups * assumed.policy_tasks)
    learned = batches(policy_leaves(recipe, assumed), tasks, recipe.policy)
    work = {"policy": _Work(policy_generation(recipe, assumed), learned, assumed.response_tokens)}
    if recipe.judge.oracle_noise is None:
        tasks = round(groups * assumed.judge_tasks)
        learned = batches(judge_leaves(recipe, assumed), tasks, recipe.judge)
        generated = judge_generation(recipe, assumed)
        work["judge"] = _Work(generated, learned, assumed.judgement_tokens)
    work["adapter"] = _Work(adapter_generation(recipe, assumed), None, assumed.adapter_tokens)
    return work


def _rates(recipe: Recipe, model: Architecture, role: Role, device: str, share: float) -> Rates:
    if device != CPU:
        return sheet_rates(device, role, share)
    from rlanything.plan.calibration import measure

    listed = getattr(role, "decoding", "free") == "choices"
    return measure(model, role, recipe.threads, listed)


def _architecture(name: str, model: Architecture, source: str) -> Figure:
    head = "the output layer is the embedding" if model.tied else "an output layer of its own"
    return Figure(
        name,
        model.parameters,
        "parameters",
        f"{model.kind}: embedding {model.vocabulary:,} x {model.hidden:,}, {model.layers} layers "
        f"of {model.heads} heads ({model.key_value_heads} of keys) x {model.head_dim} and an MLP "
        f"of {model.intermediate:,}, {head}; {source}",
    )


def _place(totals: dict[str, float], device: str, count: int) -> tuple[bool, Section]:
    """The largest role first, each on the device that is emptiest."""
    if device == CPU:
        size = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    else:
        size = gpu(device).memory
    loads: list[tuple[float, list[str]]] = [(0.0, []) for _ in range(count)]
    for name in sorted(totals, key=lambda each: -totals[each]):
        emptiest = min(range(count), key=lambda i: loads[i][0])
        load, names = loads[emptiest]
        loads[emptiest] = (load + totals[name], [*names, name])
    figures = [
        Figure(
            f"{device} {number}",
            load,
            "bytes",
            f"{' + '.join(names) or 'no role'}, of {amount(size, 'bytes')}: "
            + (
                f"fits, {amount(size - load, 'bytes')} left"
                if load <= size
                else f"DOES NOT FIT, {amount(load - size, 'bytes')} too much"
            ),
        )
        for number, (load, names) in enumerate(loads)
    ]
    largest = max(totals, key=lambda each: totals[each])
    if totals[largest] > size:
        figures.append(
            Figure(
                "remedy",
                None,
                "",
                f"{largest} alone is larger than a device, and a role is not divided over devices "
                "yet: take a smaller model, or less of max_pack_tokens and parallel_episodes",
            )
        )
    return all(load <= size for load, _ in loads), Section("Memory: devices", tuple(figures))


def _tokens(recipe: Recipe, work: dict[str, _Work], assumed: Assumed) -> Section:
    lengths = episode_lengths(recipe, assumed.values)
    groups = group_count(recipe, assumed.values)
    episodes, steps = groups * len(lengths), groups * sum(lengths)
    figures = [
        Figure(
            "episodes",
            episodes,
            "",
            f"{groups} tasks ({recipe.loop.tasks_per_iteration} and candidates) x {len(lengths)}",
        ),
        Figure("steps", steps, "", f"{groups} tasks x ({' + '.join(map(str, lengths))})"),
    ]
    for name, each in work.items():
        g, b = each.generated, each.learned
        figures += [
            Figure(
                f"{name}: answers", g.answers, "", "responses, judgements, or tries and critics"
            ),
            Figure(f"{name}: prompts", g.prompt_tokens, "tokens", "of every answer"),
            Figure(
                f"{name}: prefilled",
                g.prefilled,
                "tokens",
                f"what is new in them: 1 in {g.prompt_tokens / max(g.prefilled, 1):.1f}",
            ),
            Figure(
                f"{name}: sampled",
                g.sampled,
                "tokens",
                f"{g.answers:,} answers x {each.answer_tokens:g}",
            ),
        ]
        if b is not None:
            figures += [
                Figure(f"{name}: samples", b.samples, "", "answers that train"),
                Figure(f"{name}: sample tokens", b.sample_tokens, "tokens", "prompts and answers"),
                Figure(f"{name}: distinct", b.distinct_tokens, "tokens", "of them, each once"),
                Figure(
                    f"{name}: computed",
                    b.computed_tokens,
                    "tokens",
                    f"in {b.passes} passes of at most {b.largest:,}, {b.updates} updates: "
                    f"1 in {b.sample_tokens / max(b.computed_tokens, 1):.1f}",
                ),
            ]
    return Section("Tokens of one iteration", tuple(figures))


def _seconds(
    recipe: Recipe,
    players: dict[str, Player],
    work: dict[str, _Work],
    assumed: Assumptions,
    count: int,
) -> Section:
    steps = group_count(recipe, assumed) * sum(episode_lengths(recipe, assumed))
    each = assumed.environment_seconds
    host = f"{steps:,} steps x {each:g} s"
    phases = {"policy": "rollouts", "judge": "judgements", "adapter": "proposals"}
    figures: list[Figure] = []
    for name, phase in phases.items():
        if name in work:
            mine = (steps * each, host) if name == "policy" else (0.0, "")
            figures += generating(phase, players[name], work[name].generated, *mine)
    for name in ("policy", "judge"):
        if name in work and (learned := work[name].learned) is not None:
            tokens = work[name].answer_tokens
            figures += updating(f"{name} update", players[name], learned, tokens)
    total = sum(f.value or 0.0 for f in figures if f.name in PHASES)
    iterations = recipe.loop.iterations
    figures += [
        Figure(
            "one iteration",
            total,
            "s",
            "the sum of its phases, which follow one another; a role computes on one device, so "
            "more devices hold more and are not faster",
        ),
        Figure("all iterations", total * iterations, "s", f"{iterations} x {brief(total)} s"),
        Figure(
            "evaluation, checkpoints, loading",
            None,
            "s",
            "not known: they hang on how the policy does and on the disk",
        ),
    ]
    if count > 1:
        figures.append(
            Figure(
                "one iteration, divided",
                total / count,
                "s",
                f"{brief(total)} s / {count}: the floor if every phase were divided over them "
                "without loss, which is not built",
            )
        )
    return Section("Seconds of one iteration", tuple(figures))
