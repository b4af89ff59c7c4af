"""Plans of evaluations and checkpoints against what a run does and writes."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from helpers.guess import FEW, GUESS
from helpers.plans import values
from rlanything.config.recipe import load_recipe
from rlanything.progress import Progress
from rlanything.runs.trainer import Trainer
from rlanything_planning.plan import make_plan
from rlanything_planning.report import Plan

SPLITS = "evaluation.splits=[in_domain]"
HOST = ["environment_seconds=0.5", "disk_bandwidth=1e6"]


def planned(*changes: str, given: tuple[str, ...] = ()) -> Plan:
    return make_plan(load_recipe(GUESS, [SPLITS, *changes]), "l4", 2, [*HOST, *given])


def between(plan: Plan) -> dict[str, float]:
    return values(plan, "Between iterations")


def how(plan: Plan, name: str) -> str:
    [section] = [section for section in plan.sections if section.title == "Between iterations"]
    return next(line.how for line in section.quantities if line.name == name)


def test_an_evaluation_is_as_long_as_rollouts_of_as_many_episodes() -> None:
    plan = planned(
        "loop.tasks_per_iteration=8",
        "loop.rollouts_per_task=4",
        "evaluation.episodes=8",
        "evaluation.rollouts_per_task=4",
        "curriculum.adapt_tasks=false",
    )
    assert between(plan)["evaluation: policy"] == pytest.approx(plan.seconds["rollouts"])
    twice = planned("evaluation.episodes=16", "evaluation.rollouts_per_task=4")
    assert between(twice)["evaluation: policy"] == pytest.approx(2 * plan.seconds["rollouts"])
    longer = planned("evaluation.episodes=16", "evaluation.max_steps=40", "loop.max_steps=10")
    assert "640 answers" not in how(twice, "evaluation: policy")
    assert how(longer, "evaluation: policy").startswith("16 episodes, 512 answers")
    assert plan.pauses["evaluation"] == sum(
        seconds for name, seconds in between(plan).items() if name.startswith("evaluation: ")
    )
    assert "evaluation" not in planned("evaluation.episodes=0").pauses


@pytest.mark.parametrize(("every", "count"), [(0, 2), (5, 3), (4, 4), (1, 11)])
def test_evaluations_are_counted_with_the_one_before_training(every: int, count: int) -> None:
    plan = planned("loop.iterations=10", f"evaluation.every={every}", "evaluation.episodes=8")
    lines = between(plan)
    assert lines["all evaluations"] == pytest.approx(count * lines["one evaluation"])


def test_a_checkpoint_has_the_planned_bytes(tmp_path: Path) -> None:
    run = tmp_path / "run"
    changes = [*FEW, "loop.iterations=1", "evaluation.episodes=0", f"run_dir={run}"]
    Trainer(GUESS, overrides=changes, progress=Progress(Console(quiet=True))).train()
    lines = between(planned())
    for role in ("policy", "judge"):
        files = (run / "checkpoints" / "iter-00001" / role).rglob("*.safetensors")
        written = sum(file.stat().st_size for file in files)
        # Besides numbers, files have a header.
        assert written == pytest.approx(lines[f"{role}: checkpoint"], rel=0.05)


def test_fewer_checkpoints_are_advised_where_iterations_wait_for_them() -> None:
    plan = planned("loop.iterations=10")
    both = sum(between(plan)[f"{role}: checkpoint"] for role in ("policy", "judge"))
    assert between(plan)["writing one checkpoint"] == pytest.approx(2 * both / 1e6)
    assert between(plan)["snapshot in host memory"] == pytest.approx(both)
    assert between(plan)["checkpoints on disk"] == pytest.approx(3 * both)
    assert plan.pauses["checkpoint"] == 0
    # At the end all of the last one.
    assert between(plan)["all checkpoints"] == between(plan)["writing one checkpoint"]
    assert "would not wait" not in how(plan, "waiting for one checkpoint")
    slow = planned("loop.iterations=10", given=("disk_bandwidth=100",))
    iteration = sum(slow.seconds.values())
    assert slow.pauses["checkpoint"] == pytest.approx(2 * both / 100 - iteration)
    said = how(slow, "waiting for one checkpoint")
    [advised] = [word for word in said.split("; ")[1].split() if word.isdigit()]
    fewer = planned(
        "loop.iterations=10", f"checkpoints.write_every={advised}", given=("disk_bandwidth=100",)
    )
    assert fewer.pauses["checkpoint"] == 0
    assert between(fewer)["all checkpoints"] < between(slow)["all checkpoints"]
