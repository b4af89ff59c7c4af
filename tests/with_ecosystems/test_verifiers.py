"""verifiers v1 as it is, in an environment of its own: it drives the agent, the policy answers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from helpers.agents import said
from helpers.ecosystems import trained
from helpers.paths import ROOT, TESTS
from helpers.serving import served
from rlanything.domains.base import DomainError, Episode
from rlanything.records import Completion, JudgedTrajectory, Judgement, Trajectory
from rlanything.roles.judges.base import OnJudgements, StepJudge
from rlanything.rollout.episodes import RolloutRequest, Rollouts, rollout
from rlanything.rollout.workers import EnvironmentPool
from rlanything_agent.verifiers import VARIABLE, VerifiersDomain
from rlanything_judge.serving.app import judge_app
from rlanything_judge.serving.batching import BatchingJudge

PYTHON = os.environ.get(VARIABLE)
SOURCE = TESTS / "helpers" / "doubling_taskset.py"
TASKSET = {"id": "doubling_taskset", "count": 10}
pytestmark = pytest.mark.skipif(PYTHON is None, reason=f"{VARIABLE} is not set")


@pytest.fixture(autouse=True, scope="module")
def own_taskset(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """An environment on top of the one that has verifiers, in which our taskset is installed."""
    home = tmp_path_factory.mktemp("verifiers") / "venv"
    subprocess.run([str(PYTHON), "-m", "venv", "--without-pip", str(home)], check=True)
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    [theirs, ours] = [
        subprocess.check_output([python, "-c", code], text=True).strip()
        for python in (str(PYTHON), str(home / "bin" / "python"))
    ]
    Path(ours, SOURCE.name).write_text(SOURCE.read_text())
    Path(ours, "verifiers.pth").write_text(f"{theirs}\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, str(home / "bin" / "python"))
        yield


class Doubling:
    """Doubles the number that it is asked about, or says what it is told to."""

    def __init__(self, says: str | None = None) -> None:
        self.says = says
        self.asked: list[str] = []

    def respond(self, episodes: Sequence[Episode], seeds: Sequence[int]) -> list[Completion]:
        del seeds
        return [said(self.says or self.answer(episode)) for episode in episodes]

    def answer(self, episode: Episode) -> str:
        request = episode.observation.request
        assert request is not None
        question = request.messages[-1].content
        self.asked.append(question)
        return f"easy > {2 * int(question.split()[1].rstrip('.'))}"

    def release_cache(self) -> None: ...


def played(domain: VerifiersDomain, policy: Doubling, count: int = 3) -> Rollouts:
    with EnvironmentPool(domain, {}, 0, 120.0) as pool:
        tasks = domain.tasks("train", count, 0)
        requests = [RolloutRequest(task.id, task, 0) for task in tasks]
        return rollout(policy, pool, requests, 4, 8)


def test_a_taskset_is_played_and_scored() -> None:
    domain = VerifiersDomain(taskset=TASKSET)
    assert [len(domain.tasks(split, 99, 0)) for split in ("train", "in_domain")] == [8, 2]
    policy = Doubling()
    rollouts = played(domain, policy)
    assert not rollouts.failures, rollouts.failures[0].reason
    assert not rollouts.crashes, rollouts.crashes[0].reason
    assert [(t.outcome, t.reward, len(t.steps)) for t in rollouts.trajectories] == [(1, 1.0, 1)] * 3
    assert sorted(policy.asked) == sorted(t.task.instruction for t in rollouts.trajectories)
    lost = played(domain, Doubling("hard > 1"), 1).trajectories
    assert [(t.outcome, t.reward) for t in lost] == [(-1, 0.0)]


def test_a_taskset_that_cannot_score_loses_the_episode() -> None:
    rollouts = played(VerifiersDomain(taskset=TASKSET), Doubling("raise"), 1)
    assert [trajectory.outcome for trajectory in rollouts.trajectories] == [-1]
    assert "this cannot be scored" in rollouts.crashes[0].reason


def test_what_cannot_be_loaded_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for taskset, said_of_it in (
        ("no_such_taskset", "taskset no_such_taskset cannot be loaded.*install it next to"),
        ({"id": "doubling_taskset", "depth": 1}, "depth"),
    ):
        with pytest.raises(DomainError, match=said_of_it) as error:
            VerifiersDomain(taskset=taskset).tasks("train", 1, 0)
        assert "\n" not in str(error.value)
    with pytest.raises(DomainError, match=r"taskset: input should be a valid string \(got 3\)"):
        VerifiersDomain(taskset=3)
    with pytest.raises(DomainError, match=r"tasks: .* greater than or equal to 1 \(got 0\)"):
        VerifiersDomain(taskset="doubling_taskset", tasks=0)
    monkeypatch.setenv(VARIABLE, sys.executable)
    with pytest.raises(DomainError, match="has no verifiers: create a separate environment"):
        VerifiersDomain(taskset="doubling_taskset")
    monkeypatch.delenv(VARIABLE)
    with pytest.raises(DomainError, match=f"{VARIABLE} is not set: create a separate environment"):
        VerifiersDomain(taskset="doubling_taskset")


def test_the_recipe_of_verifiers_trains(tmp_path: Path) -> None:
    nano = ["policy.model=nano", "judge.model=nano", "policy.max_tokens=12"]
    nano += ["domain.options.taskset=doubling_taskset", "evaluation.episodes=1"]
    run = trained("verifiers", tmp_path / "run", *nano)
    assert run.failures == 0
    assert run.steps >= 4
    assert run.recipe_lines <= 12


SCORED = """
import asyncio, sys
import verifiers.v1 as vf
from verifiers.v1 import graph, trace, types
from verifiers.v1.configs.judge import resolve_judges
from verifiers.v1.utils.loaders import load_judge

[config] = resolve_judges([{"id": "verifiers_judge", "base_url": sys.argv[1]}])
call = types.ToolCall(id="c", name="look", arguments="{}")
said = [
    types.SystemMessage(content="Be polite."),
    types.UserMessage(content="Look."),
    types.AssistantMessage(content=None, tool_calls=[call]),
    types.ToolMessage(tool_call_id="c", content="a room"),
    types.AssistantMessage(content="A room, thank you."),
]
nodes = [
    graph.MessageNode(message=each, parent=i - 1 if i else None) for i, each in enumerate(said)
]
print(asyncio.run(load_judge(config).score(None, trace.Trace.model_construct(nodes=nodes))))
"""


class Polite(StepJudge):
    """Likes steps that say thank you."""

    samples = 1

    def __init__(self) -> None:
        self.judged: list[Trajectory] = []

    def judge(
        self,
        trajectories: Sequence[Trajectory],
        seed: int,
        on_judgements: OnJudgements | None = None,
    ) -> list[JudgedTrajectory]:
        self.judged += trajectories
        return [
            JudgedTrajectory(each, tuple((opinion(step.response),) for step in each.steps))
            for each in trajectories
        ]


def opinion(response: str) -> Judgement:
    score = 1 if "thank you" in response else -1
    return Judgement(Completion.unsampled(f"so \\boxed{{{score}}}"), score)


def test_a_served_judge_scores_as_a_judge_of_verifiers(monkeypatch: pytest.MonkeyPatch) -> None:
    judge = Polite()
    monkeypatch.setenv("RLANYTHING_JUDGE_KEY", "secret")
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "examples"))
    with BatchingJudge(judge, 8) as batching, served(judge_app("it", batching, "secret")) as url:
        words = [os.environ[VARIABLE], "-c", SCORED, url]
        assert float(subprocess.check_output(words, text=True)) == 0
    [trajectory] = judge.judged
    assert "look" in trajectory.steps[0].response
    assert trajectory.steps[0].next_observation.strip() == "a room"
    assert "Look." in trajectory.task.instruction
