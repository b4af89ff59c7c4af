"""Who takes part in an iteration, with what each one's model generates and learns from."""

from __future__ import annotations

from dataclasses import dataclass

from rlanything.config import Recipe
from rlanything.plan.assumptions import Assumptions
from rlanything.plan.episodes import (
    Batches,
    batches,
    group_count,
    judge_leaves,
    policy_leaves,
)
from rlanything.plan.generation import (
    Generation,
    adapter_generation,
    judge_generation,
    policy_generation,
)
from rlanything.role_settings import Role


@dataclass(frozen=True, slots=True)
class Player:
    """A role and its work in an iteration."""

    name: str
    role: Role
    generated: Generation
    answer_tokens: float
    learned: Batches | None
    """None for a role that does not train."""


def players(recipe: Recipe, assumed: Assumptions) -> list[Player]:
    """In the order in which they speak; no judge where the oracle judges."""
    groups = group_count(recipe, assumed)
    tasks = round(groups * assumed.policy_tasks)
    learned = batches(policy_leaves(recipe, assumed), tasks, recipe.policy)
    generated = policy_generation(recipe, assumed)
    found = [Player("policy", recipe.policy, generated, assumed.response_tokens, learned)]
    judge = recipe.judge
    if judge.oracle_noise is None:
        tasks = round(groups * assumed.judge_tasks)
        learned = batches(judge_leaves(recipe, assumed), tasks, judge) if judge.trains else None
        generated = judge_generation(recipe, assumed)
        found.append(Player("judge", judge, generated, assumed.judgement_tokens, learned))
    generated = adapter_generation(recipe, assumed)
    found.append(Player("adapter", recipe.adapter, generated, assumed.adapter_tokens, None))
    return found
