"""What a recipe cannot say about a run, with where each number is from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace

from rlanything.config import Recipe
from rlanything.plan.figures import Figure, PlanError, Section

_RUN = "measured in runs of recipes/quickstart.yaml, benchmarks/plan.md"
_PAPER_SIZE = "whole rooms in Qwen's tokens, measured in benchmarks/plan.md"
_BOUND = "its upper bound, max_tokens: how much this model says is not known before it has"


@dataclass(frozen=True, slots=True)
class Assumptions:
    """Tokens of a mean episode, and how it goes. Lengths are means; shares are from 0 to 1."""

    opening_tokens: float = 68
    """The policy's first prompt."""
    turn_tokens: float = 41
    """What each step adds to the policy's prompt beside the response."""
    response_tokens: float = 8.7
    longest_response_tokens: float = 13
    """The longest among responses that are sampled together."""
    judge_opening_tokens: float = 84
    """The judge's prompt before the first step."""
    judge_turn_tokens: float = 40
    """What each step adds to the judge's prompt beside the response."""
    judge_question_tokens: float = 8
    """What ends every prompt of the judge, and is computed anew each time."""
    judgement_tokens: float = 13.3
    longest_judgement_tokens: float = 14
    judgement_shared: float = 0.67
    """Share of a judgement's tokens that another of the same step begins with as well."""
    critic_prompt_tokens: float = 208
    proposal_prompt_tokens: float = 128
    adapter_tokens: float = 48
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
    sources: dict[str, str] = field(default_factory=dict)

    def section(self) -> Section:
        units = {"environment_seconds": "s"}
        return Section(
            "Assumed (change with --assume name=value)",
            tuple(
                Figure(
                    name,
                    value,
                    units.get(name, "tokens" if name.endswith("tokens") else ""),
                    self.sources[name],
                )
                for name, value in asdict(self.values).items()
            ),
        )


def assume(recipe: Recipe, given: Sequence[str]) -> Assumed:
    """The defaults for a recipe's domain and models, and what a user knows better (`name=value`).

    Raises `PlanError` for an unknown name and for what is no number."""
    names = [each.name for each in fields(Assumptions)]
    where = _RUN
    if recipe.policy.model != "nano":
        where = "measured with the nano models, benchmarks/plan.md; not known for these"
    if recipe.domain.name != "alfworld":
        where = f"measured on AlfWorld, not on {recipe.domain.name}: give your own"
    sources = dict.fromkeys(names, where)
    values: dict[str, float] = {}
    for role, known in (("policy", _policy(recipe)), ("judge", _judge(recipe))):
        if getattr(recipe, role).model != "nano":
            values |= {name: value for name, (value, _) in known.items()}
            sources |= {name: source for name, (_, source) in known.items()}
    if recipe.adapter.model != "nano":
        values |= {"critic_prompt_tokens": 420, "proposal_prompt_tokens": 280}
        sources |= dict.fromkeys(("critic_prompt_tokens", "proposal_prompt_tokens"), _PAPER_SIZE)
    values["adapter_tokens"] = recipe.adapter.max_tokens
    sources["adapter_tokens"] = "its upper bound, max_tokens"
    sources["efficiency"] = "the data sheet's peak: seconds are a floor until a run measures them"
    for each in given:
        name, _, text = each.partition("=")
        if name not in names:
            raise PlanError(f"assumption {each!r}: unknown; known are {', '.join(names)}")
        try:
            values[name] = float(text)
        except ValueError:
            raise PlanError(f"assumption {each!r}: write name=number") from None
        sources[name] = "given"
    return Assumed(replace(Assumptions(), **values), sources)


def _policy(recipe: Recipe) -> dict[str, tuple[float, str]]:
    longest = float(recipe.policy.max_tokens)
    return {
        "opening_tokens": (220, _PAPER_SIZE),
        "turn_tokens": (96, _PAPER_SIZE),
        "response_tokens": (longest, _BOUND),
        "longest_response_tokens": (longest, _BOUND),
    }


def _judge(recipe: Recipe) -> dict[str, tuple[float, str]]:
    longest = float(recipe.judge.max_tokens)
    return {
        "judge_opening_tokens": (250, _PAPER_SIZE),
        "judge_turn_tokens": (89, _PAPER_SIZE),
        "judge_question_tokens": (14, _PAPER_SIZE),
        "judgement_tokens": (longest, _BOUND),
        "longest_judgement_tokens": (longest, _BOUND),
        "judgement_shared": (0.0, "its lower bound: long answers seldom begin alike"),
    }
