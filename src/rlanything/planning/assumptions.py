"""What a recipe cannot say about a run, with where each number is from."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, fields

from rlanything.config.recipe import Recipe
from rlanything.domains.base import Domain, DomainError, UnitTestDomain
from rlanything.domains.registry import load_domain
from rlanything.planning.figures import Figure, PlanError, Section
from rlanything.planning.prompts import MEASURED, prompt_lengths

_NANO = "measured in runs of recipes/quickstart.yaml, benchmarks/plan.md"
_BOUND = "a bound, max_tokens: how much this model says is not known before it has"


@dataclass(frozen=True, slots=True)
class Assumptions:
    """Tokens of a mean episode, and how it goes. Lengths are means; shares are from 0 to 1."""

    opening_tokens: float
    """The policy's first prompt, but for its question."""
    turn_tokens: float
    """What each step adds to the policy's prompt beside the response."""
    question_tokens: float
    """What ends every prompt of the policy, and is computed anew each time: nothing of a
    transcript, nearly all where each screen takes the place of the last."""
    response_tokens: float
    longest_response_tokens: float
    """The longest among responses that are sampled together."""
    judge_opening_tokens: float
    """The judge's prompt before the first step."""
    judge_turn_tokens: float
    """What each step adds to the judge's prompt beside the response."""
    judge_question_tokens: float
    """What ends every prompt of the judge, and is computed anew each time."""
    judgement_tokens: float
    longest_judgement_tokens: float
    judgement_shared: float
    """Share of a judgement's tokens that another of the same step begins with as well."""
    critic_prompt_tokens: float
    proposal_prompt_tokens: float
    adapter_tokens: float
    """An answer of the adapter."""
    success: float = 0.53
    """Share of the episodes that are won."""
    won_length: float = 0.61
    """Mean length of a won episode over max_steps."""
    policy_tasks: float = 0.83
    """Share of the tasks that lie in policy_window."""
    policy_steps: float = 0.95
    """Share of their responses whose advantage is not 0."""
    judge_tasks: float = 0.63
    """Share of the tasks that lie in judge_window."""
    judge_judgements: float = 0.62
    """Share of their judgements whose advantage is not 0."""
    asked_tasks: float = 0.36
    """Share of the tasks that the adapter is to rewrite."""
    candidates: float = 0.05
    """Pending candidates an iteration, over tasks_per_iteration."""
    environment_seconds: float = 0.0004
    """Of one step of one episode, its rendered prompt included."""
    test_seconds: float = 0.005
    """Of one response on one test, where the judge writes tests."""
    efficiency: float = 1.0
    """Share of a data sheet's FLOP/s and bandwidth that is reached; `cpu` is measured instead."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name in SHARES and not 0 <= value <= 1:
                raise PlanError(f"assumption {each.name}={value:g}: give a share from 0 to 1")
            # Written so that what is no number fails too.
            if not 0 <= value < 1e12 or (each.name == "efficiency" and value == 0):
                raise PlanError(f"assumption {each.name}={value:g}: give a positive number")


SHARES = (
    "success",
    "won_length",
    "policy_tasks",
    "policy_steps",
    "judge_tasks",
    "judge_judgements",
    "judgement_shared",
    "asked_tasks",
    "efficiency",
)


@dataclass(frozen=True, slots=True)
class Assumed:
    """Assumptions, and the source of each."""

    values: Assumptions
    sources: dict[str, str]
    written_tests: bool
    """Whether the judge writes tests, and so whether an episode has one step."""

    def section(self) -> Section:
        return Section(
            "Assumed (change with --assume name=value)",
            tuple(
                Figure(name, value, _unit(name), self.sources[name])
                for name, value in asdict(self.values).items()
                if self.written_tests or name != "test_seconds"
            ),
        )


def _unit(name: str) -> str:
    return "tokens" if name.endswith("tokens") else "s" if name.endswith("seconds") else ""


def assume(recipe: Recipe, given: Sequence[str]) -> Assumed:
    """What is known of a recipe's domain and models, and what a user knows better (`name=value`).

    Raises `PlanError` for an unknown name, for what is no number, and for a domain whose prompts
    can neither be measured nor are given."""
    told = dict(_parsed(each) for each in given)
    try:
        domain = load_domain(recipe.domain.name, recipe.domain.options)
    except DomainError as error:
        raise PlanError(f"domain: {error}") from error
    written_tests = isinstance(domain, UnitTestDomain)
    known = _policy(recipe) | _judge(recipe) | _adapter(recipe) | _windows(recipe)
    known |= (_TESTS if written_tests else {}) | _prompts(recipe, domain, told)
    values = {name: value for name, (value, _) in known.items()} | told
    where = _NANO if recipe.policy.model == "nano" else f"not known for this recipe; {_NANO}"
    sources = {each.name: where for each in fields(Assumptions)}
    sources |= {name: source for name, (_, source) in known.items()}
    sources["efficiency"] = "the data sheet's peak: seconds are a floor until a run measures them"
    if written_tests and "critic_prompt_tokens" not in told:
        # A program is most of what its critic reads, and none was written here.
        values["critic_prompt_tokens"] += values["response_tokens"]
        sources["critic_prompt_tokens"] += "; with a response"
    if "proposal_prompt_tokens" not in told:
        critics = recipe.adapter.critics_per_task
        values["proposal_prompt_tokens"] += critics * values["adapter_tokens"]
        sources["proposal_prompt_tokens"] += f"; with {critics} critics at their longest"
    sources |= dict.fromkeys(told, "given")
    return Assumed(Assumptions(**values), sources, written_tests)


def _parsed(assignment: str) -> tuple[str, float]:
    name, _, text = assignment.partition("=")
    names = [each.name for each in fields(Assumptions)]
    if name not in names:
        raise PlanError(f"assumption {assignment!r}: unknown; known are {', '.join(names)}")
    try:
        return name, float(text)
    except ValueError:
        raise PlanError(f"assumption {assignment!r}: write name=number") from None


Known = dict[str, tuple[float, str]]
"""A value and its source, by name."""


_TESTS: Known = {
    "won_length": (1.0, "episodes of one step"),
    "judge_judgements": (1.0, "a bound: where a task's tests earn different rewards nearly all do"),
    "test_seconds": (0.005, "small programs, benchmarks/sandbox.md; yours may take longer"),
}
"""Where the judge writes tests."""


def _prompts(recipe: Recipe, domain: Domain, told: Collection[str]) -> Known:
    missing = [name for name in MEASURED if name not in told]
    if not missing:
        return {}
    try:
        lengths = prompt_lengths(recipe, domain)
    except DomainError as error:
        remedy = " ".join(f"--assume {name}=NUMBER" for name in missing)
        raise PlanError(f"domain: {error}; or say how long prompts are: {remedy}") from error
    found: Known = {name: (value, lengths.source) for name, value in lengths.values.items()}
    if isinstance(domain, UnitTestDomain) and lengths.step_seconds is not None:
        # What a step runs is not known before, unlike a text game's next line.
        where = "median of the tasks played just now, one after the other"
        found["environment_seconds"] = (lengths.step_seconds, where)
    return found


def _windows(recipe: Recipe) -> Known:
    windows = {name: getattr(recipe.feedback, f"{name}_window") for name in ("policy", "judge")}
    return {
        f"{name}_tasks": (1.0, f"{name}_window is [0, 1]: every task lies in it")
        for name, window in windows.items()
        if tuple(window) == (0, 1)
    }


def _policy(recipe: Recipe) -> Known:
    names = ("response_tokens", "longest_response_tokens")
    if recipe.policy.model == "nano":
        return dict(zip(names, ((8.7, _NANO), (13, _NANO)), strict=True))
    return dict.fromkeys(names, (float(recipe.policy.max_tokens), _BOUND))


def _judge(recipe: Recipe) -> Known:
    names = ("judgement_tokens", "longest_judgement_tokens", "judgement_shared")
    if recipe.judge.model == "nano":
        return dict(zip(names, ((13.3, _NANO), (14, _NANO), (0.67, _NANO)), strict=True))
    longest = (float(recipe.judge.max_tokens), _BOUND)
    shared = (0.0, "its lower bound: long answers seldom begin alike")
    return dict(zip(names, (longest, longest, shared), strict=True))


def _adapter(recipe: Recipe) -> Known:
    if recipe.adapter.model == "nano":
        return {"adapter_tokens": (11.0, _NANO)}
    return {"adapter_tokens": (float(recipe.adapter.max_tokens), _BOUND)}
