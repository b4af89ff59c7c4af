from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rlanything.algorithm.curriculum import (
    Candidate,
    Pool,
    WorldSettings,
    accepts,
    direction,
    label_of,
    rejection,
)
from rlanything.records import Direction, Task

LOW, HIGH = 0.2, 0.8
accuracies = st.sampled_from([k / 8 for k in range(9)] + [0.2, 0.8])
directions = st.sampled_from(["harder", "easier"])


def task(name: str) -> Task:
    return Task(id=name, instruction=f"do {name}", data={"goal": [name, 1]})


def candidate(name: str, which: Direction = "harder", parent: float = 1.0) -> Candidate:
    return Candidate(task(name), which, parent, critics=("too easy",), proposed_iteration=3)


def pool(*names: str) -> Pool:
    return Pool([task(name) for name in names or ("a", "b", "c")], LOW, HIGH)


@pytest.mark.parametrize(
    ("accuracy", "expected"),
    [
        (1.0, "harder"),
        (0.875, "harder"),
        (0.8, None),
        (0.2, None),
        (0.125, "easier"),
        (0, "easier"),
    ],
)
def test_direction_follows_the_accuracy_strictly_beyond_its_bounds(accuracy, expected):
    assert direction(accuracy, LOW, HIGH) == expected


@pytest.mark.parametrize(
    ("which", "parent", "accuracy", "expected"),
    [
        ("harder", 1.0, 0.5, True),
        ("harder", 1.0, 0.875, True),
        ("harder", 0.875, 0.875, False),
        ("harder", 1.0, 0.2, False),
        ("easier", 0.0, 0.125, True),
        ("easier", 0.125, 0.125, False),
        ("easier", 0.0, 0.8, False),
        ("easier", 0.0, 0.0, False),
    ],
)
def test_acceptance_keeps_a_candidate_strictly_inside_its_bounds(which, parent, accuracy, expected):
    assert accepts(which, parent, accuracy, LOW, HIGH) is expected


@given(directions, accuracies, accuracies)
def test_acceptance_is_the_rule_as_the_paper_writes_it(which, parent, accuracy):
    rule_holds = (
        LOW < accuracy < parent if which == "harder" else parent < accuracy < HIGH
    ) and accuracy > 0
    assert accepts(which, parent, accuracy, LOW, HIGH) == rule_holds


@given(directions, accuracies, st.floats(0, 1), st.floats(0, 1))
def test_a_candidate_nobody_solved_is_never_accepted(which, parent, one, other):
    assert not accepts(which, parent, 0.0, min(one, other), max(one, other))


@given(directions, accuracies, accuracies)
def test_an_accepted_candidate_moved_the_way_it_was_asked_to(which, parent, accuracy):
    if accepts(which, parent, accuracy, LOW, HIGH):
        assert (accuracy < parent) == (which == "harder")
        assert direction(accuracy, LOW, HIGH) != ("easier" if which == "harder" else "harder")


def test_every_rejection_says_why():
    assert "solvable" in str(rejection("harder", 1.0, 0.0, LOW, HIGH))
    assert "not harder" in str(rejection("harder", 0.8, 0.9, LOW, HIGH))
    assert "too hard" in str(rejection("harder", 0.8, 0.1, LOW, HIGH))
    assert "not easier" in str(rejection("easier", 0.2, 0.1, LOW, HIGH))
    assert "too easy" in str(rejection("easier", 0.2, 0.9, LOW, HIGH))


def test_an_accepted_candidate_becomes_the_active_task_with_its_accuracy():
    tasks = pool()
    tasks.record("a", "a", 1.0)
    tasks.propose("a", candidate("a+1"))
    assert [slot.id for slot in tasks.pending()] == ["a"]
    assert tasks.settle("a", 0.5, iteration=4) is True
    slot = tasks.slot("a")
    assert (slot.root, slot.active, slot.pending) == (task("a"), task("a+1"), None)
    assert slot.accuracy == 0.5
    assert [(e.kind, e.iteration, e.task_id) for e in slot.history] == [
        ("proposed", 3, "a+1"),
        ("accepted", 4, "a+1"),
    ]
    assert tasks.pending() == []


def test_a_rejected_candidate_leaves_the_active_task_and_its_accuracy_alone():
    tasks = pool()
    tasks.record("a", "a", 0.875)
    tasks.propose("a", candidate("a+1", parent=0.875))
    assert tasks.settle("a", 0.0, iteration=4) is False
    slot = tasks.slot("a")
    assert (slot.active, slot.pending, slot.accuracy) == (task("a"), None, 0.875)
    last = slot.history[-1]
    assert (last.kind, last.parent_accuracy, last.candidate_accuracy) == ("rejected", 0.875, 0.0)
    assert "solvable" in last.reason


def test_a_candidate_is_compared_to_the_accuracy_it_was_proposed_from():
    tasks = pool()
    tasks.propose("a", candidate("a+1", parent=0.875))
    tasks.record("a", "a", 0.25)
    assert tasks.settle("a", 0.5, iteration=4) is True


def test_a_slot_takes_one_candidate_at_a_time():
    tasks = pool()
    tasks.propose("a", candidate("a+1"))
    with pytest.raises(ValueError, match=r"a\+1 is pending"):
        tasks.propose("a", candidate("a+2"))


@pytest.mark.parametrize("name", ["a", "a+1"])
def test_a_candidate_needs_an_id_that_is_new_to_its_slot(name):
    tasks = pool()
    tasks.propose("a", candidate("a+1"))
    tasks.settle("a", 0.0, iteration=4)
    with pytest.raises(ValueError, match="used before"):
        tasks.propose("a", candidate(name))


def test_settling_without_a_candidate_is_refused():
    with pytest.raises(ValueError, match="slot b: there is no candidate"):
        pool().settle("b", 0.5, iteration=1)


def test_the_accuracy_of_a_replaced_task_is_not_taken_for_the_new_ones():
    tasks = pool()
    tasks.propose("a", candidate("a+1"))
    tasks.settle("a", 0.5, iteration=4)
    with pytest.raises(ValueError, match="a is not active"):
        tasks.record("a", "a", 1.0)


def test_a_sample_is_without_repetition_and_the_same_for_the_same_seed():
    tasks = pool(*"abcdefgh")
    once = tasks.sample(5, np.random.default_rng(7))
    again = tasks.sample(5, np.random.default_rng(7))
    assert once == again
    assert len({slot.id for slot in once}) == 5


def test_every_slot_is_sampled_in_time():
    tasks, rng = pool(*"abcdefgh"), np.random.default_rng(0)
    seen = {slot.id for _ in range(60) for slot in tasks.sample(2, rng)}
    assert seen == set("abcdefgh")


def test_a_slot_whose_candidate_waits_is_not_sampled():
    tasks, rng = pool(*"abcd"), np.random.default_rng(0)
    tasks.propose("b", candidate("b+1"))
    drawn = [[slot.id for slot in tasks.sample(2, rng)] for _ in range(40)]
    assert {name for names in drawn for name in names} == set("acd")
    assert {slot.id for slot in tasks.sample(4, rng)} == set("acd")
    tasks.settle("b", 0.5, iteration=4)
    assert {slot.id for slot in tasks.sample(4, rng)} == set("abcd")


def test_nothing_is_sampled_where_all_slots_wait_for_their_candidates():
    tasks = pool("a")
    tasks.propose("a", candidate("a+1"))
    assert tasks.sample(1, np.random.default_rng(0)) == []


def test_a_sample_larger_than_the_pool_is_refused():
    with pytest.raises(ValueError, match="9 tasks per iteration, but the pool has 3"):
        pool().sample(9, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("roots", "low", "high", "message"),
    [
        ([], LOW, HIGH, "at least one"),
        ([task("a"), task("a")], LOW, HIGH, "a occurs twice"),
        ([task("a")], 0.8, 0.2, "alpha_low < alpha_high"),
    ],
)
def test_a_pool_that_cannot_work_is_refused(roots, low, high, message):
    with pytest.raises(ValueError, match=message):
        Pool(roots, low, high)


def test_a_pool_of_another_format_is_refused():
    with pytest.raises(ValueError, match="format 0"):
        Pool.from_json(pool().to_json().replace('"format": 3', '"format": 0'))


class PoolLife(RuleBasedStateMachine):
    """Anything the loop may do to a pool, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = pool("a", "b")
        self.proposals = 0
        self.settled = 0
        self.accepted: dict[str, list[Task]] = {"a": [], "b": []}

    @rule(name=st.sampled_from("ab"), accuracy=accuracies)
    def roll_out_active(self, name: str, accuracy: float) -> None:
        self.pool.record(name, self.pool.slot(name).active.id, accuracy)
        assert self.pool.slot(name).accuracy == accuracy

    @rule(name=st.sampled_from("ab"), which=directions)
    def propose(self, name: str, which: Direction) -> None:
        slot = self.pool.slot(name)
        new = replace(
            candidate(f"{name}+{self.proposals}", which),
            parent_accuracy=slot.accuracy or 0.0,
        )
        if slot.pending is not None:
            with pytest.raises(ValueError, match="pending"):
                self.pool.propose(name, new)
            assert self.pool.slot(name) == slot
            return
        self.pool.propose(name, new)
        self.proposals += 1

    @precondition(lambda self: self.pool.pending())
    @rule(data=st.data(), accuracy=accuracies)
    def settle(self, data: st.DataObject, accuracy: float) -> None:
        slot = data.draw(st.sampled_from(self.pool.pending()))
        assert slot.pending is not None
        if self.pool.settle(slot.id, accuracy, iteration=9):
            self.accepted[slot.id].append(slot.pending.task)
        self.settled += 1

    @invariant()
    def active_is_the_root_or_the_candidate_accepted_last(self) -> None:
        for slot in self.pool.slots:
            assert slot.root == task(slot.id)
            assert slot.active == [slot.root, *self.accepted[slot.id]][-1]

    @invariant()
    def history_is_complete_and_alternates(self) -> None:
        events = [event for slot in self.pool.slots for event in slot.history]
        assert len(events) == self.proposals + self.settled
        for slot in self.pool.slots:
            kinds = [event.kind for event in slot.history]
            assert all(kind == "proposed" for kind in kinds[::2])
            assert all(kind != "proposed" for kind in kinds[1::2])
            assert (len(kinds) % 2 == 1) == (slot.pending is not None)
            assert kinds.count("accepted") == len(self.accepted[slot.id])

    @invariant()
    def a_checkpoint_brings_back_an_equal_pool(self) -> None:
        restored = Pool.from_json(self.pool.to_json())
        assert restored.slots == self.pool.slots
        assert (restored.alpha_low, restored.alpha_high) == (LOW, HIGH)


TestPoolLife = PoolLife.TestCase


def worlds(**weights: float) -> dict[str, WorldSettings]:
    return {label: WorldSettings(weight, LOW, HIGH, (0, 1)) for label, weight in weights.items()}


def drawn(mixed: Pool, count: int, seed: int) -> Counter[str]:
    slots = mixed.sample(count, np.random.default_rng(seed))
    assert len({slot.id for slot in slots}) == count
    return Counter(label_of(slot.id) for slot in slots)


def test_worlds_are_sampled_by_their_weight_not_by_their_tasks():
    tasks = [task(f"x/{i}") for i in range(9)] + [task(f"y/{i}") for i in range(90)]
    mixed = Pool(tasks, LOW, HIGH, worlds(x=2, y=1))
    counts = [drawn(mixed, 4, seed)["x"] for seed in range(300)]
    assert set(counts) == {2, 3}
    assert np.mean(counts) == pytest.approx(8 / 3, abs=0.1)


def test_what_a_world_has_no_tasks_for_goes_to_the_others():
    tasks = [task("x/0"), *(task(f"y/{i}") for i in range(5)), *(task(f"z/{i}") for i in range(5))]
    mixed = Pool(tasks, LOW, HIGH, worlds(x=8, y=1, z=1))
    for seed in range(20):
        counts = drawn(mixed, 7, seed)
        assert counts["x"] == 1
        assert abs(counts["y"] - counts["z"]) <= 2
    assert drawn(mixed, 11, 0) == {"x": 1, "y": 5, "z": 5}


@given(
    st.lists(st.tuples(st.integers(0, 6), st.floats(0.01, 100)), min_size=2, max_size=5),
    st.integers(0, 30),
    st.integers(0, 9),
)
def test_a_sample_is_as_large_as_asked_while_tasks_are_free(each, count, seed):
    tasks = [task(f"w{n}/{i}") for n, (size, _) in enumerate(each) for i in range(size)]
    if not tasks:
        return
    weights = {f"w{n}": weight for n, (_, weight) in enumerate(each)}
    mixed = Pool(tasks, LOW, HIGH, worlds(**weights))
    count = min(count, len(tasks))
    assert sum(drawn(mixed, count, seed).values()) == count


def test_each_world_accepts_by_its_own_bounds():
    lenient = {"x": WorldSettings(1, 0.05, HIGH, (0, 1)), "y": WorldSettings(1, LOW, HIGH, (0, 1))}
    mixed = Pool([task("x/a"), task("y/a")], LOW, HIGH, lenient)
    assert (mixed.bounds("x/a"), mixed.bounds("y/a")) == ((0.05, HIGH), (LOW, HIGH))
    for label in lenient:
        mixed.propose(f"{label}/a", candidate(f"{label}/a@3"))
    assert mixed.settle("x/a", 0.125, 4)
    assert not mixed.settle("y/a", 0.125, 4)
