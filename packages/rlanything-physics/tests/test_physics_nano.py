"""The loop with the nano models for physics, in miniature, and what their adapter learned from."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from rich.console import Console

from rlanything.config.recipe import load_recipe
from rlanything.engines.hf.model import load_model
from rlanything.progress import Progress
from rlanything.records import Trajectory
from rlanything.rollout.episodes import RolloutRequest, rollout
from rlanything.rollout.workers import EnvironmentPool
from rlanything.runs.store.store import Store
from rlanything.runs.trainer import Trainer
from rlanything_nano.expert_teacher import ExpertDemonstrator
from rlanything_nano.samples import SampleWriter
from rlanything_physics import domain as package
from rlanything_physics.domain import Physics
from rlanything_physics.families.base import numbers_in
from rlanything_physics.teacher import PhysicsTeacher, failure_of

PHYSICS = Physics()
MODELS = Path(package.__file__).parent / "models" / "nano-physics"
QUIET = Progress(Console(quiet=True))


@pytest.fixture(scope="module")
def lost() -> list[Trajectory]:
    """Lost episodes of an expert that slips half of the time."""
    agent = ExpertDemonstrator(PHYSICS, ("> push 0",), 0.5)
    asked = [RolloutRequest(t.id, t, i) for i, t in enumerate(PHYSICS.tasks("train", 40, 9))]
    with EnvironmentPool(PHYSICS, {}, 0, 60.0) as pool:
        return [t for t in rollout(agent, pool, asked, 20, 64).trajectories if t.outcome == -1]


def test_the_teacher_answers_a_tasks_own_failures(lost: list[Trajectory]) -> None:
    teacher, rng = PhysicsTeacher(PHYSICS), random.Random(0)
    answered = 0
    for one in lost:
        answer = teacher.revision(one.task, "easier", [one], rng)
        if answer is not None:
            answered += 1
            assert set(numbers_in(answer)) <= set(failure_of(one.task, one.steps).parameters)
            PHYSICS.parse_candidate(one.task, "t@1", answer)
            # A critic says what happened; which change helps is not said.
            critic = teacher.critic(one.task, one.steps, ())
            assert not [each for each in answer.split(", ") if each in critic]
    assert answered >= 10


def test_an_adapters_samples_show_the_critics_of_the_task_itself(lost: list[Trajectory]) -> None:
    teacher = PhysicsTeacher(PHYSICS)
    model = load_model(MODELS / "policy", "float32")
    writer = SampleWriter(model, PHYSICS)
    samples = writer.revisions(teacher, lost[:1], random.Random(0))
    critic = teacher.critic(lost[0].task, lost[0].steps, ())
    assert len(samples) >= 2
    for sample in samples:
        prompt = model.tokenizer.decode(list(sample.completion.prompt_ids))
        assert critic in prompt
        assert lost[0].task.instruction in prompt
        PHYSICS.parse_candidate(lost[0].task, "t@1", sample.completion.text)


def test_the_recipe_goes_through_the_loop(tmp_path: Path) -> None:
    overrides = [
        f"run_dir={tmp_path / 'run'}",
        "loop.iterations=1",
        "loop.tasks=8",
        "loop.tasks_per_iteration=8",
        "loop.rollouts_per_task=2",
        "evaluation.episodes=4",
        "evaluation.judged_episodes=4",
    ]
    lines = Trainer(load_recipe("physics", overrides), progress=QUIET).train()
    assert any(line.startswith("policy, in_domain: ") for line in lines)
    store = Store(tmp_path / "run" / "run.sqlite")
    found = store.query("SELECT COUNT(*), MAX(outcome), MIN(outcome) FROM trajectories")
    kinds = store.query("SELECT COUNT(DISTINCT kind) FROM tasks")
    store.close()
    assert found == [(16, 1, -1)]
    assert kinds == [(4,)]
