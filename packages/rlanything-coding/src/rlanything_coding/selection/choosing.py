"""Test-time methods that choose or repair programs with the trained pair of policy and judge."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rlanything.domains.base import Domain
from rlanything.evaluation.selection import Choice
from rlanything.records import Completion, JudgedTrajectory, Task, Trajectory
from rlanything.roles.judges.base import Judge
from rlanything.roles.judges.unit_test import UnitTestJudge, test_in
from rlanything.roles.policy import LanguagePolicy
from rlanything.rollout.episodes import Agent, RecordedAgent, RolloutRequest, rollout
from rlanything.rollout.workers import EnvironmentPool
from rlanything.seeds import derive
from rlanything_coding.selection.alphacodium import alphacodium
from rlanything_coding.selection.mpsc import mpsc
from rlanything_coding.selection.programs import Method, RepairRequest, TaskPrograms
from rlanything_coding.selection.s_star import s_star


class PairBench:
    """A `Bench` of the policy and the judge of a run; counts what they are asked."""

    def __init__(
        self, domain: Domain, policy: LanguagePolicy, judge: UnitTestJudge, seed: int
    ) -> None:
        self._domain = domain
        self._policy = policy
        self._judge = judge
        self._seed = seed
        self._written = 0
        self.judgements = 0
        self.repairs = 0

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
        first = self.repairs
        self.repairs += len(asked)
        seeds = [derive(self._seed, "repair", first + i) for i in range(len(asked))]
        return [each.answer for each in self._policy.answer(prompts, seeds)]

    def run(self, task: Task, programs: Sequence[str], tests: Sequence[str]) -> list[list[int]]:
        """Returns scores [programs][tests]."""
        return self._domain.run_tests(task, programs, tests)

    def outputs(self, task: Task, programs: Sequence[str], tests: Sequence[str]) -> list[list[str]]:
        """Returns each program's output on the input of each test, [programs][tests]."""
        return self._domain.test_outputs(task, programs, tests)

    def more_tests(self, tasks: Sequence[Task]) -> list[list[str]]:
        """Returns m new tests by the judge for each task."""
        self._written += 1
        seed = derive(self._seed, "more tests", self._written)
        written = self._judge.write_tests(tasks, seed)
        self.judgements += sum(map(len, written))
        return [list(map(test_in, tests)) for tests in written]


def chosen_programs(
    method: Method, judged: Sequence[JudgedTrajectory], bench: PairBench
) -> dict[str, str]:
    """Returns by task the response that a method chooses, from attempts with the tests that were
    written for their tasks. It does not read outcomes."""
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
    """Returns by task the outcome of the chosen response, and the tasks that could not be played. A
    chosen attempt has the attempt's outcome; only repaired programs are played."""
    outcomes: dict[str, int] = {}
    new: dict[str, Task] = {}
    for attempt in attempts:
        task = attempt.task.id
        if attempt.steps[0].response == chosen[task]:
            outcomes.setdefault(task, attempt.outcome)
        else:
            new[task] = attempt.task
    requests = [RolloutRequest(t, task, 0) for t, task in new.items() if t not in outcomes]
    recorded = {task: [Completion.unsampled(response)] for task, response in chosen.items()}
    played = rollout(RecordedAgent(recorded), environments, requests, 1, parallel_episodes)
    outcomes |= {each.task.id: each.outcome for each in played.trajectories}
    return outcomes, [task.id for task in played.unplayable]


@dataclass(frozen=True, slots=True)
class ProgramSelector:
    """A `Selector` that reads and repairs programs by the judge's unit tests."""

    name: str
    method: Method

    def objection(self, domain: Domain, judge: Judge) -> str:
        """Returns what the method lacks here; "" if it can be used."""
        if domain.capabilities.repairs_programs and isinstance(judge, UnitTestJudge):
            return ""
        return "no judge that writes unit tests of programs, by which this method chooses"

    def choose(
        self,
        judged: Sequence[JudgedTrajectory],
        domain: Domain,
        agent: Agent,
        judge: Judge,
        environments: EnvironmentPool,
        parallel_episodes: int,
        seed: int,
    ) -> Choice:
        """Chooses one program for each task, and plays those that were repaired."""
        assert isinstance(judge, UnitTestJudge)
        assert isinstance(agent, LanguagePolicy)  # only a run or a recipe has a judge
        bench = PairBench(domain, agent, judge, derive(seed, self.name))
        chosen = chosen_programs(self.method, judged, bench)
        attempts = [attempt.trajectory for attempt in judged]
        outcomes, failed = play_chosen(chosen, attempts, environments, parallel_episodes)
        return Choice(outcomes, failed, bench.judgements, bench.repairs)


MPSC = ProgramSelector("mpsc", mpsc)
ALPHACODIUM = ProgramSelector("alphacodium", alphacodium)
S_STAR = ProgramSelector("s-star", s_star)
