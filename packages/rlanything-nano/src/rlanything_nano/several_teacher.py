"""The teacher of models for several worlds: each world's own teacher, with one tokenizer."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain

from rlanything.algorithm.curriculum import label_of
from rlanything.config.worlds import SEVERAL
from rlanything.domains.base import Domain, DomainError, Episode
from rlanything.domains.several import Several
from rlanything.records import Completion, Direction, Step, Task
from rlanything_nano.expert_teacher import LOOKED_AT, ExpertTeacher
from rlanything_nano.teaching import DemonstratingAgent, DrillingTeacher, StepPlan, StepTeacher

LONGEST = (
    "response_tokens",
    "thought_tokens",
    "judgement_tokens",
    "proposal_tokens",
    "max_steps",
    "demonstrations_per_game",
    "copying_updates",
    "policy_epochs",
    "judge_epochs",
    "value_epochs",
    "adapter_epochs",
    "valued_states",
    "continuations",
    "hidden",
    "layers",
    "heads",
    "together",
    "pack_tokens",
    "spaces_apart",
    "episodes",
)
"""Settings of a plan of which the largest holds."""
SHORTEST = ("label_noise", "judged_slip", "learning_rate", "parallel_episodes", "lockstep")
"""Settings of which the smallest holds."""
ADDED = (
    *("games", "judged_games", "valued_games", "criticised_games", "adapter_games"),
    "vocabulary",
)
"""Settings that are added up."""


class SeveralTeacher:
    """The teacher of a policy, judge and adapter that all worlds share (a `StepTeacher`)."""

    def __init__(self, teachers: Mapping[str, StepTeacher]) -> None:
        """`teachers`: by the name of the domain. Raises `DomainError` for domains that cannot share
        a model."""
        for name, teacher in teachers.items():
            if teacher.plan.sight or isinstance(teacher, DrillingTeacher):
                how = "screenshots" if teacher.plan.sight else "exercises of its own"
                raise DomainError(
                    f"domain {name} is taught with {how}, which models of several domains are "
                    "not: build its models alone"
                )
        plans = {name: teacher.plan for name, teacher in teachers.items()}
        # In the mix of a build, a domain's share is that of its own plan's games.
        worlds = [
            {"name": name, "weight": float(plan.games), "options": dict(plan.options)}
            for name, plan in plans.items()
        ]
        self._domain = Several(worlds=worlds)
        self._teachers = dict(zip(self._domain.worlds, teachers.values(), strict=True))
        self.plan = replace(_shared([*plans.values()]), options={"worlds": worlds})

    @property
    def rewrites(self) -> bool:
        """Whether any world has rewrites to teach an adapter."""
        return any(
            not isinstance(teacher, ExpertTeacher) or teacher.rewrites
            for teacher in self._teachers.values()
        )

    def demonstrator(self, slip: float) -> DemonstratingAgent:
        agents = {label: each.demonstrator(slip) for label, each in self._teachers.items()}
        return _Demonstrators(self._domain, agents)

    def interchangeable(self) -> list[list[str]]:
        """Returns the groups of each world, without those that hold a word which another world
        reads or writes: there it may not be swapped."""
        return self._interchangeable

    @cached_property
    def _interchangeable(self) -> list[list[str]]:
        said = {label: _words(each) for label, each in self._domain.worlds.items()}
        return [
            group
            for label, teacher in self._teachers.items()
            for group in teacher.interchangeable()
            if not any({*group} & words for other, words in said.items() if other != label)
        ]

    def judgement(self, task: Task, steps: Sequence[Step], score: int) -> str:
        teacher, own = self._of(task)
        return teacher.judgement(own, steps, score)

    def critic(self, task: Task, steps: Sequence[Step], rejected: Sequence[int]) -> str:
        teacher, own = self._of(task)
        return teacher.critic(own, steps, rejected)

    def proposal(self, root: Task, direction: Direction, rng: random.Random) -> str | None:
        teacher, own = self._of(root)
        return teacher.proposal(own, direction, rng)

    def _of(self, task: Task) -> tuple[StepTeacher, Task]:
        return self._teachers[label_of(task.id)], self._domain.of(task)[1]


class _Demonstrators:
    """The demonstrators of all worlds, each of which sees the episodes of its own."""

    def __init__(self, domain: Several, agents: Mapping[str, DemonstratingAgent]) -> None:
        self._domain = domain
        self._agents = agents

    def respond(self, episodes: Sequence[Episode], seeds: Sequence[int]) -> list[Completion]:
        by_world: dict[str, list[int]] = defaultdict(list)
        for i, episode in enumerate(episodes):
            by_world[label_of(episode.task.id)].append(i)
        given: dict[int, Completion] = {}
        for label, own in by_world.items():
            seen = [replace(episodes[i], task=self._domain.of(episodes[i].task)[1]) for i in own]
            answers = self._agents[label].respond(seen, [seeds[i] for i in own])
            given |= zip(own, answers, strict=True)
        return [given[i] for i in range(len(episodes))]

    def release_cache(self) -> None:
        for agent in self._agents.values():
            agent.release_cache()


def _shared(plans: Sequence[StepPlan]) -> StepPlan:
    """Returns a plan with which all worlds can be learned."""
    slips = [plan.slip for plan in plans if plan.slip is not None]
    return replace(
        plans[0],
        domain=SEVERAL,
        decoding="choices" if all(plan.decoding == "choices" for plan in plans) else "free",
        slip=min(slips) if len(slips) == len(plans) else None,
        **{name: max(getattr(plan, name) for plan in plans) for name in LONGEST},
        **{name: min(getattr(plan, name) for plan in plans) for name in SHORTEST},
        **{name: sum(getattr(plan, name) for plan in plans) for name in ADDED},
    )


def _words(domain: Domain) -> set[str]:
    """Returns the words of a domain's first prompts, actions and expert's answers."""
    environment = domain.environment()
    texts: list[str] = []
    for task in domain.tasks("train", LOOKED_AT, 0):
        seen = environment.reset(task)
        prompt = domain.policy_prompt(task, (), seen.text)
        texts += [domain.expert(task, ()) or "", *(seen.choices or ())]
        texts += [message.content for message in prompt]
    return {*chain.from_iterable(text.split() for text in texts)}
