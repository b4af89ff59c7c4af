"""A recipe's plan: parameters, memory, tokens and seconds, each with its arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from rlanything.config.recipe import Recipe
from rlanything.config.roles import RoleConfig
from rlanything.engines.openai.config import OpenAIEngineConfig
from rlanything.engines.vllm.config import VLLMEngineConfig
from rlanything.planning.architecture import Architecture, architecture_of
from rlanything.planning.assumptions import Assumed, Assumptions, assume
from rlanything.planning.devices import CPU, Rates, gpu, sheet_rates
from rlanything.planning.episodes import episode_lengths, group_count
from rlanything.planning.figures import Figure, PlanError, Section, brief
from rlanything.planning.memory import role_memory
from rlanything.planning.placement import place
from rlanything.planning.players import Player, players
from rlanything.planning.seconds import Computed, generating, updating
from rlanything.runs.build import check_models

GENERATING = {"policy": "rollouts", "judge": "judgements", "adapter": "proposals"}
PHASES = (*GENERATING.values(), "policy update", "judge update")


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
    """By phase, of one iteration; phases that an endpoint spends are not among them."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def make_plan(recipe: Recipe, device: str, count: int, given: Sequence[str] = ()) -> Plan:
    """`given` are assumptions that the user knows better, `name=value`.

    Loads no weights. On `cpu` a few seconds of arithmetic are timed; a GPU is never asked. Raises
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
    cast: list[tuple[Player, Computed | None]] = []
    parameters: list[Figure] = []
    sources: dict[str, Architecture] = {}
    for name in GENERATING:
        role: RoleConfig = getattr(recipe, name)
        if name == "adapter" and shared is not None:
            sources[name] = sources[shared]
            how = f"the {shared}'s model and engine: no memory of its own"
            parameters.append(Figure(name, None, "", how))
        elif isinstance(role.engine, OpenAIEngineConfig):
            how = f"{role.model} at {role.engine.url}: not in this process, no memory here"
            parameters.append(Figure(name, None, "parameters", how))
        elif name != "judge" or recipe.judge.name == "llm":
            sources[name], source = architecture_of(role, name)
            parameters.append(_parameters(name, sources[name], source))
    assumed = assume(recipe, given)
    if assumed.written_tests:  # whatever max_steps allows, such an episode has one
        one = recipe.loop.model_copy(update={"max_steps": 1})
        recipe = recipe.model_copy(update={"loop": one})
    for player in players(recipe, assumed.values, assumed.written_tests):
        model = sources.get(player.name)
        if model is None:
            cast.append((player, None))
            continue
        rates = _rates(recipe, model, player, device, assumed.values.efficiency)
        on = player.role.model_copy(update={"device": CPU if device == CPU else "cuda"})
        cast.append((player, Computed(model, on, rates)))
    here = [(player, computed) for player, computed in cast if computed is not None]
    memories = {
        p.name: role_memory(p, c.model, c.role)
        for p, c in here
        if p.name != "adapter" or shared is None
    }
    fits, placed = place(memories, device, count)
    seconds = _seconds(recipe, cast, assumed, count)
    sections = (
        Section("Parameters", tuple(parameters)),
        assumed.section(),
        *memories.values(),
        placed,
        _tokens(recipe, cast, assumed.values),
        Section("Rates", tuple(f for p, c in here for f in c.rates.figures(p.name))),
        seconds,
    )
    by_phase = {
        f.name: f.value for f in seconds.figures if f.name in PHASES and f.value is not None
    }
    return Plan(recipe.name, device, count, fits, sections, by_phase)


def _sharing(recipe: Recipe, whose: RoleConfig) -> Recipe:
    """The recipe with an adapter that says outright what it has from another role."""
    same = {name: getattr(whose, name) for name in ("model", "engine", "dtype", "device")}
    return recipe.model_copy(update={"adapter": recipe.adapter.model_copy(update=same)})


def _rates(
    recipe: Recipe, model: Architecture, player: Player, device: str, efficiency: float
) -> Rates:
    if device != CPU:
        return sheet_rates(device, player.role, efficiency)
    from rlanything.planning.calibration import measure

    rates = measure(model, player.role, recipe.threads, player.generated)
    if isinstance(player.role.engine, VLLMEngineConfig):
        source = f"{rates.source}; of the embedded engine: vLLM's speed is not known here"
        return replace(rates, source=source)
    return rates


def _parameters(name: str, model: Architecture, source: str) -> Figure:
    head = "the output layer is the embedding" if model.tied else "an output layer of its own"
    lora = ""
    if model.adapters:
        a = model.adapters
        lora = (
            f"; {a.parameters:,} more in adapters of rank {a.rank} on {a.layers} linear layers, "
            "which alone train"
        )
    return Figure(
        name,
        model.parameters,
        "parameters",
        f"{model.kind}: embedding {model.vocabulary:,} x {model.hidden:,}, {model.layers} layers "
        f"of {model.heads} heads ({model.key_value_heads} of keys) x {model.head_dim} and an MLP "
        f"of {model.intermediate:,}, {head}; from {source}{lora}",
    )


def _tokens(
    recipe: Recipe, cast: Sequence[tuple[Player, Computed | None]], assumed: Assumptions
) -> Section:
    lengths = episode_lengths(recipe, assumed)
    groups = group_count(recipe, assumed)
    episodes, steps = groups * len(lengths), groups * sum(lengths)
    asked = f"{groups} tasks ({recipe.loop.tasks_per_iteration} and candidates) x {len(lengths)}"
    each = f"({' + '.join(map(str, lengths))})" if max(lengths) > 1 else f"{len(lengths)} x 1"
    figures = [
        Figure("episodes", episodes, "", asked),
        Figure("steps", steps, "", f"{groups} tasks x {each}"),
    ]
    for player, computed in cast:
        figures += _generated(player, computed is None) + _learned(player)
    return Section("Tokens of one iteration", tuple(figures))


def _generated(player: Player, remote: bool) -> list[Figure]:
    name, g = player.name, player.generated
    saved = g.prompt_tokens / max(g.prefilled, 1)
    figures = [
        Figure(f"{name}: answers", g.answers, "", player.answers),
        Figure(f"{name}: prompts", g.prompt_tokens, "tokens", "of every answer"),
        Figure(
            f"{name}: sampled",
            g.sampled,
            "tokens",
            f"{g.answers:,} answers x {brief(player.answer_tokens)}",
        ),
    ]
    if not remote:
        how = f"what is new in the prompts: 1 in {saved:.1f}"
        figures.insert(2, Figure(f"{name}: prefilled", g.prefilled, "tokens", how))
    return figures


def _learned(player: Player) -> list[Figure]:
    name, b = player.name, player.learned
    if b is None:
        return []
    return [
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


def _seconds(
    recipe: Recipe,
    cast: Sequence[tuple[Player, Computed | None]],
    assumed: Assumed,
    count: int,
) -> Section:
    host = _host(recipe, assumed)
    figures: list[Figure] = []
    for player, computed in cast:
        phase = GENERATING[player.name]
        if computed is None:
            figures.append(Figure(phase, None, "s", "spent by an endpoint, whose speed is its own"))
        else:
            figures += generating(phase, player, computed, host.get(player.name, []))
    for player, computed in cast:
        if player.learned is not None and computed is not None:
            figures += updating(f"{player.name} update", player, player.learned, computed)
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
    return Section("Seconds of one iteration", tuple(figures))


def _host(recipe: Recipe, assumed: Assumed) -> dict[str, list[Figure]]:
    """What is neither generated nor learned, by the role in whose phase it falls."""
    values = assumed.values
    groups, lengths = group_count(recipe, values), episode_lengths(recipe, values)
    steps, each = groups * sum(lengths), values.environment_seconds
    how = f"{steps:,} steps x {each:g} s"
    found = {"policy": [Figure("rollouts: environment", steps * each, "s", how)]}
    if assumed.written_tests:
        m, each = recipe.judge.samples_per_step, values.test_seconds
        runs = groups * len(lengths) * m
        how = f"{groups} tasks x {len(lengths)} responses x {m} tests x {each:g} s"
        found["judge"] = [Figure("judgements: tests run", runs * each, "s", how)]
    return found
