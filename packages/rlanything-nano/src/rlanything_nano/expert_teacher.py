"""The default teacher of a domain: examples from its expert, oracle and rewrites.

The policy learns from the expert, which slips and continues from there. The judge learns to name
the expert's action and to score like the oracle, the adapter from the domain's `rewrites`.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from rlanything.domains.base import Domain, DomainError, Episode, InvalidTask
from rlanything.records import Direction, Step, Task
from rlanything_nano.teaching import Demonstrator, RewritableDomain, StepPlan

PLAN = StepPlan(
    response_tokens=64,
    thought_tokens=24,
    judgement_tokens=96,
    proposal_tokens=48,
    max_steps=32,
    games=2000,
    demonstrations_per_game=1,
    slip=None,
    policy_epochs=3,
    judged_games=600,
    label_noise=0.15,
    judge_epochs=4,
    criticised_games=50,
    adapter_games=300,
    adapter_epochs=1,
    hidden=64,
    layers=3,
    episodes=200,
)
"""Plan for small games: a build takes minutes. The lengths are upper limits; models stop by
themselves."""
LOOKED_AT = 64
"""Number of training tasks that are inspected for what a domain offers."""


class ExpertTeacher:
    """The teacher of any domain with an `expert` and an `oracle` (a `StepTeacher`). A subclass,
    returned by the domain's `nano_teacher`, may override its texts."""

    def __init__(self, name: str, domain: Domain, plan: StepPlan = PLAN) -> None:
        """`name`: the domain's, for messages. Raises `DomainError`, in one line, for a domain
        without expert or oracle."""
        self._domain = domain
        self._tasks = tuple(domain.tasks("train", LOOKED_AT, plan.seed))
        answers = [domain.expert(task, ()) for task in self._tasks]
        self._answers = tuple(answer for answer in answers if answer is not None)
        lacking = [
            *([] if self._answers else ["an expert(task, steps), from which the policy learns"]),
            *(
                ["an oracle(task, steps), from which the judge learns"]
                if domain.oracle(self._tasks[0], ()) is None
                else []
            ),
        ]
        if lacking:
            raise DomainError(
                f"domain {name} cannot teach nano models of its own: it lacks "
                f"{' and '.join(lacking)}; add it to the class (packages/rlanything-nano/README.md)"
            )
        marked = all(domain.action_marker in answer for answer in self._answers)
        self.plan = replace(plan, decoding="choices" if marked else "free")

    @property
    def rewrites(self) -> bool:
        """Whether the domain has rewrites to teach an adapter."""
        return isinstance(self._domain, RewritableDomain)

    def demonstrator(self, slip: float) -> Demonstrator:
        return ExpertDemonstrator(self._domain, self._answers, slip)

    def interchangeable(self) -> list[list[str]]:
        return []

    def judgement(self, task: Task, steps: Sequence[Step], score: int) -> str:
        """Names the expert's action and the actual action, which the score depends on."""
        wanted = self._wanted(task, steps[:-1])
        return f"{wanted}; done: {steps[-1].action or 'nothing'}. \\boxed{{{score}}}"

    def valuation(self, task: Task, steps: Sequence[Step], grade: int) -> str:
        """Names the expert's next action."""
        return f"{self._wanted(task, steps)}. \\boxed{{{grade}}}"

    def critic(self, task: Task, steps: Sequence[Step], rejected: Sequence[int]) -> str:
        at = rejected[0] if rejected else len(steps) - 1
        wanted = self._wanted(task, steps[:at])
        done = steps[at].action or "nothing"
        return f"Step {at + 1} was {done}. Right was {wanted}."

    def proposal(self, root: Task, direction: Direction, rng: random.Random) -> str | None:
        """Proposes one of the domain's rewrites that the domain itself accepts."""
        if not isinstance(self._domain, RewritableDomain):
            return None
        answers = [
            answer
            for answer in self._domain.rewrites(root, direction)
            if self._accepted(root, answer)
        ]
        return rng.choice(answers) if answers else None

    def _accepted(self, root: Task, answer: str) -> bool:
        try:
            self._domain.parse_candidate(root, f"{root.id}@0", answer)
        except InvalidTask:
            return False
        return True

    def _wanted(self, task: Task, steps: Sequence[Step]) -> str:
        return self._domain.expert(task, steps) or "nothing"


class ExpertDemonstrator(Demonstrator):
    """Answers like the domain's expert. When it slips, it keeps the thought and takes any possible
    action; if none are listed, it uses an answer to another task."""

    def __init__(self, domain: Domain, answers: Sequence[str], slip: float) -> None:
        """`answers`: the expert's first answers to other tasks."""
        super().__init__(slip)
        self._domain = domain
        self._answers = answers

    def answer(self, episode: Episode, rng: random.Random) -> str:
        right = self._domain.expert(episode.task, episode.steps)
        if right is not None and rng.random() >= self._slip:
            return right
        choices = episode.observation.choices
        marker = self._domain.action_marker
        if not choices:
            return rng.choice(self._answers)
        thought = (right or "").rpartition(marker)[0].strip()
        return f"{thought} {marker} {rng.choice(choices)}".strip()
