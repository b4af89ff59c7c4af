"""The grid of an ablation: what is run, what is kept, and the table that comes of it."""

from __future__ import annotations

import csv
import importlib.util
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
from rich.console import Console

from helpers.command import call
from helpers.paths import TESTS, TINY
from rlanything.config.recipe import RecipeError, load_recipe
from rlanything.config.shipped import shipped_files
from rlanything.evaluation.intervals import Interval
from rlanything.progress import Progress
from rlanything.runs.stopping import Stopped
from rlanything_lab.ablation import grid
from rlanything_lab.ablation.ablate import Ablation, AblationRequest, ablate
from rlanything_lab.ablation.arms import ARMS as ABLATION_ARMS
from rlanything_lab.ablation.arms import Arm, find_arms
from rlanything_lab.ablation.grid import GridError, make_cells, runs_at_once, spent_seconds
from rlanything_lab.ablation.results import BEFORE

HERE = TESTS / "helpers"
ARMS = ("four4:feedback.policy_lambda=0.5", "seven7:feedback.policy_lambda=0.25")


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A recipe whose runs train nothing: see pretender.py."""
    monkeypatch.setattr(grid, "COMMAND", (sys.executable, str(HERE / "pretender.py")))
    path = tmp_path / "recipe.yaml"
    path.write_text("name: mine\ndomain: {name: alfworld}\nloop: {iterations: 1}\n")
    return path


class Listener(Progress):
    """Hears what is said."""

    def __init__(self) -> None:
        super().__init__(Console(quiet=True))
        self.said: list[str] = []

    def log(self, line: str) -> None:
        self.said.append(line)


def run(
    recipe: Path,
    *overrides: str,
    arms: tuple[str, ...] = ARMS,
    page: Path | None = None,
    figure: Path | None = None,
    parallel: int = 2,
):
    progress = Listener()
    out = recipe.parent / "out"
    command = "rlanything ablate ..."
    request = AblationRequest(
        recipe, overrides, arms, range(2), out, parallel, page, figure, command
    )
    return ablate(request, progress), progress.said


def estimates(found: Ablation) -> dict[str, float]:
    """In-domain success by row."""
    return {
        row.name: value.estimate
        for row in found.results.rows
        if (value := row.values["in_domain"]) is not None
    }


def test_every_arm_runs_with_every_seed_and_is_compared_with_the_one_before(recipe: Path) -> None:
    found, said = run(recipe)
    assert not found.failed
    assert estimates(found) == {BEFORE: 0.2, "four4": 0.4, "seven7": 0.7}
    rows = {row.name: row for row in found.results.rows}
    assert all(row.seeds == (0, 1) for row in rows.values())
    assert (rows["four4"].against, rows["seven7"].against) == (BEFORE, "four4")
    differences, gains = rows["seven7"].differences, rows["seven7"].gains
    assert differences is not None
    assert gains is not None
    for table, expected in ((differences, 0.3), (gains, 0.5)):
        change = table["in_domain"]
        assert change is not None
        assert change.estimate == pytest.approx(expected)
        assert change.low < expected < change.high
    balanced = rows["seven7"].values["judge Process Acc, balanced"]
    assert balanced is not None
    assert balanced.estimate == pytest.approx((0.7 + 0.5) / 2)
    finished = [line for line in said if "finished in" in line]
    assert len(finished) == 4
    assert "(4 of 4 runs)" in finished[-1]


def test_episodes_that_could_not_be_played_are_neither_lost_nor_won(recipe: Path) -> None:
    def in_domain(found: Ablation) -> tuple[Interval, Interval]:
        [row] = [row for row in found.results.rows if row.name == "seven7"]
        assert row.differences is not None
        value, change = row.values["in_domain"], row.differences["in_domain"]
        assert value is not None
        assert change is not None
        return value, change

    before, change = in_domain(run(recipe)[0])
    with closing(sqlite3.connect(recipe.parent / "out" / "seven7" / "seed-0" / "run.sqlite")) as db:
        lost = "SELECT task FROM evaluations WHERE iteration = 1 AND outcome = -1 LIMIT 2"
        query = f"UPDATE evaluations SET outcome = 0 WHERE iteration = 1 AND task IN ({lost})"
        assert db.execute(query).rowcount == 2
        db.commit()
    after, change_after = in_domain(run(recipe)[0])
    assert after.estimate == pytest.approx((7 / 8 + 7 / 10) / 2)
    assert after.low <= before.low
    # Both tasks were lost before too: where both sides were played, as much was won more.
    assert change_after.estimate == pytest.approx((3 / 8 + 3 / 10) / 2)
    assert change_after.low < change.low < change.high < change_after.high


def test_the_arms_that_a_group_names_are_compared_as_it_says(recipe: Path) -> None:
    found, _ = run(recipe, arms=("policy_lambda_4", "policy_lambda_0.25", "judge_lambda_4"))
    against = [row.against for row in found.results.rows]
    assert against == [None, BEFORE, "policy_lambda_4", "policy_lambda_0.25"]


def test_what_is_there_is_not_run_again(recipe: Path) -> None:
    run(recipe)
    seconds = (recipe.parent / "out" / "ledger.jsonl").read_text()
    found, said = run(recipe)
    assert estimates(found)["seven7"] == 0.7
    assert said[1] == "4 of 4 runs are there already"
    assert (recipe.parent / "out" / "ledger.jsonl").read_text() == seconds


def test_an_arm_more_runs_only_that_arm(recipe: Path) -> None:
    run(recipe)
    found, said = run(recipe, arms=(*ARMS, "nine9:feedback.policy_lambda=2"))
    assert estimates(found)["nine9"] == 0.9
    assert sum("finished in" in line for line in said) == 2


def test_what_a_run_measured_before_training_holds_for_those_that_begin_alike(
    recipe: Path,
) -> None:
    arms = (*ARMS, "other3:feedback.judge_lambda=4")
    run(recipe, arms=arms, parallel=1)
    out = recipe.parent / "out"

    def baseline(arm: str, seed: int) -> Path | None:
        return load_recipe(out / arm / f"seed-{seed}" / "recipe.yaml").evaluation.baseline

    for seed in (0, 1):
        assert baseline("four4", seed) is None
        assert baseline("seven7", seed) == out / "four4" / f"seed-{seed}"
        assert baseline("other3", seed) is None  # its exam of the judge is another one
    assert run(recipe, arms=arms)[1].count("6 of 6 runs are there already") == 1


def test_a_run_that_fails_is_named_and_the_others_go_on(recipe: Path) -> None:
    broken = recipe.parent / "broken"
    broken.touch()
    page = recipe.parent / "page.md"
    found, said = run(recipe, page=page)
    assert found.failed == {
        "four4, seed 1": "failed: error: it is broken",
        "seven7, seed 1": "failed: error: it is broken",
    }
    assert [row.seeds for row in found.results.rows] == [(0,), (0,), (0,)]
    assert not page.exists(), "a page is of all runs"
    assert "tries them again" in said[-1]
    broken.unlink()
    found, _ = run(recipe, page=page)
    assert not found.failed
    assert page.exists()


@pytest.fixture
def taking(monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """Arms of which the first takes the judge that the second trains."""
    arm = Arm("alone6", ("judge.train=false",), "four4", judge_of="four4")
    monkeypatch.setitem(ABLATION_ARMS, "alone6", arm)
    return ("alone6", ARMS[0])


def test_an_arm_takes_the_judge_that_another_trained_and_waits_for_it(
    recipe: Path, taking: tuple[str, ...]
) -> None:
    found, said = run(recipe, arms=taking, parallel=4)
    assert not found.failed
    assert estimates(found)["alone6"] == 0.6
    assert [row.against for row in found.results.rows] == [None, "four4", "alone6"]
    out = recipe.parent / "out"
    ended = [line.partition(":")[0] for line in said if "finished in" in line]
    for seed in (0, 1):
        own = load_recipe(out / "alone6" / f"seed-{seed}" / "recipe.yaml")
        judge = out / "four4" / f"seed-{seed}" / "checkpoints" / "iter-00001" / "judge"
        assert own.judges["judge"].model == str(judge)
        assert ended.index(f"four4, seed {seed}") < ended.index(f"alone6, seed {seed}")
    assert run(recipe, arms=taking)[1].count("4 of 4 runs are there already") == 1


def test_an_arm_whose_judge_was_never_trained_is_named_and_not_begun(
    recipe: Path, taking: tuple[str, ...]
) -> None:
    broken = recipe.parent / "broken"
    broken.touch()
    found, _ = run(recipe, arms=taking)
    assert found.failed == {
        "four4, seed 1": "failed: error: it is broken",
        "alone6, seed 1": "not begun: it takes the judge of four4, seed 1, which failed",
    }
    broken.unlink()
    shutil.rmtree(recipe.parent / "out" / "alone6")
    (recipe.parent / "out" / "four4" / "seed-0" / "checkpoints" / "iter-00001" / "judge").rmdir()
    found, _ = run(recipe, arms=taking)
    assert list(found.failed) == ["alone6, seed 0"]
    assert "iter-00001/judge is gone; delete that run" in found.failed["alone6, seed 0"]


def test_an_arm_cannot_take_a_judge_that_does_not_learn(
    recipe: Path, taking: tuple[str, ...]
) -> None:
    with pytest.raises(GridError, match="alone6: four4 trains no judge"):
        run(recipe, "judge.name=oracle", arms=taking)


def test_another_recipe_in_the_folder_is_refused_before_anything_runs(recipe: Path) -> None:
    run(recipe)
    with pytest.raises(GridError, match=r"four4/seed-0 is a run of another recipe \(loop\.tasks "):
        run(recipe, "loop.tasks=99", arms=(*ARMS, "nine9:feedback.policy_lambda=2"))
    assert not (recipe.parent / "out" / "nine9").exists()
    run(recipe, "environment.workers=1", "checkpoints.keep=1")


@pytest.mark.parametrize("override", ["seed=3", "run_dir=elsewhere"])
def test_what_the_grid_decides_is_not_for_overrides(recipe: Path, override: str) -> None:
    with pytest.raises(GridError, match="leave it out"):
        run(recipe, override)

    with pytest.raises(GridError, match="leave it out"):
        run(recipe, arms=(f"late4:{override}",))


def test_a_page_that_cannot_be_written_is_refused_before_anything_runs(recipe: Path) -> None:
    for page in (recipe.parent / "curves.csv", recipe.parent):
        with pytest.raises(GridError, match=r"--page .*: name a Markdown file"):
            run(recipe, page=page)
    assert not (recipe.parent / "out").exists()


def test_a_grid_that_would_measure_nothing_is_refused(recipe: Path) -> None:
    with pytest.raises(GridError, match="four4: evaluation is off"):
        run(recipe, "evaluation.episodes=0")


def test_an_arm_that_would_change_nothing_where_the_judge_writes_tests_is_refused(
    tmp_path: Path,
) -> None:
    with pytest.raises(GridError, match=r"judge_lambda_4: feedback.judge_lambda changes nothing"):
        make_cells(shipped_files()["coding-nano"], (), find_arms(["lambda"]), [0], tmp_path)


def test_as_many_run_at_once_as_their_threads_leave_cores_for(
    recipe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))

    def at_once(*overrides: str) -> int:
        arms = [Arm("any", ())]
        return runs_at_once(make_cells(recipe, overrides, arms, range(2), recipe.parent / "out"))

    assert at_once() == 8
    assert at_once("threads=3") == 2
    assert at_once("threads=0") == at_once("policy.device=cuda") == 1


def test_an_arm_that_is_no_recipe_is_refused_before_anything_runs(recipe: Path) -> None:
    with pytest.raises(RecipeError, match="unknown key"):
        run(recipe, arms=(*ARMS, "odd1:feedback.wait=1"))
    assert not (recipe.parent / "out").exists()


def test_an_interrupted_grid_stops_its_runs_and_goes_on(recipe: Path) -> None:
    recipe.write_text(recipe.read_text().replace("mine", "hangs"))
    out = recipe.parent / "out"
    log, ledger = out / "seven7" / "seed-1.log", out / "ledger.jsonl"

    def lines(path: Path) -> list[str]:
        return path.read_text().splitlines() if path.exists() else []

    def interrupt() -> None:
        while "waiting" not in lines(log) or len(lines(ledger)) < 3:
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt, daemon=True)
    thread.start()
    with pytest.raises(Stopped) as stop:
        run(recipe)
    thread.join()
    assert "the same command continues" in stop.value.__notes__[0]
    assert len(lines(ledger)) == 4, "the run was waited for"
    found, said = run(recipe)
    assert said[1] == "3 of 4 runs are there already"
    assert estimates(found) == {BEFORE: 0.2, "four4": 0.4, "seven7": 0.7}


def test_the_page_says_how_its_figures_came_about(recipe: Path) -> None:
    page = recipe.parent / "page.md"
    plan = "\n## Fixed before the runs\n\n- Four against seven.\n"
    page.write_text(f"# To come\n{plan}", encoding="utf-8")
    found, said = run(recipe, page=page)
    text = page.read_text()
    assert text.endswith(plan)
    assert "To come" not in text
    assert said[-2:] == [f"written: {page}", f"written: {page.with_suffix('.csv')}"]
    assert "`rlanything ablate ...`" in text
    assert "4 runs took 0.0 hours" in text
    assert "| seven7 | 2 | 70.0% [" in text
    assert "| seven7 | four4 | +30.0 points [" in text
    assert "- four4: `feedback.policy_lambda=0.5`" in text
    rows = list(csv.DictReader(page.with_suffix(".csv").open()))
    assert [(r["arm"], r["seed"], r["iteration"]) for r in rows[:2]] == [
        ("four4", "0", "0"),
        ("four4", "0", "1"),
    ]
    assert len(rows) == 8
    assert json.loads(json.dumps(found.to_json()))["rows"][0]["name"] == BEFORE


def test_the_figure_has_every_arm_and_measure_and_is_on_the_page(recipe: Path) -> None:
    (recipe.parent / "figures").mkdir()
    page, figure = recipe.parent / "page.md", recipe.parent / "figures" / "gains.svg"
    found, _ = run(recipe, page=page, figure=figure)
    assert "](figures/gains.svg)" in page.read_text()
    drawn = figure.read_text()
    for name in ("four4", "seven7", *found.results.measures):
        assert f">{name}<" in drawn
    run(recipe, figure=figure)
    assert figure.read_text() == drawn, "the same runs have the same figure"


def test_a_figure_that_cannot_be_drawn_is_refused_before_anything_runs(
    recipe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(GridError, match=r"--figure: .*gains\.doc must end in one of .*\.svg"):
        run(recipe, figure=recipe.parent / "gains.doc")
    with pytest.raises(GridError, match="--figure: there is no folder"):
        run(recipe, figure=recipe.parent / "nowhere" / "gains.svg")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(GridError, match=r"pip install 'rlanything\[figures\]'"):
        run(recipe, figure=recipe.parent / "gains.svg")
    assert not (recipe.parent / "out").exists()


def test_a_run_that_the_system_ends_is_said_to_have_been(recipe: Path) -> None:
    recipe.write_text(recipe.read_text().replace("mine", "killed"))
    found, _ = run(recipe)
    assert found.failed == {
        "seven7, seed 1": "failed: ended by signal 9 (as the system does when memory runs out); "
        "the same command resumes it"
    }


def test_an_entry_of_the_ledger_that_was_cut_costs_only_itself(recipe: Path) -> None:
    out = recipe.parent / "out"
    out.mkdir()
    (out / "ledger.jsonl").write_text('{"arm": "four4", "se')
    run(recipe)
    entries = (out / "ledger.jsonl").read_text().splitlines()[1:]
    cells = make_cells(recipe, (), find_arms(ARMS), range(2), out)
    assert spent_seconds(out, cells) == sum(json.loads(each)["seconds"] for each in entries)
    assert len(entries) == 4


def test_seconds_of_interrupted_processes_count_too(recipe: Path) -> None:
    run(recipe)
    ledger = recipe.parent / "out" / "ledger.jsonl"
    with ledger.open("a") as file:
        file.write('{"arm": "four4", "seed": 1, "seconds": 1000.0, "exit_code": 130}\n')
    entries = [json.loads(line) for line in ledger.read_text().splitlines()]
    arms = find_arms(ARMS[:1])
    cells = make_cells(recipe, (), arms, range(2), recipe.parent / "out")
    expected = sum(each["seconds"] for each in entries if each["arm"] == "four4")
    assert spent_seconds(recipe.parent / "out", cells) == pytest.approx(expected)
    assert expected > 1000


def test_an_unknown_arm_is_one_line_on_the_command_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "ablate", str(TINY), "--arms", "nothing") == 2
    assert "no arm or group is called 'nothing'" in capsys.readouterr().err


SMALLEST = (
    "loop.iterations=1",
    "loop.tasks_per_iteration=1",
    "loop.rollouts_per_task=2",
    "loop.max_steps=4",
    "evaluation.episodes=2",
    "evaluation.splits=[in_domain]",
    "evaluation.judged_episodes=1",
    "environment.workers=0",
)


@pytest.mark.slow
def test_the_judge_of_a_whole_run_trains_a_policy_alone(tmp_path: Path) -> None:
    options = ["--arms", "policy_judge_env,optimized_judge_only", "--seeds", "1", "--json"]
    target = [sys.executable, "-m", "rlanything.cli", "ablate", str(TINY), *SMALLEST, *options]
    command = [*target, "--out", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = {row["name"]: row["values"] for row in json.loads(done.stdout)["rows"]}
    # The judge that one run ended with is the one that the other had from beginning to end.
    measure = "judge Outcome Acc"
    assert rows["optimized_judge_only"][measure] == rows["policy_judge_env"][measure] is not None
    folder = tmp_path / "out" / "optimized_judge_only" / "seed-0" / "checkpoints" / "iter-00001"
    assert {path.name for path in folder.iterdir() if path.is_dir()} == {"policy"}


def test_a_miniature_grid_of_real_runs_begins_with_the_same_models(tmp_path: Path) -> None:
    target = [sys.executable, "-m", "rlanything.cli", "ablate", str(TINY), *SMALLEST]
    options = ["--arms", "outcome_only,policy_judge", "--seeds", "2", "--first-seed", "3"]
    command = [*target, *options, "--parallel", "2", "--json", "--out", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [row["name"] for row in found["rows"]] == [BEFORE, "outcome_only", "policy_judge"]
    assert found["begins_apart"] == []
    folders = (tmp_path / "out" / "policy_judge").glob("*/")
    assert {folder.name for folder in folders} == {"seed-3", "seed-4"}
    assert found["measures"][0] == "in_domain"
    assert "judge Outcome Acc" in found["measures"]
