"""The numbers of a run that its recipe does not say: lengths of prompts are measured in a few of
its episodes, played at random, and the others are as in runs of the quickstart."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

from transformers import AutoTokenizer

from rlanything.config.recipe import Recipe
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
from rlanything.planning.report import PlanError, PlanSection, Quantity
from rlanything.planning.screenshots import NONE_SHOWN, screenshot_tokens
from rlanything.records import Completion, JudgedTrajectory, Messages, Step, Task, Trajectory
from rlanything.seeds import derive

TASKS = 8
CHARACTERS = 3.1
"""Characters in a token, where there is no tokenizer: Qwen's on AlfWorld (benchmarks/plan.md)."""
MEASURED = ("opening_tokens", "turn_tokens", "question_tokens")
MEASURED += (*(f"judge_{name}" for name in MEASURED), "adapter_prompt_tokens")
"""The assumptions that are measured here."""
QUOTED = ("quoted", "judge_quoted")
"""Those of which a prompt's text tells enough."""

Known: TypeAlias = dict[str, tuple[float, str]]
Tokenize: TypeAlias = Callable[[Messages], Sequence[Any]]
"""A value and its source, by the name of the assumption; and the tokens of a rendered chat."""
_NANO = "measured in runs of recipes/quickstart.yaml (benchmarks/plan.md)"


@dataclass(frozen=True, slots=True)
class Assumptions:
    """Means over an iteration; shares are from 0 to 1.

    A prompt is an opening (the first prompt without its question), so many turns (what a step adds
    to it beside the response), and a question: its end, computed anew each time. That is none in a
    transcript, and nearly all where each screen takes the place of the last. Screenshots of so many
    tokens each are part of the question. `quoted`: the share of
    the responses so far that a prompt repeats, all in a transcript; a judge's always has the one
    that is judged. The adapter's prompts are without the critics that a proposal quotes.
    `candidates`: those pending in an iteration, over tasks_per_iteration. `utilisation`: the share
    of a GPU's peak that is reached where many tokens are computed together and, for decoding, where
    each pass reads all for a few. The bandwidths: bytes a second that one GPU receives from others
    of its machine, and from other machines."""

    opening_tokens: float
    turn_tokens: float
    question_tokens: float
    image_tokens: float
    response_tokens: float
    quoted: float
    judge_opening_tokens: float
    judge_turn_tokens: float
    judge_question_tokens: float
    judge_image_tokens: float
    judgement_tokens: float
    judge_quoted: float
    adapter_prompt_tokens: float
    adapter_tokens: float
    episode_steps: float
    policy_trained: float
    judge_trained: float
    rewritten_tasks: float
    """Share of the tasks that the adapter is to rewrite."""
    candidates: float
    environment_seconds: float
    test_seconds: float
    utilisation: float
    decoding_utilisation: float
    machine_bandwidth: float
    network_bandwidth: float
    sources: Mapping[str, str]
    """By name, where a number is from."""
    writes_tests: bool
    """Whether the judge writes tests, and so whether an episode has one step."""
    rewrites_tasks: bool
    """Whether there is an adapter: a run makes none for a domain that cannot rewrite its tasks."""

    def section(self, apart: bool) -> PlanSection:
        """Returns the lines of a plan, with bandwidths where GPUs are `apart`."""
        units = {"tokens": "tokens", "seconds": "s", "steps": "steps", "bandwidth": "bytes/s"}
        unread = [] if self.writes_tests else ["test_seconds"]
        unread += [] if apart else ["machine_bandwidth", "network_bandwidth"]
        unread += [name for name, source in self.sources.items() if source == NONE_SHOWN]
        lines = (
            Quantity(name, getattr(self, name), units.get(name.split("_")[-1], ""), source)
            for name, source in self.sources.items()
            if name not in unread
        )
        return PlanSection("Assumed (change with --assume name=value)", tuple(lines))


NAMES = tuple(field.name for field in fields(Assumptions) if field.type == "float")


def assume(recipe: Recipe, given: Sequence[str]) -> Assumptions:
    """Returns the assumptions for a recipe's domain and models; `given` (`name=value`) takes
    precedence.

    Raises `PlanError` for an unknown name, for a value that is no number or out of range, and for a
    domain whose prompts can neither be measured nor are given."""
    overrides = dict(_parsed(assignment) for assignment in given)
    missing = [name for name in MEASURED if name not in overrides]
    try:
        domain = load_domain(recipe.domain.name, recipe.domain.options)
        lengths = prompt_lengths(recipe, domain) if missing else {}
    except DomainError as error:
        remedy = "; or give the lengths of prompts:" if isinstance(error, MissingData) else ""
        names = "".join(f" --assume {name}=NUMBER" for name in missing if remedy)
        raise PlanError(f"domain: {error}{remedy}{names}") from error
    writes_tests = domain.capabilities.judge == "tests"
    seen = screenshot_tokens(recipe, domain)
    kept: Known = {}
    rewrites = domain.capabilities.rewrites_tasks or recipe.adapter.name != "llm"
    if not rewrites:
        none = 0.0, "none: this domain cannot rewrite its tasks"
        kept = {"rewritten_tasks": none, "candidates": none}
    known = _usual(recipe, writes_tests) | kept | lengths | seen | overrides
    known["episode_steps"] = (max(1, round(known["episode_steps"][0])), known["episode_steps"][1])
    values = {name: known[name][0] for name in NAMES}
    sources = {name: known[name][1] for name in NAMES}
    return Assumptions(
        **values, sources=sources, writes_tests=writes_tests, rewrites_tasks=rewrites
    )


def _parsed(assignment: str) -> tuple[str, tuple[float, str]]:
    name, _, text = assignment.partition("=")
    if name not in NAMES:
        raise PlanError(f"assumption {assignment!r}: unknown; known are {', '.join(NAMES)}")
    try:
        value = float(text)
    except ValueError:
        raise PlanError(f"assumption {assignment!r}: write name=number") from None
    share = name.endswith(("_trained", "rewritten_tasks", "utilisation", "quoted"))
    divides = name.endswith(("utilisation", "bandwidth"))
    # Written so that NaN fails too.
    if not 0 <= value <= (1 if share else 1e12) or (divides and value == 0):
        wanted = "share from 0 to 1" if share else "positive number"
        raise PlanError(f"assumption {name}={value:g}: give a {wanted}")
    return name, (value, "given")


def _usual(recipe: Recipe, writes_tests: bool) -> Known:
    """Returns what the quickstart's runs had; for answers of other models the longest allowed."""
    policy = 1.0 if tuple(recipe.feedback.policy_window) == (0, 1) else 0.83
    judge = 1.0 if tuple(recipe.feedback.judge_window) == (0, 1) else 0.63
    source = _NANO if recipe.policy.model == "nano" else f"not known for this recipe; {_NANO}"
    known: Known = {
        "quoted": (1.0, "all, as in a transcript"),
        "judge_quoted": (1.0, "all, as in a transcript"),
        "episode_steps": (0.8 * recipe.loop.max_steps, f"0.8 of max_steps, {_NANO}"),
        "policy_trained": (policy, f"share of the tasks in policy_window, {_NANO}"),
        "judge_trained": (0.62 * judge, _NANO),
        "rewritten_tasks": (0.36, source),
        "candidates": (0.05, source),
        "environment_seconds": (0.0004, source),
        "test_seconds": (0.005, "small programs, benchmarks/sandbox.md; yours may take longer"),
        "utilisation": (0.3, "updates on an H200: 0.26 to 0.37 at 7B, 0.07 to 0.14 at 0.5B"),
        "decoding_utilisation": (0.05, "a guess for vLLM; the embedded engine, at 0.5B: 0.002"),
        "machine_bandwidth": (450e9, "NVLink of an H100 or H200, data sheet: 900 GB/s, half a way"),
        "network_bandwidth": (50e9, "InfiniBand NDR, a port of 400 Gb/s a GPU, as a DGX H200 has"),
    }
    if writes_tests:
        tested = "where a task's tests earn different rewards, nearly all train"
        known["episode_steps"] = (1.0, "one: the judge writes tests")
        known["judge_trained"] = (judge, tested)
    nano = {"policy": ("response", 8.7), "judge": ("judgement", 13.3), "adapter": ("adapter", 11.0)}
    for name, (answer, tokens) in nano.items():
        role = getattr(recipe, name)
        longest = f"an upper bound, {name}.max_tokens: real lengths are known after a run"
        bound = (float(role.max_tokens), longest)
        known[f"{answer}_tokens"] = (tokens, _NANO) if role.model == "nano" else bound
    return known


def prompt_lengths(recipe: Recipe, domain: Domain) -> Known:
    """Returns mean lengths in `TASKS` training tasks, or in the domain's stand-ins where the
    recipe's data are not here, and the time of a step if one could be taken. Raises `DomainError`.
    """
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
    for role in ("policy", "judge", "adapter"):
        tokenizers[role], name = tokenizer_of(shipped.resolve(getattr(recipe, role).model, role))
        source += f"; {role}: {name}"
    lengths = measure(domain, [episode for episode, _ in played], tokenizers)
    known = {name: (value, source) for name, value in lengths.items()}
    if seconds:
        known["environment_seconds"] = statistics.median(seconds), "median of steps taken just now"
    return known


def tokenizer_of(model: str) -> tuple[Tokenize, str]:
    """Returns a model's tokenizer if it is on this machine, else a rough one, and its name. Raises
    `ModelError` for one that is damaged."""
    doing = f"cannot read the tokenizer of model {model!r}"
    with reading(doing, "Mend the files in its folder, or take another model."):
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
    """Returns a chat cut into tokens of so many characters; its markup counts too."""
    turns = [f"<|im_start|>{turn.role}\n{turn.content}<|im_end|>\n" for turn in messages]
    text = "".join(turns) + "<|im_start|>assistant\n"
    # Whole ones only: the tokens of a beginning are the beginning of the tokens.
    ends = [int(i * CHARACTERS) for i in range(int(len(text) / CHARACTERS) + 1)]
    return [text[start:end] for start, end in pairwise(ends)]


def play(
    domain: Domain, task: Task, max_steps: int, seconds: list[float]
) -> tuple[Trajectory, str | None]:
    """Plays a task with random choices, or the expert's where the environment lists none, and adds
    the time of each step to `seconds`. Where it cannot be played, its steps are guesses, all like
    what was seen last, and the second result is the reason."""
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
    except Exception as error:  # a missing sandbox or browser must not stop a plan
        fault = (str(error).strip() or type(error).__name__).splitlines()[0]
        guess = Step(shown, Completion.unsampled(marker), None, False, shown)
        steps = [guess] * min(2, max_steps)
    return Trajectory(task.id, task, tuple(steps), outcome or -1), fault


def growth(prompts: Sequence[Messages], tokenize: Tokenize) -> tuple[list[float], ...]:
    """Returns the opening of an episode's prompts, the turns that each adds to the one before, and
    the questions: what ends each but the last and is not in the next."""
    tokens = [tokenize(prompt) for prompt in prompts]
    turns: list[float] = [len(after) - len(before) for before, after in pairwise(tokens)]
    questions: list[float] = [len(a) - shared_length(a, b) for a, b in pairwise(tokens)]
    # Episodes of one step have no turns.
    return [len(tokens[0]) - statistics.mean(questions or [0.0])], turns, questions


def measure(
    domain: Domain, episodes: Sequence[Trajectory], tokenizers: Mapping[str, Tokenize]
) -> dict[str, float]:
    """Returns means over the steps of the episodes, by the name of the assumption."""
    lengths: dict[str, list[float]] = {name: [] for name in (*MEASURED, *QUOTED)}
    for episode in episodes:
        # Without responses, whose lengths are assumed apart, prompts grow by turns alone.
        task, silent = episode.task, Completion.unsampled("")
        steps = [replace(step, completion=silent) for step in episode.steps]
        asked = [domain.policy_prompt(task, steps[:i], s.observation) for i, s in enumerate(steps)]
        # One prompt a task, the same for all rollouts, where the judge writes tests.
        ends = [0] if domain.capabilities.judge == "tests" else range(1, len(steps) + 1)
        judged = [domain.judge_prompt(task, steps[:end]) for end in ends]
        failed = JudgedTrajectory(episode, ((),) * len(steps))
        adapter_prompt = domain.adapter_prompt(RewriteRequest.of(task, "easier", (), [failed]))
        adapted = domain.critic_prompt(failed, []), adapter_prompt
        grown = growth(asked, tokenizers["policy"]) + growth(judged, tokenizers["judge"])
        grown += ([float(len(tokenizers["adapter"](chat))) for chat in adapted],)
        for name, tokens in zip(MEASURED, grown, strict=True):
            lengths[name] += tokens
        for name, shares in quoted(domain, episode).items():
            lengths[name] += shares
    nothing = {name: [float(name in QUOTED)] for name in lengths}
    means = {name: statistics.mean(tokens or nothing[name]) for name, tokens in lengths.items()}
    # A judge's first prompt holds a step already, as long as the others (none for tests).
    means["judge_opening_tokens"] -= means["judge_turn_tokens"]
    # Where a screen takes the place of the last, a prompt may be shorter than the one before.
    return {name: max(0.0, value) for name, value in means.items()}


def quoted(domain: Domain, episode: Trajectory) -> dict[str, list[float]]:
    """Returns the share of the responses before the last step that its prompts repeat; nothing for
    an episode of one step."""
    mark = "a response like no other"
    *before, last = [replace(step, completion=Completion.unsampled(mark)) for step in episode.steps]
    last = replace(last, completion=Completion.unsampled(""))
    prompts = {"quoted": domain.policy_prompt(episode.task, before, last.observation)}
    if domain.capabilities.judge == "steps":
        prompts["judge_quoted"] = domain.judge_prompt(episode.task, [*before, last])
    return {
        name: [sum(turn.content.count(mark) for turn in prompt) / len(before)] if before else []
        for name, prompt in prompts.items()
    }
