"""The numbers of a run that its recipe does not say, with the source of each."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, fields

from rlanything.config.recipe import Recipe
from rlanything.domains.base import Domain, DomainError, UnitTestDomain
from rlanything.domains.registry import load_domain
from rlanything.planning.prompts import MEASURED, prompt_lengths
from rlanything.planning.quantities import PlanError, PlanSection, Quantity

_NANO = "measured in runs of recipes/quickstart.yaml (benchmarks/plan.md)"
_SHARES = ("_trained", "rewritten_tasks", "utilisation")
"""How the names of shares end."""


@dataclass(frozen=True, slots=True)
class Assumptions:
    """Means over an iteration. Shares are from 0 to 1."""

    opening_tokens: float
    """The policy's first prompt without its question."""
    turn_tokens: float
    """Tokens that each step adds to the policy's prompt beside the response."""
    question_tokens: float
    """The end of every prompt of the policy, computed anew each time: none in a transcript, nearly
    all of it where each screen takes the place of the last."""
    response_tokens: float
    judge_opening_tokens: float
    """The judge's prompt before the first step."""
    judge_turn_tokens: float
    """Tokens that each step adds to the judge's prompt beside the response."""
    judge_question_tokens: float
    """The end of every prompt of the judge, computed anew each time."""
    judgement_tokens: float
    adapter_prompt_tokens: float
    """A prompt of the adapter, without the critics that a proposal quotes."""
    adapter_tokens: float
    """An answer of the adapter."""
    episode_steps: float
    policy_trained: float
    """Share of the responses that train."""
    judge_trained: float
    """Share of the judgements that train."""
    rewritten_tasks: float = 0.36
    """Share of the tasks that the adapter is to rewrite."""
    candidates: float = 0.05
    """Pending candidates an iteration, over tasks_per_iteration."""
    environment_seconds: float = 0.0004
    """Time of one step of one episode."""
    test_seconds: float = 0.005
    """Time of one response on one test, where the judge writes tests."""
    utilisation: float = 0.3
    """Share of a GPU's peak that is reached where many tokens are computed together."""
    decoding_utilisation: float = 0.05
    """The same where answers grow token by token: each pass reads every weight for a few rows."""

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if name.endswith(_SHARES) and not 0 <= value <= 1:
                raise PlanError(f"assumption {name}={value:g}: give a share from 0 to 1")
            # Written so that NaN fails too.
            if not 0 <= value < 1e12 or ("utilisation" in name and value == 0):
                raise PlanError(f"assumption {name}={value:g}: give a positive number")


@dataclass(frozen=True, slots=True)
class Assumed:
    """Assumptions, and the source of each."""

    values: Assumptions
    sources: dict[str, str]
    writes_tests: bool
    """Whether the judge writes tests, and so whether an episode has one step."""

    def section(self) -> PlanSection:
        units = {"tokens": "tokens", "seconds": "s", "steps": "steps"}
        lines = (
            Quantity(name, value, units.get(name.rpartition("_")[2], ""), self.sources[name])
            for name, value in asdict(self.values).items()
            if self.writes_tests or name != "test_seconds"
        )
        return PlanSection("Assumed (change with --assume name=value)", tuple(lines))


def assume(recipe: Recipe, given: Sequence[str]) -> Assumed:
    """Returns the assumptions for a recipe's domain and models; `given` (`name=value`) takes
    precedence.

    Raises `PlanError` for an unknown name, for a value that is not a number, and for a domain whose
    prompts can neither be measured nor are given."""
    overrides = dict(_parsed(assignment) for assignment in given)
    try:
        domain = load_domain(recipe.domain.name, recipe.domain.options)
    except DomainError as error:
        raise PlanError(f"domain: {error}") from error
    writes_tests = isinstance(domain, UnitTestDomain)
    known = _answers(recipe) | _shares(recipe, writes_tests) | _prompts(recipe, domain, overrides)
    values = {name: value for name, (value, _) in known.items()} | overrides
    source = _NANO if recipe.policy.model == "nano" else f"not known for this recipe; {_NANO}"
    sources = {field.name: source for field in fields(Assumptions)}
    sources |= {name: where for name, (_, where) in known.items()}
    sources["test_seconds"] = "small programs, benchmarks/sandbox.md; yours may take longer"
    sources["utilisation"] = "a usual share; not measured on a GPU; `cpu` is measured instead"
    sources["decoding_utilisation"] = "a guess; not measured on a GPU; `cpu` is measured instead"
    return Assumed(Assumptions(**values), sources | dict.fromkeys(overrides, "given"), writes_tests)


def _parsed(assignment: str) -> tuple[str, float]:
    name, _, text = assignment.partition("=")
    names = [field.name for field in fields(Assumptions)]
    if name not in names:
        raise PlanError(f"assumption {assignment!r}: unknown; known are {', '.join(names)}")
    try:
        return name, float(text)
    except ValueError:
        raise PlanError(f"assumption {assignment!r}: write name=number") from None


Known = dict[str, tuple[float, str]]
"""A value and its source, by name."""


def _answers(recipe: Recipe) -> Known:
    """Returns the lengths of answers: measured for the shipped models, else the longest allowed."""
    measured = {
        "response": ("policy", 8.7),
        "judgement": ("judge", 13.3),
        "adapter": ("adapter", 11),
    }
    lengths: Known = {}
    for answer, (name, tokens) in measured.items():
        role = getattr(recipe, name)
        longest = f"an upper bound, {name}.max_tokens: real lengths are known after a run"
        lengths[f"{answer}_tokens"] = (
            (tokens, _NANO) if role.model == "nano" else (float(role.max_tokens), longest)
        )
    return lengths


def _shares(recipe: Recipe, writes_tests: bool) -> Known:
    """Returns the length of episodes and the shares that train, as in the quickstart."""
    feedback = recipe.feedback
    policy = 1.0 if tuple(feedback.policy_window) == (0, 1) else 0.83
    judge = 1.0 if tuple(feedback.judge_window) == (0, 1) else 0.63
    steps = (0.8 * recipe.loop.max_steps, f"0.8 of max_steps, {_NANO}")
    tested = "where a task's tests earn different rewards, nearly all train"
    return {
        "episode_steps": (1.0, "one: the judge writes tests") if writes_tests else steps,
        "policy_trained": (policy, f"share of the tasks in policy_window, {_NANO}"),
        "judge_trained": (judge, tested) if writes_tests else (0.62 * judge, _NANO),
    }


def _prompts(recipe: Recipe, domain: Domain, overrides: Collection[str]) -> Known:
    missing = [name for name in MEASURED if name not in overrides]
    if not missing:
        return {}
    try:
        lengths = prompt_lengths(recipe, domain)
    except DomainError as error:
        remedy = " ".join(f"--assume {name}=NUMBER" for name in missing)
        raise PlanError(f"domain: {error}; or give the lengths of prompts: {remedy}") from error
    known: Known = {name: (value, lengths.source) for name, value in lengths.values.items()}
    if lengths.step_seconds is not None:
        known["environment_seconds"] = (lengths.step_seconds, "median of steps taken just now")
    return known
