"""MPSC, AlphaCodium and S* on programs of letters: what each chooses, and what it asks for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlanything.evaluation.selection import selection_of
from rlanything.records import Completion, Step, Task, Trajectory
from rlanything.rollout.workers import EnvironmentPool
from rlanything_coding.selection.alphacodium import alphacodium, order_of
from rlanything_coding.selection.choosing import play_chosen
from rlanything_coding.selection.mpsc import (
    ALPHA,
    SPARSE_ALPHA,
    consistency,
    mpsc,
    weighted_cardinality,
)
from rlanything_coding.selection.programs import RepairRequest, TaskPrograms
from rlanything_coding.selection.s_star import leaders_of, s_star

TABLES = st.integers(1, 5).flatmap(
    lambda width: st.lists(
        st.lists(st.sampled_from((-1, 0, 1)), min_size=width, max_size=width),
        min_size=1,
        max_size=6,
    )
)


class Letters:
    """A bench where a program is the set of test letters it passes, `abc`, a test is a letter, and
    what a program prints on a test is `yes` or `no`; `?` is a test that cannot be read."""

    def __init__(self, repairs: dict[tuple[str, str], str], more: Sequence[str] = ()) -> None:
        self.repairs, self.more = repairs, list(more)
        self.asked: list[tuple[str, str]] = []
        self.rounds = 0
        self.wanted: list[str] = []

    def repair(self, asked: Sequence[RepairRequest]) -> list[str]:
        self.rounds += bool(asked)
        pairs = [(each.program, each.test) for each in asked]
        self.asked += pairs
        return [self.repairs.get(pair, pair[0]) for pair in pairs]

    def run(self, task: Task, programs: Sequence[str], tests: Sequence[str]) -> list[list[int]]:
        return [[0 if t == "?" else 1 if t in p else -1 for t in tests] for p in programs]

    def outputs(self, task: Task, programs: Sequence[str], tests: Sequence[str]) -> list[list[str]]:
        words = {0: "", 1: "yes", -1: "no"}
        return [[words[score] for score in row] for row in self.run(task, programs, tests)]

    def more_tests(self, tasks: Sequence[Task]) -> list[list[str]]:
        self.wanted += [task.id for task in tasks]
        return [self.more for _ in tasks]


def problem(tests: str, *programs: str, name: str = "t") -> TaskPrograms:
    scores = Letters({}).run(Task(name, ""), programs, tests)
    return TaskPrograms(Task(name, ""), programs, tuple(tests), tuple(map(tuple, scores)))


def iterated(scores: Sequence[Sequence[int]]) -> np.ndarray:
    """The paper's iteration, step by step, until nothing moves."""
    edges = (np.array(scores) == 1).astype(float)
    n, m = edges.shape
    alpha = SPARSE_ALPHA if edges.mean() < 0.16 else ALPHA
    y = np.concatenate([weighted_cardinality(edges), weighted_cardinality(edges.T)])
    rows, columns = edges.sum(1), edges.sum(0)
    f = y.copy()
    for _ in range(3000):
        new = (1 - alpha) * y
        for i in range(n):
            for j in range(m):
                if edges[i, j]:
                    pull = alpha / np.sqrt(rows[i] * columns[j])
                    new[i] += pull * f[n + j]
                    new[n + j] += pull * f[i]
        f = new
    return f[:n]


def test_one_program_that_passes_one_test_is_certain() -> None:
    assert consistency([[1]]) == pytest.approx([1.0])
    assert consistency([[-1], [0]]) == pytest.approx([0.0, 0.0])


@pytest.mark.parametrize(
    "scores",
    [
        [[1, 1, -1], [1, 1, -1], [-1, -1, 1]],
        [[1, -1, -1, -1, -1, -1, -1, -1], [-1] * 8, [1] + [-1] * 7],  # sparse: the other alpha
        [[1, 1, 0, -1], [1, -1, 0, -1], [1, 1, 0, 1]],
    ],
)
def test_the_scores_are_the_limit_of_the_papers_iteration(scores: list[list[int]]) -> None:
    assert consistency(scores) == pytest.approx(iterated(scores), abs=1e-9)


def test_the_first_guess_is_how_many_agree_times_what_they_reach() -> None:
    edges = np.array([[1.0, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]])
    assert weighted_cardinality(edges) == pytest.approx(np.array([4, 4, 1, 0]) / 9)


def test_programs_that_agree_outrank_one_with_more_but_lonely_tests() -> None:
    # Best-of-N takes the first, which passes three tests that nothing else passes.
    tasks = [problem("abcde", "abc", "de", "de", "de")]
    assert tasks[0].best == "abc"
    assert mpsc(tasks, Letters({})) == ["de"]


@given(TABLES)
def test_a_program_has_a_score_above_0_exactly_where_it_passes_some_test(
    scores: list[list[int]],
) -> None:
    ranks = consistency(scores)
    assert len(ranks) == len(scores)
    assert (ranks >= 0).all()
    for i, row in enumerate(scores):
        assert (ranks[i] > 0) == (1 in row)


def test_the_tests_that_most_programs_pass_come_first() -> None:
    assert order_of([[-1, 1, 0], [-1, 1, 1], [1, 1, 1]]) == [1, 2, 0]


def test_a_repair_is_kept_if_it_passes_its_test_and_breaks_no_anchor() -> None:
    # The repair for b breaks a and is dropped; that for c keeps it.
    bench = Letters({("a", "b"): "b", ("a", "c"): "ac"})
    assert alphacodium([problem("abc", "a")], bench) == ["ac"]
    assert bench.asked == [("a", "b"), ("a", "c")], "each test is tried once"


def test_a_test_after_the_one_repaired_for_may_be_lost() -> None:
    bench = Letters({("c", "a"): "ab"})
    tasks = [problem("abc", "c", "ab", "ab")]
    assert alphacodium(tasks, bench) == ["ab"]


def test_alphacodium_asks_for_no_more_than_its_rounds_and_nothing_where_all_is_passed() -> None:
    bench = Letters({})
    assert alphacodium([problem("abcdef", "")], bench, rounds=3) == [""]
    assert len(bench.asked) == bench.rounds == 3
    idle = Letters({})
    assert alphacodium([problem("ab?", "ab", "abc")], idle) == ["ab"]
    assert idle.asked == [], "a test that cannot be read is none to repair for"


def test_a_round_asks_for_the_repairs_of_all_tasks_at_once() -> None:
    bench = Letters({("", "a"): "a", ("x", "a"): "xa"})
    tasks = [problem("a", "", name="one"), problem("a", "x", "", name="two")]
    assert alphacodium(tasks, bench, rounds=1) == ["a", "xa"]
    assert bench.rounds == 1
    assert len(bench.asked) == 3


def test_s_star_repairs_until_all_tests_pass_and_drops_what_is_worse() -> None:
    bench = Letters({("", "a"): "a", ("a", "b"): "ab", ("b", "a"): ""})
    assert s_star([problem("ab", "", "b")], bench) == ["ab"]
    assert bench.asked[:3] == [("", "a"), ("b", "a"), ("a", "b")]
    assert ("b", "a") in bench.asked[3:], "the worse version was dropped: it is asked once more"


def test_the_cluster_that_is_right_where_outputs_differ_leads() -> None:
    outputs = [["1", "2"], ["1", "3"], ["1", "3"]]
    # On the second input, where they differ, the first is right; on the first all are the same.
    assert leaders_of(outputs, [[-1, 1], [-1, -1], [-1, -1]]) == [0]
    assert leaders_of(outputs, [[-1, -1], [-1, -1], [-1, -1]]) == [1, 0], "a draw: larger first"
    assert leaders_of([["1"]], [[-1]]) == [0]


def test_s_star_asks_for_more_tests_only_where_the_leaders_are_level() -> None:
    bench = Letters({}, more="z")
    level = problem("ab", "a", "bz", name="level")
    clear = problem("ab", "", "ab", name="clear")
    assert s_star([level, clear], bench, rounds=0) == ["bz", "ab"]
    assert bench.wanted == ["level"]
    misleading = problem("aabb", "aa", "bb", "c", name="level")
    assert s_star([misleading], Letters({}, more="c"), rounds=0) == ["aa"], "not a leader's test"
    useless = Letters({}, more="?")
    assert s_star([level], useless, rounds=0) == ["a"], "nothing tells them apart: the first"


def test_tests_that_nobody_can_read_choose_the_first_program_and_repair_nothing() -> None:
    for name, method in (("mpsc", mpsc), ("alphacodium", alphacodium), ("s-star", s_star)):
        bench = Letters({}, more="?")
        assert method([problem("??", "a", "b")], bench) == ["a"], name
        assert bench.asked == []


DOUBLE = Task("double", "Print the double.", "", {"question": "", "tests": [["2\n", "4"]]})


def attempt(program: str, outcome: int, task: Task = DOUBLE) -> Trajectory:
    step = Step("", Completion.unsampled(f"```python\n{program}\n```"), None, True, "")
    return Trajectory("", task, (step,), outcome)


def test_a_repaired_program_is_played_and_a_chosen_attempt_is_not_played_again() -> None:
    right, wrong = attempt("print(int(input()) * 2)", 1), attempt("print(7)", -1)
    with EnvironmentPool("coding", {}, 0, 60) as pool:
        repaired = {"double": right.steps[0].response}
        assert play_chosen(repaired, [wrong, wrong], pool, 4) == ({"double": 1}, [])
        # Were it played, it would lose.
        lucky = attempt("print(7)", 1)
        own = {"double": lucky.steps[0].response}
        assert play_chosen(own, [right, lucky], pool, 4) == ({"double": 1}, [])


def test_a_choice_that_could_not_be_played_widens_the_interval_of_what_was_chosen() -> None:
    tasks = [Task(str(i), "") for i in range(10)]
    attempts = [attempt("", -1, task) for task in tasks]
    outcomes = {task.id: 1 for task in tasks}
    known = selection_of(attempts, outcomes)
    missing = selection_of(attempts, {"0": 1, "1": 1}, [task.id for task in tasks[2:]])
    assert known is not None
    assert missing is not None
    assert known.chosen.estimate == missing.chosen.estimate == 1.0
    assert known.possible == 0.0, "repairs may win what no attempt did"
    assert missing.chosen.low < 0.3 < known.chosen.low
    assert selection_of(attempts, {}, ["0"]) is None
