"""Quantities of a run that its recipe does not contain: prompt lengths are measured in a few random
episodes, the others are taken from runs of the quickstart.

A role's quantities begin with its name: `judge_turn_tokens`."""

from __future__ import annotations

import random
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

from transformers import AutoTokenizer

from rlanything.config.recipe import Recipe
from rlanything.config.roles import role_key
from rlanything.domains.base import (
    Domain,
    DomainError,
    MissingData,
    RewriteRequest,
)
from rlanything.domains.registry import load_domain
from rlanything.engines import shipped
from rlanything.engines.hf.cache import shared_length
from rlanything.engines.hf.damage import reading, rendering
from rlanything.engines.hf.gguf import find_gguf
from rlanything.engines.hf.loading import tokenizer_place
from rlanything.records import Completion, JudgedTrajectory, Messages, Step, Task, Trajectory
from rlanything.seeds import derive
from rlanything_planning.report import PlanError, PlanSection, Quantity
from rlanything_planning.screenshots import NONE_SHOWN, screenshot_tokens

TASKS = 8
CHARACTERS = 3.1
"""Characters per token without a tokenizer: Qwen's on AlfWorld (benchmarks/plan.md)."""
GROWING = ("opening_tokens", "turn_tokens", "question_tokens")
"""Quantities measured in the prompts of a role that reads episodes."""
ASSUMED = {
    **dict.fromkeys(
        ("acts", "scores"), (*GROWING, "image_tokens", "answer_tokens", "quoted", "trained")
    ),
    "rewrites": ("prompt_tokens", "answer_tokens"),
}
"""Assumptions about a role, by its task."""
USUAL_ANSWERS = {"acts": 8.7, "scores": 13.3, "rewrites": 11.0}
"""Tokens of the shipped models' answers."""

Known: TypeAlias = dict[str, tuple[float, str]]
Tokenize: TypeAlias = Callable[[Messages], Sequence[Any]]
"""Known values with their sources, by name of the assumption; and a tokenizer of a rendered
chat."""
_NANO = "measured in runs of the recipe quickstart (benchmarks/plan.md)"


@dataclass(frozen=True, slots=True)
class RoleAssumptions:
    """Means over the prompts and answers of a role in an iteration; shares are from 0 to 1.

    A prompt is an opening (the first prompt without its question), turns (added by each step
    besides the response), and a question: the end, which is recomputed each time. The question is
    empty in a transcript, and nearly everything if each screen replaces the last. It includes the
    tokens of screenshots."""

    opening_tokens: float = 0.0
    turn_tokens: float = 0.0
    question_tokens: float = 0.0
    prompt_tokens: float = 0.0
    """Tokens of the whole prompt of a role that rewrites, without the quoted critics."""
    image_tokens: float = 0.0
    """Tokens of one screenshot."""
    answer_tokens: float = 0.0
    quoted: float = 0.0
    """Share of earlier responses that a prompt repeats: all in a transcript; a judge's prompt
    always has the judged one."""
    trained: float = 0.0
    """Share of tasks that the role learns from."""


@dataclass(frozen=True, slots=True)
class Assumptions:
    """Means over an iteration; shares are from 0 to 1.

    `candidates`: pending candidates over tasks_per_iteration. `utilisation`: the share of a GPU's
    peak reached in prefill and training and, for decoding, in passes over few tokens. Bandwidths:
    bytes per second that one GPU receives from others of its machine, and from other machines, and
    that all seats together write into the run's directory, or read from it."""

    roles: Mapping[str, RoleAssumptions]
    """Assumptions about roles, by name."""
    values: Mapping[str, float]
    """All assumptions by their full names."""
    episode_steps: float
    rewritten_tasks: float
    """Share of tasks that are to be rewritten."""
    candidates: float
    environment_seconds: float
    test_seconds: float
    utilisation: float
    decoding_utilisation: float
    machine_bandwidth: float
    network_bandwidth: float
    disk_bandwidth: float
    sources: Mapping[str, str]
    """Source of each number, by name."""
    writes_tests: bool
    """Whether the judge writes tests, and so whether an episode has one step."""
    rewrites_tasks: bool
    """Whether there is an adapter: a run has none if its domain cannot rewrite tasks."""

    def section(self, apart: bool) -> PlanSection:
        """Returns the lines of a plan, with bandwidths if GPUs are `apart`."""
        units = {"tokens": "tokens", "seconds": "s", "steps": "steps", "bandwidth": "bytes/s"}
        unread = [] if self.writes_tests else ["test_seconds"]
        unread += [] if apart else ["machine_bandwidth", "network_bandwidth"]
        unread += [name for name, source in self.sources.items() if source == NONE_SHOWN]
        lines = (
            Quantity(name, self.values[name], units.get(name.split("_")[-1], ""), source)
            for name, source in self.sources.items()
            if name not in unread
        )
        return PlanSection("Assumed (change with --assume name=value)", tuple(lines))


NAMES = tuple(field.name for field in fields(Assumptions) if field.type == "float")
"""Assumptions that do not belong to a role."""


def names_of(recipe: Recipe) -> dict[str, tuple[str, str]]:
    """Returns the assumptions about a recipe's roles: role and quantity, by their full names."""
    return {
        f"{name}_{quantity}": (name, quantity)
        for name, role in recipe.roles.items()
        for quantity in ASSUMED.get(role.does, ())
    }


def assume(recipe: Recipe, given: Sequence[str]) -> Assumptions:
    """Returns the assumptions for a recipe's domain and models; `given` (`name=value`) takes
    precedence.

    Raises `PlanError` for an unknown name, an invalid value, and a domain whose prompt lengths can
    neither be measured nor are given."""
    of_roles = names_of(recipe)
    names = (*of_roles, *NAMES)
    overrides = dict(_parsed(assignment, names) for assignment in given)
    measured = (*GROWING, "prompt_tokens")
    missing = [
        n for n, (_, quantity) in of_roles.items() if quantity in measured and n not in overrides
    ]
    try:
        domain = load_domain(recipe.domain.name, recipe.domain.options)
        lengths = prompt_lengths(recipe, domain) if missing else {}
    except DomainError as error:
        remedy = "; or give the lengths of prompts:" if isinstance(error, MissingData) else ""
        lengths = "".join(f" --assume {name}=NUMBER" for name in missing if remedy)
        raise PlanError(f"domain: {error}{remedy}{lengths}") from error
    writes_tests = domain.capabilities.judge == "tests"
    seen = screenshot_tokens(recipe, domain)
    kept: Known = {}
    rewrites = domain.capabilities.rewrites_tasks or recipe.adapter.name != "llm"
    if not rewrites:
        none = 0.0, "none: this domain cannot rewrite its tasks"
        kept = {"rewritten_tasks": none, "candidates": none}
    known = _usual(recipe, writes_tests) | kept | lengths | seen | overrides
    known["episode_steps"] = (max(1, round(known["episode_steps"][0])), known["episode_steps"][1])
    values = {name: known[name][0] for name in names}
    roles: dict[str, dict[str, float]] = {name: {} for name in recipe.roles}
    for name, (role, quantity) in of_roles.items():
        roles[role][quantity] = values[name]
    return Assumptions(
        roles={name: RoleAssumptions(**quantities) for name, quantities in roles.items()},
        values=values,
        sources={name: known[name][1] for name in names},
        writes_tests=writes_tests,
        rewrites_tasks=rewrites,
        **{name: values[name] for name in NAMES},
    )


def _parsed(assignment: str, names: Sequence[str]) -> tuple[str, tuple[float, str]]:
    name, _, text = assignment.partition("=")
    if name not in names:
        raise PlanError(f"assumption {assignment!r}: unknown; known are {', '.join(names)}")
    try:
        value = float(text)
    except ValueError:
        raise PlanError(f"assumption {assignment!r}: write name=number") from None
    share = name.endswith(("_trained", "rewritten_tasks", "utilisation", "quoted"))
    divides = name.endswith(("utilisation", "bandwidth"))
    # Written so that NaN also fails.
    if not 0 <= value <= (1 if share else 1e12) or (divides and value == 0):
        wanted = "share from 0 to 1" if share else "positive number"
        raise PlanError(f"assumption {name}={value:g}: give a {wanted}")
    return name, (value, "given")


def _usual(recipe: Recipe, writes_tests: bool) -> Known:
    """Returns the values of the quickstart's runs; for answers of other models, the maximum
    length."""
    source = _NANO if recipe.policy.model == "nano" else f"not known for this recipe; {_NANO}"
    known: Known = {
        "episode_steps": (0.8 * recipe.loop.max_steps, f"0.8 of max_steps, {_NANO}"),
        "rewritten_tasks": (0.36, source),
        "candidates": (0.05, source),
        "environment_seconds": (0.0004, source),
        "test_seconds": (0.005, "small programs, benchmarks/sandbox.md; yours may take longer"),
        "utilisation": (0.3, "updates on an H200: 0.26 to 0.37 at 7B, 0.07 to 0.14 at 0.5B"),
        "decoding_utilisation": (0.05, "a guess for vLLM; the embedded engine, at 0.5B: 0.002"),
        "machine_bandwidth": (450e9, "NVLink of an H100 or H200, data sheet: 900 GB/s, half a way"),
        "network_bandwidth": (50e9, "InfiniBand NDR, a port of 400 Gb/s a GPU, as a DGX H200 has"),
        "disk_bandwidth": (1e9, "a guess: time a large copy into the run's directory"),
    }
    if writes_tests:
        known["episode_steps"] = (1.0, "one: the judge writes tests")
    judged = 1.0 if tuple(recipe.feedback.judge_window) == (0, 1) else 0.63
    tested = "where a task's tests earn different rewards, nearly all train"
    acted = 1.0 if tuple(recipe.feedback.policy_window) == (0, 1) else 0.83
    trained = {
        "acts": (acted, f"share of the tasks in policy_window, {_NANO}"),
        "scores": (judged, tested) if writes_tests else (0.62 * judged, _NANO),
    }
    for name, role in recipe.roles.items():
        longest = f"an upper bound, {role_key(name)}.max_tokens: real lengths are known after a run"
        bound = float(role.max_tokens), longest
        usual = USUAL_ANSWERS.get(role.does, 0.0), _NANO
        known[f"{name}_answer_tokens"] = usual if role.model == "nano" else bound
        if role.does in trained:
            known[f"{name}_trained"] = trained[role.does]
            known[f"{name}_quoted"] = (1.0, "all, as in a transcript")
    return known


def prompt_lengths(recipe: Recipe, domain: Domain) -> Known:
    """Returns mean lengths in `TASKS` training tasks, or in the domain's stand-ins if the recipe's
    data are missing, and the time per step if a step could be played. Raises `DomainError`."""
    count = min(TASKS, recipe.loop.tasks)
    try:
        tasks = domain.tasks("train", count, derive(recipe.seed, "plan"))
        source = "of the recipe's tasks"
    except MissingData:
        if not (tasks := domain.stand_ins(count)):
            raise
        source = "stand-ins, a rough guide: the recipe's data are not here;"
    seconds, tokenizers = list[float](), dict[str, Tokenize]()
    played = [play(domain, task, recipe.loop.max_steps, seconds) for task in tasks]
    faults = [fault for _, fault in played if fault]
    how = f"read, their later steps guessed, as they cannot be played here ({''.join(faults[-1:])})"
    source = f"{len(played)} {source} {how if faults else 'played at random just now'}"
    planned = {name: role for name, role in recipe.roles.items() if role.does in ASSUMED}
    for name, role in planned.items():
        tokenizers[name], kind = tokenizer_of(shipped.resolve(role.model, role.shipped_role))
        source += f"; {name}: {kind}"
    does = {name: role.does for name, role in planned.items()}
    lengths = measure(domain, [episode for episode, _ in played], tokenizers, does)
    known = {name: (value, source) for name, value in lengths.items()}
    if seconds:
        known["environment_seconds"] = statistics.median(seconds), "median of steps taken just now"
    return known


def tokenizer_of(model: str) -> tuple[Tokenize, str]:
    """Returns a model's tokenizer if it is on this machine, else a rough one, and its name. Raises
    `ModelError` for a damaged tokenizer."""
    doing = f"cannot read the tokenizer of model {model!r}"
    with reading(doing, "Fix the files in its folder, or take another model."):
        try:
            packed = find_gguf(model)
            place = {"gguf_file": packed.name} if packed else {"local_files_only": True}
            local = packed is None and Path(model).is_dir()
            folder = packed.parent if packed else tokenizer_place(model) if local else model
            tokenizer: Any = AutoTokenizer.from_pretrained(folder, trust_remote_code=False, **place)
        except (OSError, ValueError, ImportError):
            return by_characters, f"{CHARACTERS:g} characters a token"

    def tokenize(messages: Messages) -> Sequence[int]:
        turns = [{"role": message.role, "content": message.content} for message in messages]
        with rendering(model):
            return tokenizer.apply_chat_template(turns, add_generation_prompt=True)["input_ids"]

    return tokenize, "its own tokenizer"


def by_characters(messages: Messages) -> Sequence[str]:
    """Returns a chat split into tokens of `CHARACTERS` characters, including its markup."""
    turns = [f"<|im_start|>{turn.role}\n{turn.content}<|im_end|>\n" for turn in messages]
    text = "".join(turns) + "<|im_start|>assistant\n"
    # Whole tokens only, so that the tokens of a prefix are a prefix of the tokens.
    ends = [int(i * CHARACTERS) for i in range(int(len(text) / CHARACTERS) + 1)]
    return [text[start:end] for start, end in pairwise(ends)]


def play(
    domain: Domain, task: Task, max_steps: int, seconds: list[float]
) -> tuple[Trajectory, str | None]:
    """Plays a task with random choices, or the expert's if the environment lists none, and adds the
    time of each step to `seconds`. If it cannot be played, the missing steps repeat the last
    observation, and the second result is the reason."""
    steps: list[Step] = []
    outcome, fault, shown = None, None, task.instruction
    rng, marker = random.Random(task.id), domain.action_marker
    try:
        environment = domain.environment()
        seen = environment.reset(task)
        while outcome is None and len(steps) < max_steps:
            shown = seen.text
            action = rng.choice(seen.choices) if seen.choices else domain.expert(task, steps) or ""
            answer = Completion.unsampled(action if marker in action else f"{marker} {action}")
            begun = time.perf_counter()
            result = environment.step(answer.text)
            seconds.append(time.perf_counter() - begun)
            seen, outcome = result.observation, result.outcome
            steps.append(Step(shown, answer, result.action, result.valid, seen.text))
    except Exception as error:  # a plan must work without a sandbox or browser
        fault = (str(error).strip() or type(error).__name__).splitlines()[0]
        guess = Step(shown, Completion.unsampled(marker), None, False, shown)
        steps = [guess] * min(2, max_steps)
    return Trajectory(task.id, task, tuple(steps), outcome or -1), fault


def growth(prompts: Sequence[Messages], tokenize: Tokenize) -> tuple[list[float], ...]:
    """Returns the opening of an episode's prompts, the turns that each adds to the one before, and
    the questions: the end of each prompt that the next one does not repeat."""
    tokens = [tokenize(prompt) for prompt in prompts]
    turns: list[float] = [len(after) - len(before) for before, after in pairwise(tokens)]
    questions: list[float] = [len(a) - shared_length(a, b) for a, b in pairwise(tokens)]
    # Episodes of one step have no turns.
    return [len(tokens[0]) - statistics.mean(questions or [0.0])], turns, questions


def measure(
    domain: Domain,
    episodes: Sequence[Trajectory],
    tokenizers: Mapping[str, Tokenize],
    roles: Mapping[str, str],
) -> dict[str, float]:
    """Returns means over the steps of the episodes, by the name of the assumption. `tokenizers` and
    `roles` (their tasks), by role."""
    lengths = defaultdict[str, list[float]](list)
    for episode in episodes:
        # Without responses, whose lengths are assumed separately, prompts grow only by turns.
        task, silent = episode.task, Completion.unsampled("")
        steps = [replace(step, completion=silent) for step in episode.steps]
        # One prompt per task, shared by all rollouts, if the judge writes tests.
        ends = [0] if domain.capabilities.judge == "tests" else range(1, len(steps) + 1)
        failed = JudgedTrajectory(episode, ((),) * len(steps))
        adapter_prompt = domain.adapter_prompt(RewriteRequest.of(task, "easier", (), [failed]))
        prompts = {
            "acts": [
                domain.policy_prompt(task, steps[:i], s.observation) for i, s in enumerate(steps)
            ],
            "scores": [domain.judge_prompt(task, steps[:end]) for end in ends],
            "rewrites": [domain.critic_prompt(failed, []), adapter_prompt],
        }
        shares = quoted(domain, episode)
        for name, does in roles.items():
            if does == "rewrites":
                lengths[f"{name}_prompt_tokens"] += [
                    len(tokenizers[name](p)) for p in prompts[does]
                ]
                continue
            for quantity, tokens in zip(
                GROWING, growth(prompts[does], tokenizers[name]), strict=True
            ):
                lengths[f"{name}_{quantity}"] += tokens
            lengths[f"{name}_quoted"] += shares.get(does, [])
    means = {
        name: statistics.mean(tokens or [float(name.endswith("_quoted"))])
        for name, tokens in lengths.items()
    }
    # A judge's first prompt already has a step, as long as the others (none for tests).
    for name in (name for name, does in roles.items() if does == "scores"):
        means[f"{name}_opening_tokens"] -= means[f"{name}_turn_tokens"]
    # If each screen replaces the last, a prompt may be shorter than the one before.
    return {name: max(0.0, value) for name, value in means.items()}


def quoted(domain: Domain, episode: Trajectory) -> dict[str, list[float]]:
    """Returns the share of the responses before the last step that its prompts repeat, by the
    role's task; empty for an episode of one step."""
    mark = "a response like no other"
    *before, last = [replace(step, completion=Completion.unsampled(mark)) for step in episode.steps]
    last = replace(last, completion=Completion.unsampled(""))
    prompts = {"acts": domain.policy_prompt(episode.task, before, last.observation)}
    if domain.capabilities.judge == "steps":
        prompts["scores"] = domain.judge_prompt(episode.task, [*before, last])
    return {
        does: [sum(turn.content.count(mark) for turn in prompt) / len(before)] if before else []
        for does, prompt in prompts.items()
    }
