"""The store: what it keeps comes back, an iteration is there wholly or not at all, and it can go
back, forget, and say what is wrong."""

from __future__ import annotations

import io
import os
import shutil
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as numpy_strategies
from rich.console import Console

from helpers.results import evaluation_record, iteration_record
from rlanything.algorithm.curriculum import Candidate, Pool
from rlanything.algorithm.feedback import FeedbackSettings
from rlanything.records import (
    Completion,
    JudgedTrajectory,
    Judgement,
    Sample,
    Step,
    Task,
    Trajectory,
)
from rlanything.roles.adapter import Proposal, Refusal
from rlanything.roles.judges.base import StepJudge
from rlanything.rollout.groups import RolloutGroup, ScheduledTask, grouped
from rlanything.runs.lineage import lineage_table, read_lineage
from rlanything.runs.open import open_run
from rlanything.runs.store import database
from rlanything.runs.store.codec import (
    decode_episode,
    decode_numbers,
    encode_episode,
    encode_numbers,
    prompt_hash,
)
from rlanything.runs.store.database import StoreError
from rlanything.runs.store.store import Store

ROOTS = [Task(f"t{i}", f"put mug {i} in sink", "pick", {"goal": i}) for i in range(3)]
STEPS, JUDGEMENTS, ROLLOUTS = 3, 2, 4


def completion(rng: np.random.Generator, text: str) -> Completion:
    """Random tokens, and log-probs such as an engine computes them: float32."""
    ids = rng.integers(0, 150_000, 8).tolist()
    logprobs = (-rng.exponential(1, 8)).astype(np.float32).tolist()
    prompt = tuple(rng.integers(0, 150_000, 5).tolist())
    return Completion(prompt, tuple(ids), tuple(logprobs), ((),) * 8, "stop", text)


def episode(name: str, task: Task, outcome: int, seed: int) -> JudgedTrajectory:
    rng = np.random.default_rng(seed)
    steps, judgements = [], []
    for i in range(STEPS):
        said = completion(rng, f"I think {rng.integers(99)} > go\n")
        valid = bool(rng.integers(2))
        action = "go" if valid else None
        steps.append(Step(f"{name} sees {i} é", said, action, valid, f"{name} sees {i + 1} é"))
        answers = [completion(rng, f"it is {rng.integers(99)}") for _ in range(JUDGEMENTS)]
        asked = [replace(each, prompt_ids=answers[0].prompt_ids) for each in answers]
        judgements.append(tuple(Judgement(each, int(rng.choice([-1, 1]))) for each in asked))
    return JudgedTrajectory(Trajectory(name, task, tuple(steps), outcome), tuple(judgements))


def experience(iteration: int, pool: Pool) -> list[RolloutGroup]:
    """Rollouts of every active task and candidate; half of them won."""
    entries = [ScheduledTask(slot.id, slot.active, False) for slot in pool.slots]
    entries += [ScheduledTask(s.id, s.pending.task, True) for s in pool.pending() if s.pending]
    judged = [
        episode(f"{iteration}/{entry.task.id}/{g}", entry.task, 1 - g % 2 * 2, 97 * iteration + g)
        for entry in entries
        for g in range(ROLLOUTS)
    ]
    return grouped(entries, judged, lambda group: StepJudge().signals(group, FeedbackSettings()))


def record(
    store: Store,
    iteration: int,
    pool: Pool,
    change: Callable[[dict[str, Any]], None] = lambda given: None,
) -> dict[str, Any]:
    """Records an iteration and returns what it was; `change` may alter that first."""
    groups = experience(iteration, pool)
    given: dict[str, Any] = {
        "groups": groups,
        "labels": {
            each.trajectory.id: [1, -1, 1]
            for group in groups
            for each in group.judged
            if not each.trajectory.id.endswith("/3")
        },
        "samples": {
            "policy": [sample for group in groups for sample in group.samples("policy")],
            "judge": [sample for group in groups for sample in group.samples("judge")],
        },
        "proposals": [
            Proposal("t0", None, ("it looked twice",), (Refusal("invalid", "'x': no task"),))
        ],
        "failures": [("t1", "the worker died")],
        "pool": pool,
        "metrics": {"rollouts/success": 0.5, "judge/kl": None, "seconds/rollouts": 1.5},
        "checkpoint": f"iter-{iteration:05d}",
        "finished": "2026-01-01T00:00:00+00:00",
    }
    change(given)
    store.record_iteration(iteration_record(iteration, **given))
    return given


def new_pool() -> Pool:
    return Pool(ROOTS, 0.2, 0.8)


def propose(pool: Pool, slot: str, iteration: int) -> None:
    task = replace(
        pool.slot(slot).root, id=f"{slot}@{iteration}", instruction=f"harder {iteration}"
    )
    pool.propose(slot, Candidate(task, "harder", 0.9, ("too easy",), iteration))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.create(tmp_path / "run.sqlite")
    yield opened
    opened.close()


def counts(store: Store) -> dict[str, int]:
    names = store.query("SELECT name FROM sqlite_master WHERE type = 'table'")
    return {name: store.query(f"SELECT COUNT(*) FROM {name}")[0][0] for (name,) in names}


# --- what is kept


def test_an_episode_is_read_back_as_it_was_recorded(store: Store) -> None:
    given = record(store, 1, new_pool())
    advantages = {s.source: s.advantage for samples in given["samples"].values() for s in samples}
    assert advantages
    for judged in (each for group in given["groups"] for each in group.judged):
        trajectory = judged.trajectory
        found = store.trajectory(trajectory.id)
        assert (found.id, found.iteration, found.task, found.outcome) == (
            trajectory.id,
            1,
            trajectory.task.id,
            trajectory.outcome,
        )
        assert len(found.steps) == STEPS
        for i, (one, step) in enumerate(zip(found.steps, trajectory.steps, strict=True)):
            assert (one.observation, one.next_observation) == (
                step.observation,
                step.next_observation,
            )
            assert (one.action, one.valid) == (step.action, step.valid)
            assert one.label == given["labels"].get(trajectory.id, [None] * STEPS)[i]
            assert one.advantage == advantages.get(f"{trajectory.id}/{i}")
            pairs = [(one.completion, step.completion)]
            for j, (kept, judgement) in enumerate(
                zip(one.judgements, judged.judgements[i], strict=True)
            ):
                assert kept.score == judgement.score
                assert kept.advantage == advantages.get(f"{trajectory.id}/{i}/{j}")
                pairs.append((kept.completion, judgement.completion))
            for written, sampled in pairs:
                assert written.text == sampled.text
                assert written.token_ids == sampled.token_ids
                assert written.logprobs == sampled.logprobs
                assert written.prompt_hash == prompt_hash(sampled.prompt_ids)


def test_whatever_a_model_writes_comes_back() -> None:
    odd = ["", "\x00\n\\u0041 \"'", "日本語 🙂", "half a pair \ud83d", "\\boxed{1}"]
    judged = episode("e", ROOTS[0], 1, 0)
    steps = tuple(
        replace(step, completion=replace(step.completion, text=odd[i]))
        for i, step in enumerate(judged.trajectory.steps)
    )
    answers = tuple(
        (Judgement(Completion.unsampled(odd[i + 2]), 0),) * (i % 2) for i in range(STEPS)
    )
    odd_ones = JudgedTrajectory(replace(judged.trajectory, steps=steps), answers)
    found = decode_episode(encode_episode(odd_ones))
    assert [each.text for each in found.responses] == odd[:STEPS]
    assert [[each.text for each in row] for row in found.judgements] == [[], [odd[3]], []]
    assert found.judgements[1][0].token_ids == ()


def test_half_a_character_loses_no_iteration(store: Store) -> None:
    odd = "go \ud83d"

    def change(given: dict[str, Any]) -> None:
        group, *others = given["groups"]
        first, *rest = group.judged
        steps = tuple(replace(step, action=odd) for step in first.trajectory.steps)
        first = replace(first, trajectory=replace(first.trajectory, steps=steps))
        given["groups"] = [replace(group, judged=(first, *rest)), *others]
        given["failures"] = [("t1", odd)]

    pool = new_pool()
    pool.propose("t0", Candidate(Task("t0@1", odd), "harder", 0.9, (odd,), 1))
    record(store, 1, pool, change)
    assert ("go ?",) in store.query("SELECT action FROM steps")
    assert store.query("SELECT reason FROM failures") == [("go ?",)]
    assert store.query("SELECT instruction FROM tasks WHERE id = 't0@1'") == [("go ?",)]


def test_scores_of_a_judge_that_computes_with_numpy_are_kept_as_numbers(store: Store) -> None:
    def change(given: dict[str, Any]) -> None:
        group, *others = given["groups"]
        first, *rest = group.judged
        steps = tuple(
            tuple(replace(each, score=np.int64(each.score)) for each in step)
            for step in first.judgements
        )
        first = replace(first, judgements=steps)
        given["groups"] = [replace(group, judged=(first, *rest)), *others]

    record(store, 1, new_pool(), change)
    assert store.query("SELECT DISTINCT typeof(score) FROM judgements") == [("integer",)]


def test_an_observation_is_kept_once_and_one_that_jumps_is_refused() -> None:
    judged = episode("e", ROOTS[0], 1, 0)
    assert decode_episode(encode_episode(judged)).observations == tuple(
        f"e sees {i} é" for i in range(STEPS + 1)
    )
    first, *rest = judged.trajectory.steps
    jump = replace(judged.trajectory, steps=(replace(first, next_observation="other"), *rest))
    with pytest.raises(ValueError, match="trajectory e: step 1"):
        encode_episode(replace(judged, trajectory=jump))


def test_an_episode_of_no_steps_is_an_episode() -> None:
    nothing = JudgedTrajectory(Trajectory("e", ROOTS[0], (), -1), ())
    assert decode_episode(encode_episode(nothing)).responses == ()


@given(
    numpy_strategies.arrays(
        st.sampled_from(["<f4", "<f8"]), st.integers(0, 40), elements=st.floats(width=32)
    )
)
def test_numbers_come_back_bit_for_bit(numbers: np.ndarray) -> None:
    found = decode_numbers(encode_numbers(numbers), numbers.dtype.str)
    assert found.tobytes() == numbers.tobytes()


def test_samples_are_the_steps_and_judgements_that_trained(store: Store) -> None:
    given = record(store, 1, new_pool())
    for role, samples in given["samples"].items():
        found = store.query("SELECT source, advantage FROM samples WHERE role = ?", role)
        assert dict(found) == {sample.source: sample.advantage for sample in samples}
        assert len(found) == len(samples) > 0


def drop_tokens(samples: dict[str, list[Sample]]) -> None:
    first = samples["policy"][0]
    shorter = replace(first.completion, token_ids=first.completion.token_ids[1:])
    samples["policy"][0] = replace(first, completion=shorter)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda s: s["policy"].append(replace(s["policy"][0], source="9/t0/0/0")), "9/t0/0/0"),
        (lambda s: s["policy"].append(s["judge"][0]), "no trajectory"),
        (lambda s: s["judge"].append(s["judge"][0]), "twice"),
        (drop_tokens, "other tokens"),
    ],
)
def test_a_sample_that_is_not_what_was_sampled_is_refused(
    store: Store, spoil: Callable[[dict[str, list[Sample]]], None], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        record(store, 1, new_pool(), lambda given: spoil(given["samples"]))
    assert not any(counts(store).values())


def test_an_evaluation_is_read_back(store: Store) -> None:
    rows = [("a", "pick", 1, 4), ("b", "look", -1, 9)]
    assert store.evaluated_iterations() == []
    held_out = episode("e1", ROOTS[0], 1, 0).trajectory
    metrics = {"evaluation/ood/success": 0.5}
    counted = {"good steps": (1, 2), "bad steps": (np.int64(3), np.int64(4))}
    more = episode("e2", ROOTS[0], 1, 0).trajectory
    labels = {"e1": [1] * len(held_out.steps)}
    episodes = [held_out, more]
    store.record_evaluation(
        evaluation_record(0, {"ood": rows}, {"judge": {"e1": counted}}, metrics, episodes, labels)
    )
    assert store.judge_eval_labels() == labels
    read, _ = store.judge_eval_episodes()
    assert (read.id, read.task, read.outcome) == (held_out.id, held_out.task, held_out.outcome)
    assert [replace(step, completion=None) for step in read.steps] == [
        replace(step, completion=None) for step in held_out.steps
    ]
    assert [s.response for s in read.steps] == [s.response for s in held_out.steps]
    store.record_evaluation(evaluation_record(3, {"ood": rows[:1]}, {}, {}))
    assert store.evaluated_iterations() == [0, 3]
    assert store.outcomes(0, "ood") == [("a", 1), ("b", -1)]
    assert store.outcomes(0, "in_domain") == []
    assert store.judge_eval_counts(0, "judge") == {"e1": counted}
    assert store.metrics(0) == {"evaluation/ood/success": 0.5}
    with pytest.raises(sqlite3.IntegrityError):
        store.record_evaluation(evaluation_record(3, {"other": rows, "ood": rows}, {}, {}))
    assert store.outcomes(3, "other") == []


# --- wholly or not at all


class Failing(Mapping[str, Sequence[int]]):
    """Labels that do not come for the last trajectory."""

    def __init__(self, fail: Callable[[], None], after: int) -> None:
        self._fail, self._left = fail, after

    def __getitem__(self, name: str) -> Sequence[int]:
        self._left -= 1
        if self._left < 0:
            self._fail()
        return [1] * STEPS

    def __iter__(self) -> Iterator[str]:
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError


def interrupt() -> None:
    raise KeyboardInterrupt


def test_an_iteration_that_fails_in_the_middle_leaves_nothing(store: Store) -> None:
    pool = new_pool()
    record(store, 1, pool)
    before, rows = store.dump(), counts(store)
    propose(pool, "t1", 2)
    with pytest.raises(KeyboardInterrupt):
        record(store, 2, pool, lambda given: given.update(labels=Failing(interrupt, 5)))
    assert store.dump() == before
    assert counts(store) == rows
    assert store.last_iteration() == (1, "iter-00001")
    record(store, 2, pool)
    assert store.last_iteration() == (2, "iter-00002")
    assert store.check() == []


def test_a_process_that_is_killed_in_the_middle_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    program = f"""
        import os, sys
        from pathlib import Path
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from test_store import Failing, Store, new_pool, record
        store = Store.create(Path({str(path)!r}))
        record(store, 1, new_pool())
        dying = Failing(lambda: os._exit(9), 5)
        record(store, 2, new_pool(), lambda given: given.update(labels=dying))
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], env=environment)
    assert done.returncode == 9
    store = Store(path)
    assert store.last_iteration() == (1, "iter-00001")
    assert store.query("SELECT DISTINCT iteration FROM trajectories") == [(1,)]
    assert store.check() == []
    store.close()


def test_others_read_the_last_whole_iteration_while_one_is_written(
    store: Store, tmp_path: Path
) -> None:
    seen: list[int] = []

    def look() -> None:
        reader = Store(tmp_path / "run.sqlite")
        seen.append(reader.query("SELECT COUNT(*) FROM trajectories")[0][0])
        reader.close()

    pool = new_pool()
    record(store, 1, pool)
    record(store, 2, pool, lambda given: given.update(labels=Failing(look, 5)))
    assert seen
    assert set(seen) == {len(ROOTS) * ROLLOUTS}


# --- the same content, the same dump


def recorded(folder: Path, change: Callable[[dict[str, Any]], None]) -> list[str]:
    folder.mkdir()
    store = Store.create(folder / "run.sqlite")
    record(store, 1, new_pool(), change)
    lines = store.dump()
    assert lines == store.dump()
    store.close()
    return lines


def alter(which: str) -> Callable[[dict[str, Any]], None]:
    """Changes the last episode of an iteration in one respect."""

    def change(given: dict[str, Any]) -> None:
        group = given["groups"][-1]
        judged = group.judged[-1]
        trajectory = judged.trajectory
        *steps, last = trajectory.steps
        said = last.completion
        if which == "text":
            said = replace(said, text=said.text + " ")
        elif which == "token":
            said = replace(said, token_ids=(*said.token_ids[:-1], said.token_ids[-1] + 1))
        elif which == "logprob":
            nearest = float(np.nextafter(np.float32(said.logprobs[-1]), np.float32(0)))
            said = replace(said, logprobs=(*said.logprobs[:-1], nearest))
        elif which == "prompt":
            said = replace(said, prompt_ids=(1,))
        elif which == "observation":
            last = replace(last, next_observation="the end")
        elif which == "action":
            last = replace(last, action="look")
        elif which == "outcome":
            trajectory = replace(trajectory, outcome=-trajectory.outcome)
        elif which == "score":
            (one, *rest), *others = judged.judgements
            judged = replace(judged, judgements=((replace(one, score=0), *rest), *others))
        last = replace(last, completion=said)
        judged = replace(judged, trajectory=replace(trajectory, steps=(*steps, last)))
        given["groups"][-1] = replace(group, judged=(*group.judged[:-1], judged))
        # Those of the altered episode would not be its own any more.
        for samples in given["samples"].values():
            samples[:] = [s for s in samples if not s.source.startswith(trajectory.id)]

    return change


ALTERED = ("text", "token", "logprob", "prompt", "observation", "action", "outcome", "score")


def test_runs_that_did_the_same_at_other_times_have_equal_dumps(tmp_path: Path) -> None:
    def later(given: dict[str, Any]) -> None:
        given["finished"] = "2030-01-01T00:00:00+00:00"
        given["metrics"]["seconds/rollouts"] = 99.0

    assert recorded(tmp_path / "a", lambda given: None) == recorded(tmp_path / "b", later)


@pytest.mark.parametrize("which", ALTERED)
def test_any_difference_shows_in_the_dump(tmp_path: Path, which: str) -> None:
    assert recorded(tmp_path / "a", alter("nothing")) != recorded(tmp_path / "b", alter(which))


@pytest.mark.parametrize(
    "change",
    [
        lambda given: given["metrics"].update({"rollouts/success": 0.25}),
        lambda given: given.update(checkpoint="iter-00009"),
        lambda given: given.update(failures=[]),
        lambda given: given.update(proposals=[]),
        lambda given: given["labels"].clear(),
        lambda given: given["samples"]["judge"].pop(),
        lambda given: propose(given["pool"], "t0", 1),
    ],
)
def test_a_difference_beside_the_episodes_shows_as_well(
    tmp_path: Path, change: Callable[[dict[str, Any]], None]
) -> None:
    same = recorded(tmp_path / "a", lambda given: None)
    assert recorded(tmp_path / "b", change) != same


# --- going back


def live(store: Store, pool: Pool, iteration: int) -> None:
    """An iteration that settles what is pending, proposes anew, and is evaluated."""
    for slot in pool.pending():
        pool.settle(slot.id, 0.5, iteration)
    propose(pool, f"t{iteration % 3}", iteration)
    if iteration == 2:
        pool.quarantine("t0", "t0", "it hung twice", iteration)
    record(store, iteration, pool)
    store.record_evaluation(
        evaluation_record(
            iteration,
            {"ood": [("a", "pick", 1, 4)]},
            {"judge": {"e": {"good steps": (1, 2), "bad steps": (3, 4)}}},
            {"m": 1},
        )
    )


def test_what_is_forgotten_was_never_there(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "run.sqlite")
    pool = new_pool()
    dumps, pools = [store.dump()], [pool.to_json()]
    store.write_pool(pool)
    begun = store.dump()
    for iteration in (1, 2, 3):
        live(store, pool, iteration)
        dumps.append(store.dump())
        pools.append(pool.to_json())
    store.forget_after(1)
    store.write_pool(Pool.from_json(pools[1]))
    assert store.dump() == dumps[1]
    assert store.last_iteration() == (1, "iter-00001")
    again = Pool.from_json(pools[1])
    for iteration in (2, 3):
        live(store, again, iteration)
        assert store.dump() == dumps[iteration]
    assert store.check() == []
    store.forget_after(0)
    store.write_pool(new_pool())
    assert store.dump() == begun
    assert store.last_iteration() is None
    store.close()


def test_the_evaluation_before_training_is_not_forgotten(store: Store) -> None:
    store.record_evaluation(
        evaluation_record(
            0,
            {"ood": [("a", "pick", 1, 4)]},
            {"judge": {"e": {"good steps": (1, 2), "bad steps": (3, 4)}}},
            {"m": 1.0},
        )
    )
    before = store.dump()
    live(store, new_pool(), 1)
    store.forget_after(0)
    store.write_pool(new_pool())
    assert [
        line for line in store.dump() if '"tasks"' not in line and '"slots"' not in line
    ] == before


# --- retention


def test_forgotten_texts_leave_what_was_counted(store: Store) -> None:
    pool = new_pool()
    for iteration in (1, 2, 3):
        record(store, iteration, pool)
    tables = counts(store)
    store.forget_texts(before=3)
    left = counts(store)
    assert left.pop("transcripts") == tables.pop("transcripts") // 3
    assert left == tables
    assert store.trajectory("3/t0/0").steps[0].observation == "3/t0/0 sees 0 é"
    with pytest.raises(StoreError, match="keep_iterations"):
        store.trajectory("2/t0/0")
    assert store.check() == []


def test_a_reader_of_a_run_that_forgets_meanwhile_leaves_out_what_is_gone(store: Store) -> None:
    pool = new_pool()
    for iteration in (1, 2):
        record(store, iteration, pool)
    folder = Path(store.query("PRAGMA database_list")[0][2]).parent
    (folder / "recipe.yaml").touch()
    whole = open_run(folder).trajectories()
    reading = open_run(folder).iterate_trajectories()
    first = next(reading)
    store.forget_texts(before=2)
    assert [first, *reading] == [whole[0], *(each for each in whole if each.iteration == 2)]

    with closing(Store(folder / "run.sqlite")) as reader, reader.snapshot():
        before = counts(reader)
        store.forget_texts(before=3)
        assert counts(reader) == before != counts(store)


def test_forgotten_space_is_written_into_again(store: Store) -> None:
    pool = new_pool()
    pages = []
    for iteration in range(1, 13):
        record(store, iteration, pool)
        store.forget_texts(before=iteration)
        pages.append(store.query("PRAGMA page_count")[0][0])
    kept = sum(map(len, store.query("SELECT texts FROM transcripts")[0]))
    assert kept
    per_iteration = (pages[-1] - pages[3]) / 8
    forgetful = Store.create(
        Path(store.query("PRAGMA database_list")[0][2]).with_name("all.sqlite")
    )
    for iteration in range(1, 13):
        record(forgetful, iteration, pool)
    grown = forgetful.query("PRAGMA page_count")[0][0] / 12
    forgetful.close()
    assert per_iteration < grown / 2


# --- what goes wrong


def fill_up(store: Store, first: int) -> str:
    """Records iterations until the disk is full; what is said then."""
    pool = new_pool()
    for iteration in range(first, 400):
        try:
            record(store, iteration, pool)
        except StoreError as error:
            assert store.last_iteration() == (iteration - 1, f"iter-{iteration - 1:05d}")
            return str(error)
    raise AssertionError("it never got full")


def one_line(said: str, path: Path) -> bool:
    return str(path) in said and "\n" not in said


def test_a_full_store_keeps_what_it_has_and_says_what_to_do(store: Store, tmp_path: Path) -> None:
    record(store, 1, new_pool())
    pages = store.query("PRAGMA page_count")[0][0]
    store.query(f"PRAGMA max_page_count={3 * pages}")
    said = fill_up(store, 2)
    assert one_line(said, tmp_path / "run.sqlite")
    assert "full; free some space" in said
    dump = store.dump()
    again = Store(tmp_path / "run.sqlite")
    assert again.dump() == dump
    assert again.check() == []
    newest = again.last_iteration()
    assert newest is not None
    record(again, newest[0] + 1, new_pool())
    again.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    place = tmp_path / "disk"
    place.mkdir()
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("only root can mount a small file system")
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"mount: {done.stderr.strip()}")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk_leaves_a_store_that_opens(small_disk: Path) -> None:
    path = small_disk / "run.sqlite"
    store = Store.create(path)
    said = fill_up(store, 1)
    assert one_line(said, path)
    dump = store.dump()
    store.close()
    again = Store(path)
    assert again.dump() == dump
    assert again.check() == []
    again.close()


def test_no_store_is_made_where_there_is_no_room(small_disk: Path) -> None:
    with pytest.raises(OSError, match="No space left"):
        (small_disk / "ballast").write_bytes(bytes(2 << 20))
    with pytest.raises(StoreError) as raised:
        Store.create(small_disk / "run.sqlite")
    assert one_line(str(raised.value), small_disk / "run.sqlite")


def test_a_store_that_another_process_writes_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(database, "BUSY_SECONDS", 0.05)
    path = tmp_path / "run.sqlite"
    store = Store.create(path)
    record(store, 1, new_pool())
    other = sqlite3.connect(path)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError) as raised:
        record(store, 2, new_pool())
    assert one_line(str(raised.value), path)
    assert "another process" in str(raised.value)
    assert store.last_iteration() == (1, "iter-00001")
    other.close()
    record(store, 2, new_pool())
    store.close()


def test_a_look_at_a_store_leaves_no_trace_and_cannot_write(tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    with closing(Store.create(path)) as writing:
        writing.describe({"begun": "then"})
    before = [
        (file.name, file.stat().st_mtime_ns, file.read_bytes()) for file in tmp_path.iterdir()
    ]
    with closing(Store(path, read_only=True)) as looking:
        assert looking.fact("begun") == "then"
        with pytest.raises(StoreError, match="readonly"):
            looking.describe({"begun": "now"})
    after = [(file.name, file.stat().st_mtime_ns, file.read_bytes()) for file in tmp_path.iterdir()]
    assert after == before


def test_a_store_of_another_version_is_refused(store: Store, tmp_path: Path) -> None:
    store.query("PRAGMA user_version=1")
    with pytest.raises(StoreError, match="has schema 1, this version reads"):
        Store(tmp_path / "run.sqlite")


def test_a_file_that_is_no_store_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    with pytest.raises(StoreError, match="not a run directory"):
        Store(path)
    path.write_bytes(b"nothing of the kind" * 1000)
    with pytest.raises(StoreError, match="damaged") as raised:
        Store(path)
    assert one_line(str(raised.value), path)


def test_check_finds_damage(store: Store, tmp_path: Path) -> None:
    record(store, 1, new_pool())
    assert store.check() == []
    sql = "SELECT rootpage FROM sqlite_master WHERE name = 'judgements'"
    page = store.query(sql)[0][0] - 1
    store.close()
    path = tmp_path / "run.sqlite"
    content = bytearray(path.read_bytes())
    content[page * 4096 : page * 4096 + 64] = bytes(64)
    path.write_bytes(content)
    damaged = Store(path)
    found = damaged.check()
    assert found
    assert all(one_line(each, path) for each in found)
    damaged.close()


def test_check_finds_rows_that_refer_to_nothing(store: Store, tmp_path: Path) -> None:
    record(store, 1, new_pool())
    careless = sqlite3.connect(tmp_path / "run.sqlite")  # without foreign keys
    careless.execute("DELETE FROM trajectories WHERE id = '1/t0/0'")
    careless.commit()
    careless.close()
    said = "; ".join(store.check())
    assert f"{STEPS} rows of steps refer to rows of trajectories" in said


def test_rows_that_refer_to_nothing_are_refused(store: Store) -> None:
    with pytest.raises(sqlite3.IntegrityError):
        record(store, 1, new_pool(), lambda given: given.update(failures=[("nobody", "died")]))
    assert not any(counts(store).values())


# --- lineage


def printed(slots: list[dict[str, Any]]) -> str:
    console = Console(width=200, file=io.StringIO())
    with console.capture() as captured:
        console.print(lineage_table(slots))
    return captured.get()


def test_lineage_says_which_tasks_are_quarantined_and_why(store: Store) -> None:
    pool = new_pool()
    for iteration in (1, 2, 3):
        live(store, pool, iteration)
    slots = {slot["slot"]: slot for slot in read_lineage(store)}
    assert slots["t0"]["quarantined"] == "it hung twice"
    assert slots["t1"]["quarantined"] is None
    assert "quarantined: it hung twice" in printed(list(slots.values()))
    assert dict(store.query("SELECT task, iteration FROM quarantine"))["t0"] == 2
    store.forget_after(0)
    store.write_pool(new_pool())
    assert [slot["quarantined"] for slot in read_lineage(store)] == [None] * 3


def test_a_candidate_that_could_not_be_played_has_no_accuracy_to_show(store: Store) -> None:
    pool = new_pool()
    propose(pool, "t0", 1)
    record(store, 1, pool)
    pool.quarantine("t0", "t0@1", "it hung", 2)
    record(store, 2, pool)
    assert "2: rejected, quarantined: it hung" in printed(read_lineage(store))


def test_a_judgement_that_several_trajectories_share_is_written_with_the_first(
    store: Store,
) -> None:
    def share(given: dict[str, Any]) -> None:
        for number, group in enumerate(given["groups"]):
            first, *rest = group.judged
            same = [replace(each, judgements=first.judgements) for each in rest]
            given["groups"][number] = replace(group, judged=(first, *same))
        given["samples"] = {"policy": [], "judge": []}

    first, second, *_ = record(store, 1, new_pool(), share)["groups"][0].judged
    told, again = (store.trajectory(each.trajectory.id) for each in (first, second))
    for i, step in enumerate(first.judgements):
        assert [j.completion.text for j in told.steps[i].judgements] == [
            j.completion.text for j in step
        ]
        assert [j.completion.text for j in again.steps[i].judgements] == [""] * len(step)
        assert [j.score for j in again.steps[i].judgements] == [j.score for j in step]
        assert again.steps[i].completion.text == second.trajectory.steps[i].response


def test_what_the_environment_measured_is_kept(store: Store) -> None:
    def measured(given: dict[str, Any]) -> None:
        group = given["groups"][0]
        first = replace(group.judged[0], trajectory=replace(group.judged[0].trajectory, reward=0.5))
        given["groups"][0] = replace(group, judged=(first, *group.judged[1:]))

    first, second, *_ = record(store, 1, new_pool(), measured)["groups"][0].judged
    assert store.trajectory(first.trajectory.id).reward == 0.5
    assert store.trajectory(second.trajectory.id).reward is None
