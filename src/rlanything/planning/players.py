"""Who takes part in an iteration, with what each one's model generates and learns from."""

from __future__ import annotations

from dataclasses import dataclass

from rlanything.config.recipe import Recipe
from rlanything.config.roles import RoleConfig
from rlanything.planning.assumptions import Assumptions
from rlanything.planning.episodes import (
    Batches,
    batches,
    group_count,
    judge_leaves,
    policy_leaves,
    written_test_leaves,
)
from rlanything.planning.generation import (
    Generation,
    adapter_generation,
    judge_generation,
    policy_generation,
    written_test_generation,
)


@dataclass(frozen=True, slots=True)
class Player:
    """A role and its work in an iteration."""

    name: str
    role: RoleConfig
    generated: Generation
    answer_tokens: float
    learned: Batches | None
    """None for a role that does not train."""
    answers: str
    """What they are."""


def players(recipe: Recipe, assumed: Assumptions, written_tests: bool) -> list[Player]:
    """In the order in which they speak; no judge where the oracle judges.

    `written_tests`: whether the judge writes tests for a task instead of scores for its steps."""
    groups = group_count(recipe, assumed)
    tasks = round(groups * assumed.policy_tasks)
    learned = batches(policy_leaves(recipe, assumed), tasks, recipe.policy)
    generated = policy_generation(recipe, assumed)
    answer = assumed.response_tokens
    found = [Player("policy", recipe.policy, generated, answer, learned, "one a step")]
    judge = recipe.judge
    if judge.name == "llm":
        tasks = round(groups * assumed.judge_tasks)
        m, sharing = judge.samples_per_step, recipe.loop.rollouts_per_task
        if written_tests:
            leaves, generated = written_test_leaves, written_test_generation
            what = f"tests: {groups} tasks x {m}, shared by the {sharing} rollouts of each"
        else:
            leaves, generated, what = judge_leaves, judge_generation, f"{m} judgements a step"
        learned = batches(leaves(recipe, assumed), tasks, judge) if judge.trains else None
        answer = assumed.judgement_tokens
        found.append(Player("judge", judge, generated(recipe, assumed), answer, learned, what))
    generated, answer = adapter_generation(recipe, assumed), assumed.adapter_tokens
    found.append(Player("adapter", recipe.adapter, generated, answer, None, "critics and tries"))
    return found
