"""A run that is killed and resumed is the run that was never killed, bit for bit."""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from helpers.command import call
from helpers.guess import FEW, GUESS
from helpers.paths import TESTS
from rlanything.commands.doctor import check_run
from rlanything.config.recipe import RecipeError, load_recipe
from rlanything.progress import Progress
from rlanything.runs import checkpoint
from rlanything.runs.checkpoint import CheckpointError, problems
from rlanything.runs.directory import LockedError, run_lock
from rlanything.runs.open import open_run
from rlanything.runs.report.facts import Reader
from rlanything.runs.session import Session
from rlanything.runs.store.database import StoreError
from rlanything.runs.store.store import Store
from rlanything.runs.summary import percent, policy_gains, success
from rlanything.runs.trainer import Trainer

HERE = TESTS / "helpers"
QUIET = Progress(Console(quiet=True))


TINIER = (
    *FEW,
    "seed=9",
    "loop.iterations=3",
    "loop.tasks_per_iteration=3",
    "loop.rollouts_per_task=2",
    "loop.max_steps=8",
    "curriculum.alpha_low=0.4",
    "curriculum.alpha_high=0.6",
    "evaluation.episodes=4",
    "evaluation.judged_episodes=2",
)
"""Seconds an iteration, in which tasks are rewritten all the same."""


def train(directory: Path, *overrides: str) -> Path:
    Trainer(GUESS, overrides=[f"run_dir={directory}", *TINIER, *overrides], progress=QUIET).train()
    return directory


def survive(directory: Path, like: Path, kills: int, seed: int) -> dict[str, int]:
    """Runs the guess recipe with `kills` kills; returns the number aimed at each phase that hit."""
    # With -P: the script's folder, searched first, has another guess.py than the game's.
    command = [sys.executable, "-P", HERE / "survivor.py", GUESS, directory, like]
    command += [str(kills), str(seed), *TINIER]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def digest(file: Path) -> str:
    """Of a file's bytes; of an optimizer's whatever the order of its header, which is drawn anew by
    safetensors each time."""
    data = file.read_bytes()
    if file.parent.name == "optimizer":
        end = 8 + int.from_bytes(data[:8], "little")
        data = json.dumps(json.loads(data[8:end]), sort_keys=True).encode() + data[end:]
    return hashlib.sha256(data).hexdigest()


def fingerprint(run: Path) -> dict[str, str]:
    """Of everything that a run leaves but times: the last checkpoint and the store."""
    last = sorted((run / "checkpoints").glob("iter-*"))[-1]
    files = [*last.glob("*/model.safetensors"), *last.glob("*/optimizer/*"), last / "pool.json"]
    found = {file.relative_to(run).as_posix(): digest(file) for file in files}
    store = Store(run / "run.sqlite")
    found["store"] = hashlib.sha256("\n".join(store.dump()).encode()).hexdigest()
    store.close()
    return found


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("undisturbed") / "run")


def test_the_undisturbed_run_has_something_to_lose(undisturbed: Path) -> None:
    store = Store(undisturbed / "run.sqlite")
    kinds = {kind for (kind,) in store.query("SELECT DISTINCT kind FROM slot_events")}
    trained = dict(store.query("SELECT role, COUNT(*) FROM samples GROUP BY role"))
    store.close()
    assert "proposed" in kinds
    assert kinds & {"accepted", "rejected"}
    assert trained.keys() == {"policy", "judge"}


@pytest.mark.slow
def test_a_run_killed_in_every_phase_ends_as_if_it_had_not_been(
    undisturbed: Path, tmp_path: Path
) -> None:
    killed = Counter[str]()
    for seed in range(1, 6):  # on a busy machine a blow may come too late, and the run ends
        killed.update(survive(tmp_path / str(seed), undisturbed, 12, seed))
        assert fingerprint(tmp_path / str(seed)) == fingerprint(undisturbed)
        if killed.total() >= 10 and len(killed) == 10:
            return
    pytest.fail(f"too few kills fell: {killed}")


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_hundred_kills_change_nothing(undisturbed: Path, tmp_path: Path) -> None:
    kills = 0
    for seed in range(2, 30):
        killed = survive(tmp_path / str(seed), undisturbed, 12, seed)
        assert fingerprint(tmp_path / str(seed)) == fingerprint(undisturbed)
        kills += sum(killed.values())
        if kills >= 100:
            return
    pytest.fail(f"only {kills} kills fell")


def cut(run: Path, iteration: int, tmp_path: Path) -> Path:
    """A copy of a finished run, as it was after an iteration, but for what retention deleted."""
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-r", run, copy], check=True)
    store = Store(copy / "run.sqlite")
    store.forget_after(iteration)
    store.close()
    return copy


@pytest.mark.parametrize("damage", ["flip", "truncate", "remove", "manifest"])
def test_a_damaged_checkpoint_is_passed_over_and_the_result_is_the_same(
    undisturbed: Path, tmp_path: Path, damage: str
) -> None:
    copy = cut(undisturbed, 3, tmp_path)
    newest = copy / "checkpoints" / "iter-00003"
    file = newest / "policy" / "model.safetensors"
    content = bytearray(file.read_bytes())
    if damage == "flip":
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
    elif damage == "truncate":
        file.write_bytes(content[:1000])
    elif damage == "remove":
        file.unlink()
    else:
        (newest / "manifest.json").write_text("{")
    assert problems(newest)
    with (tmp_path / "said").open("w") as said:
        Trainer.resume(copy, progress=Progress(Console(file=said, width=500))).train()
    text = (tmp_path / "said").read_text()
    assert "damaged: iter-00003" in text
    assert "resuming after iteration 2" in text
    assert fingerprint(copy) == fingerprint(undisturbed)


def test_a_run_without_a_checkpoint_of_its_last_iteration_repeats_it(
    undisturbed: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    overrides = [f"run_dir={run}", *TINIER, "checkpoints.write_every=2"]
    for record in Trainer(GUESS, overrides=overrides, progress=QUIET):
        assert (record.number, record.checkpoint) == (1, "")
        break  # killed, as it were
    with (tmp_path / "said").open("w") as said:
        Trainer.resume(run, progress=Progress(Console(file=said, width=500))).train()
    assert "resuming after iteration 0" in (tmp_path / "said").read_text()
    written = sorted(path.name for path in (run / "checkpoints").iterdir())
    assert written == ["iter-00002", "iter-00003"]  # every second one, and the last
    # The stores differ in the names of the checkpoints.
    ours, theirs = fingerprint(run), fingerprint(undisturbed)
    assert ours.pop("store") != theirs.pop("store")
    assert ours == theirs


def test_checksums_are_computed_side_by_side(
    undisturbed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = threading.Barrier(2, timeout=30)
    first = iter(range(2))

    def digest_of(path: Path) -> str:
        if next(first, None) is not None:
            both.wait()
        return alone(path)

    alone = checkpoint._digest
    monkeypatch.setattr(checkpoint, "_digest", digest_of)
    assert problems(undisturbed / "checkpoints" / "iter-00003") == []


def test_without_an_intact_checkpoint_nothing_is_forgotten(
    undisturbed: Path, tmp_path: Path
) -> None:
    copy = cut(undisturbed, 3, tmp_path)
    for damaged in (copy / "checkpoints").glob("iter-*"):
        (damaged / "pool.json").write_text("{}")
    with pytest.raises(CheckpointError, match="none of its checkpoints is intact"):
        Trainer.resume(copy, progress=QUIET).train()
    store = Store(copy / "run.sqlite")
    assert store.last_iteration() == (3, "iter-00003")
    store.close()


def test_a_finished_run_can_be_given_more_iterations(undisturbed: Path, tmp_path: Path) -> None:
    copy = cut(undisturbed, 3, tmp_path)
    Trainer.resume(copy, overrides=["loop.iterations=4"], progress=QUIET).train()
    longer = train(tmp_path / "longer", "loop.iterations=4")
    store, other = Store(copy / "run.sqlite"), Store(longer / "run.sqlite")
    assert store.last_iteration() == other.last_iteration() == (4, "iter-00004")
    for role in ("policy", "judge"):
        name = f"checkpoints/iter-00004/{role}/model.safetensors"
        assert (copy / name).read_bytes() == (longer / name).read_bytes()
    store.close()
    other.close()


def test_more_iterations_are_remembered_by_a_run_that_is_killed_and_resumed(
    undisturbed: Path, tmp_path: Path
) -> None:
    copy = cut(undisturbed, 3, tmp_path)
    assert open_run(copy).finished
    for _ in Trainer.resume(copy, overrides=["loop.iterations=5"], progress=QUIET):
        break  # killed, as it were, with one iteration more
    assert not open_run(copy).finished
    assert open_run(copy).recipe["loop"]["iterations"] == 5
    (recipe, *_) = check_run(copy)
    assert "5 iterations" in recipe.text
    with closing(Store(copy / "run.sqlite")) as store:
        facts = Reader(store, copy).facts()
        assert (facts.state, facts.iterations, facts.planned) == ("stopped", 4, 5)
    lines = Trainer.resume(copy, progress=QUIET).train()
    assert open_run(copy).finished
    with closing(Store(copy / "run.sqlite")) as store:
        assert store.evaluated_iterations() == [0, 3, 5]
        for line, gain in zip(lines, policy_gains(store, ["in_domain", "ood"]), strict=False):
            assert f"{gain.name}: {percent(gain.before)} -> {percent(gain.after)}" in line
            assert gain.before == success(store.outcomes(0, gain.name))
            assert gain.after == success(store.outcomes(5, gain.name))
        assert json.loads(dict(store.query("SELECT * FROM run"))["closing"]) == lines
        assert Reader(store, copy).facts().state == "finished"


def test_what_was_changed_stands_in_the_recipe_of_the_run(
    undisturbed: Path, tmp_path: Path
) -> None:
    copy = cut(undisturbed, 3, tmp_path)
    before = (copy / "recipe.yaml").read_text()
    Trainer.resume(copy, overrides=["environment.workers=1"], progress=QUIET).train()
    Trainer.resume(copy, overrides={"loop.iterations": 3}, progress=QUIET).train()
    text = (copy / "recipe.yaml").read_text()
    assert [line for line in text.splitlines() if line not in before.splitlines()] == [
        "# after iteration 3: environment.workers=1",
        "  workers: 1",
    ]
    assert load_recipe(copy / "recipe.yaml").environment.workers == 1
    Trainer.resume(copy, overrides=["store.keep_iterations=2\n"], progress=QUIET).train()
    assert load_recipe(copy / "recipe.yaml").store.keep_iterations == 2
    assert open_run(copy).recipe["store"]["keep_iterations"] == 2


def test_a_run_that_is_to_end_where_it_got_is_evaluated_as_it_is(
    undisturbed: Path, tmp_path: Path
) -> None:
    copy = cut(undisturbed, 2, tmp_path)  # and iteration 3 is forgotten with its evaluation
    Trainer.resume(copy, overrides=["loop.iterations=2"], progress=QUIET).train()
    with closing(Store(copy / "run.sqlite")) as store:
        assert store.evaluated_iterations() == [0, 2]
        assert store.finished()


def test_a_run_whose_directory_goes_away_ends_with_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    keep = Session._keep

    def then_delete(session: Session, *given: Any) -> Any:
        shutil.rmtree(run)
        return keep(session, *given)

    monkeypatch.setattr(Session, "_keep", then_delete)
    changes = ["evaluation.episodes=0", "loop.tasks_per_iteration=1", "loop.iterations=1"]
    assert call(monkeypatch, "train", str(GUESS), f"run_dir={run}", *TINIER, *changes) == 2
    printed = " ".join(capsys.readouterr().err.split())
    assert f"error: {run} was deleted or moved while the run was at work in it" in printed
    assert "resume`" not in printed
    assert not run.exists()


def test_a_store_that_was_replaced_takes_no_more_iterations(
    undisturbed: Path, tmp_path: Path
) -> None:
    copy = cut(undisturbed, 3, tmp_path)
    with closing(Store(copy / "run.sqlite")) as store:
        shutil.copy(copy / "run.sqlite", copy / "other")
        (copy / "other").rename(copy / "run.sqlite")
        with pytest.raises(StoreError, match="was deleted, moved or replaced"):
            store.describe({"finished": None})


def test_retention_keeps_the_newest_and_every_nth(tmp_path: Path) -> None:
    changes = ["loop.iterations=5", "checkpoints.keep=1", "checkpoints.every=2"]
    changes += ["loop.tasks_per_iteration=1", "evaluation.episodes=0"]
    run = train(tmp_path / "run", *changes)
    kept = sorted(path.name for path in (run / "checkpoints").iterdir())
    assert kept == ["iter-00002", "iter-00004", "iter-00005"]


def test_train_on_an_existing_run_says_how_to_resume(undisturbed: Path) -> None:
    with pytest.raises(RecipeError, match=f"rlanything resume {undisturbed}"):
        Trainer(GUESS, overrides=[*FEW, f"run_dir={undisturbed}"], progress=QUIET)


@pytest.mark.parametrize("override", ["policy.learning_rate=1", "seed=3", "environmentworkers=1"])
def test_a_resumed_run_stays_the_run_it_was(undisturbed: Path, override: str) -> None:
    with pytest.raises(RecipeError, match="stays the run it was"):
        Trainer.resume(undisturbed, overrides=[override], progress=QUIET)


def test_a_resumed_run_may_change_a_whole_section(undisturbed: Path, tmp_path: Path) -> None:
    run = cut(undisturbed, 3, tmp_path)
    resumed = Trainer.resume(run, overrides=["store={keep_iterations: 20}"], progress=QUIET)
    assert resumed.recipe.store.keep_iterations == 20


def test_a_resumed_run_may_wait_longer_for_a_model(undisturbed: Path, tmp_path: Path) -> None:
    run = cut(undisturbed, 3, tmp_path)
    overrides = ["policy.timeout_seconds=1200", "judge.timeout_seconds=1300"]
    resumed = Trainer.resume(run, overrides=overrides, progress=QUIET)
    roles = resumed.recipe.roles
    assert [roles[name].timeout_seconds for name in ("policy", "judge")] == [1200, 1300]


def test_what_is_no_run_cannot_be_resumed(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="is not a run directory"):
        Trainer.resume(tmp_path, progress=QUIET)


def test_a_second_process_is_refused_by_pid(undisturbed: Path) -> None:
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys, time; from pathlib import Path\n"
            "from rlanything.runs.directory import run_lock\n"
            "with run_lock(Path(sys.argv[1])): print('held', flush=True); time.sleep(60)",
            undisturbed,
        ],
        stdout=subprocess.PIPE,
    )
    try:
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(LockedError, match=f"in use by process {holder.pid}"):
            Trainer.resume(undisturbed, progress=QUIET).train()
    finally:
        holder.kill()
        holder.wait()
    # What a killed process leaves is no obstacle, and this process is not told to kill itself.
    with run_lock(undisturbed), pytest.raises(LockedError, match="an iterator over its run is"):
        Trainer.resume(undisturbed, progress=QUIET).train()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_a_run_within_seconds_and_says_how_to_go_on(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    run = tmp_path / "run"
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "rlanything.cli", "train", GUESS, f"run_dir={run}", *TINIER),
            "loop.iterations=100",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert "before training" in process.stdout.readline()
    time.sleep(1.0)
    process.send_signal(number)
    begun = time.monotonic()
    _, errors = process.communicate(timeout=60)
    assert time.monotonic() - begun < 30
    assert process.returncode == code
    assert f"rlanything resume {run}" in errors
    assert "Traceback" not in errors
    assert (run / "report.html").is_file()
    with closing(Store(run / "run.sqlite")) as store:
        done, _ = store.last_iteration() or (0, "")
    # Several iterations may be done by then.
    Trainer.resume(run, overrides=[f"loop.iterations={max(done, 1)}"], progress=QUIET).train()
