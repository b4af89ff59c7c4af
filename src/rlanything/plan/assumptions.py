"""What a recipe cannot say about a run, with where each number is from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields

from rlanything.config import Recipe
from rlanything.environments.base import DomainError, EpisodeError
from rlanything.plan.figures import Figure, PlanError, Section
from rlanything.plan.prompts import MEASURED, prompt_lengths

_NANO = "measured in runs of recipes/quickstart.yaml, benchmarks/plan.md"
_BOUND = "a bound, max_tokens: how much this model says is not known before it has"
_WHOLE_ROOMS = (219, 94, 253, 85, 10, 430, 287)
"""`MEASURED`, of AlfWorld's whole rooms in Qwen's tokens with the chat's markup: for recipes that
name downloaded games which are not on this machine."""


@dataclass(frozen=True, slots=True)
class Assumptions:
    """Tokens of a mean episode, and how it goes. Lengths are means; shares are from 0 to 1."""

    opening_tokens: float
    """The policy's first prompt."""
    turn_tokens: float
    """What each step adds to the policy's prompt beside the response."""
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

    def section(self) -> Section:
        return Section(
            "Assumed (change with --assume name=value)",
            tuple(
                Figure(name, value, _unit(name), self.sources[name])
                for name, value in asdict(self.values).items()
            ),
        )


def _unit(name: str) -> str:
    return "tokens" if name.endswith("tokens") else "s" if name.endswith("seconds") else ""


def assume(recipe: Recipe, given: Sequence[str]) -> Assumed:
    """What is known of a recipe's domain and models, and what a user knows better (`name=value`).

    Raises `PlanError` for an unknown name and for what is no number."""
    told = dict(_parsed(each) for each in given)
    known = _prompts(recipe) | _policy(recipe) | _judge(recipe) | _adapter(recipe)
    values = {name: value for name, (value, _) in known.items()}
    where = _NANO if recipe.policy.model == "nano" else f"not known for these models; {_NANO}"
    if recipe.domain.name != "alfworld":
        where = f"not known for {recipe.domain.name}: give your own; {_NANO}"
    sources = {each.name: where for each in fields(Assumptions)}
    sources |= {name: source for name, (_, source) in known.items()}
    sources["efficiency"] = "the data sheet's peak: seconds are a floor until a run measures them"
    if "proposal_prompt_tokens" not in told:
        critics = recipe.adapter.critics_per_task
        values["proposal_prompt_tokens"] += critics * values["adapter_tokens"]
        sources["proposal_prompt_tokens"] += f"; with {critics} critics at their longest"
    return Assumed(Assumptions(**(values | told)), sources | dict.fromkeys(told, "given"))


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


def _prompts(recipe: Recipe) -> Known:
    try:
        lengths = prompt_lengths(recipe)
    except (DomainError, EpisodeError) as error:
        if recipe.domain.name != "alfworld" or "data" not in recipe.domain.options:
            raise PlanError(f"domain: {error}") from error
        where = "data are not here: AlfWorld's whole rooms in Qwen's tokens, benchmarks/plan.md"
        return {name: (value, where) for name, value in zip(MEASURED, _WHOLE_ROOMS, strict=True)}
    return {name: (value, lengths.source) for name, value in lengths.values.items()}


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
