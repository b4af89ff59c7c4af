"""Test-time methods that choose or repair programs with the trained pair, and what they cost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from rlanything.domains.base import Domain
from rlanything.evaluation.alphacodium import alphacodium
from rlanything.evaluation.mpsc import mpsc
from rlanything.evaluation.programs import Method, RepairRequest, TaskPrograms
from rlanything.evaluation.s_star import s_star
from rlanything.records import JudgedTrajectory, Task, Trajectory
from rlanything.roles.baselines import FixedAgent
from rlanything.roles.judges.unit_test import UnitTestJudge, test_in
from rlanything.roles.policy import LanguagePolicy
from rlanything.rollout.episodes import RolloutRequest, rollout
from rlanything.rollout.workers import EnvironmentPool
from rlanything.seeds import derive

METHODS: Mapping[str, Method] = {"mpsc": mpsc, "alphacodium": alphacodium, "s-star": s_star}
"""The methods beside best-of-N, by the name that `rlanything eval --select` knows."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The answers that models were asked for, over all tasks."""

    attempts: int
    """By the policy, before anything is chosen: N for each task."""
    judgements: int
    """By the judge: its scores, or the tests that it wrote."""
    repairs: int = 0
    """By the policy, programs written anew because they failed a test."""


class PairBench:
    """A `Bench` of the policy and the judge of a run, which counts what they are asked."""

    def __init__(
        self, domain: Domain, policy: LanguagePolicy, judge: UnitTestJudge, seed: int
    ) -> None:
        self._domain, self._policy, self._judge, self._seed = domain, policy, judge, seed
        self._written = 0
        self.cost = Cost(0, 0)

    def repair(self, asked: Sequence[RepairRequest]) -> list[str]:
        """Returns the policy's next version of each program."""
        prompts = [
            self._domain.repair_prompt(
                request.task,
                request.program,
                request.test,
                self._domain.test_outputs(request.task, [request.program], [request.test])[0][0],
            )
            for request in asked
        ]
        first = self.cost.repairs
        self.cost = replace(self.cost, repairs=first + len(asked))
        seeds = [derive(self._seed, "repair", first + i) for i in range(len(asked))]
        return [each.answer for each in self._policy.answer(prompts, seeds)]

    def run(self, task: Task, programs: Sequence[str], tests: Sequence[str]) -> list[list[int]]:
        """Returns scores [programs][tests]."""
        return self._domain.run_tests(task, programs, tests)

    def outputs(self, task: Task, programs: Sequence[str], tests: Sequence[str]) -> list[list[str]]:
        """Returns what each program prints on the input of each test, [programs][tests]."""
        return self._domain.test_outputs(task, programs, tests)

    def more_tests(self, tasks: Sequence[Task]) -> list[list[str]]:
        """Returns m new tests by the judge for each task."""
        self._written += 1
        seed = derive(self._seed, "more tests", self._written)
        written = self._judge.write_tests(tasks, seed)
        count = sum(map(len, written))
        self.cost = replace(self.cost, judgements=self.cost.judgements + count)
        return [list(map(test_in, tests)) for tests in written]


def judgements_of(judged: Sequence[JudgedTrajectory]) -> int:
    """Returns how many answers of the judge these are: a test that several programs of a task share
    is one."""
    return len(
        {id(each.completion) for attempt in judged for step in attempt.judgements for each in step}
    )


def chosen_programs(
    method: Method, judged: Sequence[JudgedTrajectory], bench: PairBench
) -> dict[str, str]:
    """Returns by task the response that a method chooses, from attempts with the tests that were
    written for their tasks; outcomes are not read."""
    groups: dict[str, list[JudgedTrajectory]] = defaultdict(list)
    for attempt in judged:
        groups[attempt.trajectory.task.id].append(attempt)
    tasks = [
        TaskPrograms(
            group[0].trajectory.task,
            tuple(each.trajectory.steps[0].response for each in group),
            tuple(test_in(judgement.completion) for judgement in group[0].judgements[0]),
            tuple(each.scores[0] for each in group),
        )
        for group in groups.values()
    ]
    return dict(zip(groups, method(tasks, bench), strict=True))


def play_chosen(
    chosen: Mapping[str, str],
    attempts: Sequence[Trajectory],
    environments: EnvironmentPool,
    parallel_episodes: int,
) -> tuple[dict[str, int], list[str]]:
    """Returns by task the outcome of the chosen response, and the tasks in which it could not be
    played. One that was an attempt has the attempt's; only repaired ones are played."""
    outcomes: dict[str, int] = {}
    new: dict[str, Task] = {}
    for attempt in attempts:
        task = attempt.task.id
        if attempt.steps[0].response == chosen[task]:
            outcomes.setdefault(task, attempt.outcome)
        else:
            new[task] = attempt.task
    requests = [RolloutRequest(t, task, 0) for t, task in new.items() if t not in outcomes]
    played = rollout(FixedAgent(chosen), environments, requests, 1, parallel_episodes)
    outcomes |= {each.task.id: each.outcome for each in played.trajectories}
    return outcomes, [task.id for task in played.unplayable]
