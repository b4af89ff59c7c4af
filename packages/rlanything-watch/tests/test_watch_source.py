"""Reading a run: the view that it gives, that it changes no file and blocks no writer."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from helpers.report_runs import make_run
from helpers.results import evaluation_record
from rlanything.runs.store.database import StoreError
from rlanything.runs.store.store import Store
from rlanything_watch import source as reading
from rlanything_watch.source import RunSource, RunView

KILLED = """
import os, sys
from pathlib import Path
from rlanything.runs.store.store import Store
store = Store(Path(sys.argv[1]))
store.describe({"begun": "2026-03-03T00:00:00+00:00"})
os._exit(9)
"""


def contents(run: Path) -> dict[str, bytes]:
    """Every file of a run but the index of the write-ahead log, which is rebuilt at will."""
    files = [path for path in run.iterdir() if not path.name.endswith("-shm")]
    return {path.name: path.read_bytes() for path in files}


def read(source: RunSource, episode: str | None = None) -> RunView:
    view = source.read(episode)
    assert view is not None
    return view


def test_a_finished_run_is_read_without_a_trace(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", 3)
    before = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in run.iterdir()}
    source = RunSource(run)
    source.check()
    view = read(source)
    assert (view.facts.state, view.facts.iterations) == ("finished", 3)
    after = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in run.iterdir()}
    assert after == before


def test_a_killed_runs_log_is_read_and_stays_what_it_is(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", 1)
    subprocess.run([sys.executable, "-c", KILLED, str(run / "run.sqlite")], check=False)
    before = contents(run)
    assert before["run.sqlite-wal"] != b""
    assert read(RunSource(run)).facts.begun == "2026-03-03T00:00:00+00:00"
    assert contents(run) == before


def test_a_look_never_holds_up_the_process_that_writes(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", 2)
    with closing(Store(run / "run.sqlite")) as training:
        training.describe({"begun": "2026-04-04T00:00:00+00:00"})
        with closing(Store(run / "run.sqlite", read_only=True)) as looking, looking.snapshot():
            known = looking.fact("begun")
            begun = time.monotonic()
            training.describe({"begun": "2026-05-05T00:00:00+00:00"})
            assert time.monotonic() - begun < 5  # `BUSY_SECONDS` is 10
            assert looking.fact("begun") == known == "2026-04-04T00:00:00+00:00"
    assert read(RunSource(run)).facts.begun == "2026-05-05T00:00:00+00:00"


def test_only_what_has_changed_is_read_again(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", 2)
    source = RunSource(run)
    assert read(source).facts.evaluated_iterations == (0, 2)
    assert source.read(None) is None
    with closing(Store(run / "run.sqlite")) as training:
        training.record_evaluation(evaluation_record(3, {"ood": [("a", "key", 1, 5)]}, {}, {}))
        assert read(source).facts.evaluated_iterations == (0, 2, 3)
        assert source.read(None) is None


def test_a_commit_that_the_disk_confirmed_only_after_a_look_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path / "run", 2)
    source = RunSource(run)
    with closing(Store(run / "run.sqlite")) as training:
        training.describe({"begun": "2026-06-06T00:00:00+00:00"})
        # The log is the same before and after the confirmation.
        monkeypatch.setattr(reading, "_stamp", lambda path: (1, 4096, 0))
        assert read(source).facts.begun == "2026-06-06T00:00:00+00:00"
        assert source.read(None) is None
        training.describe({"begun": "2026-07-07T00:00:00+00:00"})
        assert read(source).facts.begun == "2026-07-07T00:00:00+00:00"
        assert source.read(None) is None


def test_a_run_that_went_back_to_a_checkpoint_is_read_from_the_start(tmp_path: Path) -> None:
    run, longer = make_run(tmp_path / "run", 2), make_run(tmp_path / "longer", 4)
    source = RunSource(longer)
    assert len(read(source).episodes) > len(read(RunSource(run)).episodes)
    (run / "run.sqlite").replace(longer / "run.sqlite")
    assert [e.id for e in read(source).episodes] == [e.id for e in read(RunSource(longer)).episodes]


def test_an_iteration_that_is_repeated_in_place_is_read_again(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", 2)
    source = RunSource(run)
    before = read(source).episodes[-1].outcome
    with closing(Store(run / "run.sqlite")) as training, training._db.transaction() as db:
        db.execute("UPDATE iterations SET finished = '2026-06-06' WHERE iteration = 2")
        db.execute("UPDATE trajectories SET outcome = -outcome WHERE iteration = 2")
    assert read(source).episodes[-1].outcome == -before


def test_an_episode_is_chosen_by_its_id_and_else_the_newest(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", 2)
    source = RunSource(run)
    newest = read(source)
    assert newest.chosen == len(newest.episodes) - 1
    view = read(source, newest.episodes[5].id)
    assert view.chosen == 5
    assert view.played is not None
    assert view.played.id == newest.episodes[5].id
    assert read(source, "gone").chosen == newest.chosen


def test_an_episode_whose_texts_were_forgotten_keeps_its_numbers(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", 2)
    with closing(Store(run / "run.sqlite")) as training:
        training.forget_texts(before=3)
    view = read(RunSource(run))
    assert view.played is None
    assert view.chosen == len(view.episodes) - 1


def test_a_judgement_that_attempts_share_is_shown_with_each(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", 1, steps=1)
    with closing(Store(run / "run.sqlite")) as training:
        episodes = read(RunSource(run)).episodes
        group = [e for e in episodes if e.task == episodes[-1].task]
        assert len(group) > 1
        silent = make_run(tmp_path / "silent", 1, steps=1, say=lambda said: "")
        copy = Store(silent / "run.sqlite").query("SELECT * FROM transcripts WHERE trajectory = 1")
        with training._db.transaction() as db:
            for each in group[1:]:
                rest = (copy[0][1:], each.number)
                db.execute(
                    "UPDATE transcripts SET texts = ?, token_ids = ?, logprobs = ?, prompts = ?"
                    " WHERE trajectory = ?",
                    (*rest[0], rest[1]),
                )
    view = read(RunSource(run))
    assert view.played is not None
    [step] = view.played.steps
    assert step.response == ""
    assert [each.completion.text for each in step.judgements] == [
        f"drawer 0: a new place, says {i}." for i in range(3)
    ]


@pytest.mark.parametrize(
    "recipe",
    [
        {"name": 5},
        {"loop": {"iterations": "many"}},
        {"loop": []},
        {"roles": {"judge": {"does": "scores"}}},
    ],
)
def test_a_recipe_that_no_run_writes_is_one_line(tmp_path: Path, recipe: object) -> None:
    run = make_run(tmp_path / "run", 1)
    with closing(Store(run / "run.sqlite")) as training:
        training.describe({"recipe": json.dumps(recipe)})
    with pytest.raises(StoreError, match="holds rows that no run writes"):
        RunSource(run).read(None)


def test_a_store_with_values_that_no_run_writes_is_one_line(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", 1)
    with closing(Store(run / "run.sqlite")) as training, training._db.transaction() as db:
        db.execute("UPDATE metrics SET value = 'much'")
    with pytest.raises(StoreError, match="holds values that no run writes"):
        RunSource(run).read(None)
