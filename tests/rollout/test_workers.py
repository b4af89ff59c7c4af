"""The pool of worker processes, on a toy domain."""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rlanything.domains.base import DomainError, EpisodeError, Observation, StepResult
from rlanything.domains.text import TextRollouts
from rlanything.records import Task
from rlanything.rollout.workers import EnvironmentPool

TOY = f"{__name__}:Toy"


class ToyEnvironment:
    """Remembers what it was told; some responses do harm."""

    def __init__(self, greeting: str) -> None:
        self._greeting = greeting

    def reset(self, task: Task) -> Observation:
        self._task, self._heard = task, []
        if task.data.get("broken"):
            raise EpisodeError(task.id, "broken")
        if task.data.get("deadly"):
            os.kill(os.getpid(), signal.SIGKILL)
        if mark := task.data.get("once"):
            if Path(mark).exists():
                if task.data.get("then") == "die":
                    os.kill(os.getpid(), signal.SIGKILL)
                if task.data.get("then") == "differ":
                    return Observation("another game")
                raise EpisodeError(task.id, "its server is busy")
            Path(mark).touch()
        return Observation(f"{self._greeting} {task.id}")

    def step(self, response: str) -> StepResult:
        word, _, rest = response.partition(" ")
        self._heard.append(response)
        if word == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        elif word == "die-once" and not Path(rest).exists():
            Path(rest).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        elif word == "raise-once" and not Path(rest).exists():
            Path(rest).touch()
            raise ConnectionError("its server is gone")
        elif word == "hang":
            time.sleep(60)
        elif word == "sleep":
            time.sleep(float(rest))
        elif word == "fail":
            raise EpisodeError(self._task.id, "failed")
        elif word == "crash":
            raise RuntimeError("a bug")
        elif word == "exit":
            sys.exit("its game is over")
        elif word == "modules":
            return StepResult(Observation(",".join(sys.modules)), response, True)
        outcome = {"win": 1, "lose": -1}.get(word)
        text = f"{self._greeting} {self._task.id}: {' '.join(self._heard)}"
        return StepResult(Observation(text), response, True, outcome)

    def close(self) -> None:
        if mark := self._task.data.get("slow to close"):
            time.sleep(1.5)
            Path(mark).touch()


class Toy(TextRollouts):
    def __init__(self, greeting: str = "hello") -> None:
        self.greeting = greeting

    def environment(self) -> ToyEnvironment:
        return ToyEnvironment(self.greeting)


def tasks(count: int) -> list[Task]:
    return [Task(f"t{index}", "") for index in range(count)]


def toy_pool(workers: int, timeout_seconds: float = 20.0) -> EnvironmentPool:
    return EnvironmentPool(TOY, {"greeting": "hi"}, workers, timeout_seconds)


def toy_texts(
    pool: EnvironmentPool, episodes: int = 7, before_turn: Callable[[int], None] = lambda turn: None
) -> list[str]:
    """Plays a little with episodes that end at different times; everything that was seen."""
    texts = [shown.text for shown in pool.reset(tasks(episodes)) if isinstance(shown, Observation)]
    alive = list(range(episodes))
    for turn in range(4):
        before_turn(turn)
        said = {index: "win" if index == turn else f"word{turn}" for index in alive}
        for index, result in pool.step(said).items():
            assert isinstance(result, StepResult)
            texts.append(f"{index} {result.observation.text} {result.outcome}")
            if result.outcome is not None:
                alive.remove(index)
    return texts


def is_running(process_id: int) -> bool:
    return Path(f"/proc/{process_id}").exists()


def test_results_do_not_depend_on_the_number_of_workers():
    seen = []
    for workers in (0, 1, 3):
        with toy_pool(workers) as pool:
            seen.append([toy_texts(pool), toy_texts(pool, episodes=2), toy_texts(pool)])
    assert seen[0] == seen[1] == seen[2]
    assert "hi t3" in seen[0][0]


def test_only_the_given_episodes_advance():
    with toy_pool(2) as pool:
        pool.reset(tasks(4))
        pool.step({2: "a"})
        result = pool.step({1: "b", 2: "c"})
        assert list(result) == [1, 2]
        assert [r.observation.text for r in result.values() if isinstance(r, StepResult)] == [
            "hi t1: b",
            "hi t2: a c",
        ]


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGSTOP])
def test_a_lost_worker_changes_no_result(sign: signal.Signals):
    with toy_pool(2) as pool:
        undisturbed = toy_texts(pool)
    with toy_pool(2, timeout_seconds=4.0) as pool:

        def disturb(turn: int) -> None:
            if turn == 2:
                os.kill(pool.process_ids[1], sign)

        assert toy_texts(pool, before_turn=disturb) == undisturbed
        assert pool.restarts == 1


def test_a_worker_that_dies_in_the_middle_of_its_share_is_replaced(tmp_path: Path):
    with toy_pool(1) as pool:
        pool.reset(tasks(3))
        pool.step({0: "a", 1: "a", 2: "a"})
        said = {0: "b", 1: f"die-once {tmp_path / 'died'}", 2: "c"}
        results = [r for r in pool.step(said).values() if isinstance(r, StepResult)]
        assert [r.observation.text for r in results][::2] == ["hi t0: a b", "hi t2: a c"]
        assert results[1].observation.text.startswith("hi t1: a die-once")
        assert pool.restarts == 1


@pytest.mark.parametrize(("word", "timeout_seconds"), [("die", 20.0), ("hang", 4.0)])
def test_a_task_that_takes_its_worker_down_three_times_is_the_only_one_lost(word, timeout_seconds):
    with toy_pool(2, timeout_seconds) as pool:
        pool.reset(tasks(4))
        results = pool.step({0: "a", 1: word, 2: "a", 3: "a"})
        assert isinstance(results[1], EpisodeError)
        assert results[1].task_id == "t1"
        assert pool.restarts == 3
        after = pool.step({0: "b", 2: "b", 3: "b"})
        assert [r.observation.text for r in after.values() if isinstance(r, StepResult)] == [
            f"hi t{index}: a b" for index in (0, 2, 3)
        ]


def test_a_task_that_kills_its_worker_at_reset_is_the_only_one_lost():
    deadly = Task("deadly", "", data={"deadly": True})
    with toy_pool(1) as pool:
        opened = pool.reset([*tasks(1), deadly])
        assert isinstance(opened[0], Observation)
        assert isinstance(opened[1], EpisodeError)


@pytest.mark.parametrize("workers", [0, 1])
def test_an_episode_error_is_that_episodes_result(workers: int):
    with toy_pool(workers) as pool:
        opened = pool.reset([*tasks(4), Task("bad", "", data={"broken": True})])
        assert isinstance(opened[4], EpisodeError)
        results = pool.step({0: "fail", 1: "crash", 2: "a", 3: "exit"})
        assert str(results[0]) == "task t0: failed"
        assert str(results[1]) == "task t1: RuntimeError: a bug"
        assert isinstance(results[0], EpisodeError)
        assert isinstance(results[1], EpisodeError)
        assert (results[0].lost, results[1].lost) == (False, True)
        assert isinstance(results[2], StepResult)
        assert str(results[3]) == "task t3: SystemExit: its game is over"
        for over in (0, 1, 3, 4):
            with pytest.raises(ValueError, match=f"episode {over} is not open"):
                pool.step({over: "a"})


def test_an_episode_cannot_be_stepped_after_its_end():
    with toy_pool(0) as pool:
        pool.reset(tasks(2))
        pool.step({0: "lose"})
        pool.forget(1)
        for index in (0, 1, 2):
            with pytest.raises(ValueError, match="only open episodes"):
                pool.step({index: "a"})


def test_forgotten_episodes_are_not_played_again(tmp_path: Path):
    with toy_pool(1) as pool:
        pool.reset(tasks(2))
        died = tmp_path / "died"
        pool.step({0: f"die-once {died}", 1: "a"})
        died.unlink()  # whoever plays episode 0 again dies again
        pool.forget(0)
        os.kill(pool.process_ids[0], signal.SIGKILL)
        assert isinstance(pool.step({1: "b"})[1], StepResult)
        assert pool.restarts == 2


def gathered(pool: EnvironmentPool, wanted: set[int]) -> dict[int, str]:
    """The observations of answers taken as they come, until all of these are there."""
    texts: dict[int, str] = {}
    while not wanted <= set(texts):
        for index, result in pool.gather().items():
            assert isinstance(result, StepResult)
            assert index not in texts
            texts[index] = result.observation.text
    return texts


def test_answers_do_not_wait_for_a_slow_environment():
    with toy_pool(2) as pool:
        pool.reset(tasks(4))
        begun = time.monotonic()
        pool.post({0: "sleep 6", 2: "a", 3: "a"})
        assert gathered(pool, {2, 3}) == {2: "hi t2: a", 3: "hi t3: a"}
        # One waits in its turn behind the slow one, in the same worker; another is elsewhere.
        pool.post({1: "b", 2: "b"})
        assert gathered(pool, {2}) == {2: "hi t2: a b"}
        assert time.monotonic() - begun < 5.5
        assert gathered(pool, {0, 1}) == {0: "hi t0: sleep 6", 1: "hi t1: b"}
        assert time.monotonic() - begun >= 6


def test_an_episode_is_not_asked_again_before_it_has_answered():
    with toy_pool(1) as pool:
        pool.reset(tasks(1))
        pool.post({0: "sleep 0.2"})
        with pytest.raises(ValueError, match="episode 0 has not answered its last response yet"):
            pool.post({0: "a"})
        assert gathered(pool, {0}) == {0: "hi t0: sleep 0.2"}


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGSTOP])
def test_a_worker_lost_while_others_answer_changes_no_answer(sign: signal.Signals):
    with toy_pool(2, timeout_seconds=3.0) as pool:
        pool.reset(tasks(4))
        pool.step({0: "a", 1: "a", 2: "a", 3: "a"})
        pool.post({0: "sleep 1.5", 2: "b"})
        assert gathered(pool, {2}) == {2: "hi t2: a b"}
        os.kill(pool.process_ids[0], sign)
        # Its worker is lost, or about to be found lost; nothing has come back of episode 0.
        pool.post({1: "c", 2: "c"})
        assert gathered(pool, {0, 1, 2}) == {
            0: "hi t0: a sleep 1.5",
            1: "hi t1: a c",
            2: "hi t2: a b c",
        }
        assert pool.restarts == 1
        assert isinstance(pool.step({3: "d"})[3], StepResult)


def test_one_that_hangs_is_lost_while_others_go_on():
    with toy_pool(2, timeout_seconds=4.0) as pool:
        pool.reset(tasks(4))
        pool.post({0: "hang", 1: "a"})
        answers: dict[int, object] = {}
        turns = 0
        while 0 not in answers:
            if turns == 0 or 2 in answers:
                pool.post({2: f"word{turns}"})
                turns += 1
            answers = {i: answer for i, answer in answers.items() if i != 2} | pool.gather()
        assert turns > 3
        assert isinstance(answers[0], EpisodeError)
        assert pool.restarts == 3
        answers |= pool.collect()
        assert isinstance(answers[1], StepResult)
        assert answers[1].observation.text == "hi t1: a"


def test_episodes_begun_anew_owe_nothing_to_the_ones_before():
    with toy_pool(1) as pool:
        pool.reset(tasks(2))
        pool.post({0: "sleep 0.3", 1: "win"})
        pool.begin([Task("new", "")])
        answers = pool.collect()
        assert list(answers) == [0]
        assert answers[0] == Observation("hi new")


def test_workers_import_no_torch():
    with toy_pool(1) as pool:
        pool.reset(tasks(1))
        result = pool.step({0: "modules"})[0]
        assert isinstance(result, StepResult)
        assert "torch" not in result.observation.text.split(",")


def test_workers_ignore_ctrl_c():
    with toy_pool(2) as pool:
        pool.reset(tasks(2))
        for process_id in pool.process_ids:
            os.kill(process_id, signal.SIGINT)
        assert len(pool.step({0: "a", 1: "a"})) == 2
        assert pool.restarts == 0


def leave_by_an_error(pool: EnvironmentPool) -> None:
    with pool:
        pool.reset(tasks(4))
        raise KeyboardInterrupt


def test_no_worker_outlives_its_pool():
    pool = toy_pool(2)
    process_ids = pool.process_ids
    assert all(is_running(process_id) for process_id in process_ids)
    with pytest.raises(KeyboardInterrupt):
        leave_by_an_error(pool)
    assert not any(is_running(process_id) for process_id in process_ids)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_domain_that_cannot_be_set_up_is_an_error(workers: int):
    with (
        pytest.raises(DomainError, match="unexpected keyword argument 'colour'"),
        EnvironmentPool(TOY, {"colour": "red"}, workers, 20.0) as pool,
    ):
        pool.reset(tasks(1))


def test_an_episode_that_cannot_be_played_again_counts_neither_way(tmp_path: Path) -> None:
    first = Task("first", "", data={"once": str(tmp_path / "began")})
    with toy_pool(1) as pool:
        pool.reset([first, Task("second", "")])
        said = {0: "go", 1: f"die-once {tmp_path / 'died'}"}
        assert all(isinstance(result, StepResult) for result in pool.step(said).values())
        assert pool.restarts == 1
        failed = pool.step({0: "go"})[0]
    assert isinstance(failed, EpisodeError)
    assert failed.reason == "its server is busy"
    assert not failed.lost


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_an_error_that_a_replay_gets_past_costs_nothing(workers: int, tmp_path: Path) -> None:
    with toy_pool(workers) as pool:
        pool.reset(tasks(3))
        pool.step({0: "a", 1: "a", 2: "a"})
        faulty = f"raise-once {tmp_path / 'raised'}"
        results = [*pool.step({0: "b", 1: faulty, 2: "b"}).values()]
        results += pool.step({0: "win", 1: "win", 2: "win"}).values()
        assert pool.restarts == 0
    seen = [r.observation.text for r in results if isinstance(r, StepResult)]
    assert seen[:3] == ["hi t0: a b", f"hi t1: a {faulty}", "hi t2: a b"]
    assert seen[3:] == ["hi t0: a b win", f"hi t1: a {faulty} win", "hi t2: a b win"]


@pytest.mark.parametrize(
    ("then", "workers", "reason"),
    [
        ("raise", 0, "its server is busy"),
        ("raise", 1, "its server is busy"),
        ("differ", 0, "its environment shows something else"),
        ("differ", 1, "its environment shows something else"),
        ("die", 1, "its worker died or hung 3 times in a row"),
    ],
)
def test_a_replay_that_does_not_reach_the_fault_blames_nobody(
    then: str, workers: int, reason: str, tmp_path: Path
) -> None:
    first = Task("first", "", data={"once": str(tmp_path / "began"), "then": then})
    with toy_pool(workers) as pool:
        pool.reset([first, Task("second", "")])
        pool.step({0: "a", 1: "a"})
        results = pool.step({0: f"raise-once {tmp_path / 'raised'}", 1: "b"})
    failed, other = results.values()
    assert isinstance(failed, EpisodeError)
    assert reason in failed.reason
    assert (failed.lost, failed.deadly) == (False, False)
    assert isinstance(other, StepResult)
    assert other.observation.text == "hi second: a b"


def test_faults_are_counted_for_each_response_alone(tmp_path: Path) -> None:
    with toy_pool(1) as pool:
        pool.reset(tasks(1))
        for number in range(5):  # more often than one response may fail
            result = pool.step({0: f"raise-once {tmp_path / str(number)}"})[0]
            assert isinstance(result, StepResult)


def test_a_response_posted_during_a_replay_is_played_once(tmp_path: Path) -> None:
    faulty = f"die-once {tmp_path / 'died'}"
    with toy_pool(2) as pool:
        pool.reset(tasks(4))
        pool.step({0: "a", 1: "a", 2: "a", 3: "a"})
        pool.post({0: faulty, 2: "sleep 0.1"})
        assert gathered(pool, {2}) == {2: "hi t2: a sleep 0.1"}
        assert pool.restarts == 1
        pool.post({1: "b"})  # its new worker is starting, or replays it
        assert gathered(pool, {0, 1}) == {0: f"hi t0: a {faulty}", 1: "hi t1: a b"}


def test_environments_are_given_the_time_to_close(tmp_path: Path) -> None:
    marks = [tmp_path / f"closed-{i}" for i in range(2)]
    with toy_pool(1) as pool:
        pool.reset([Task(mark.name, "", data={"slow to close": str(mark)}) for mark in marks])
    assert all(mark.exists() for mark in marks), "two of them take longer than one is waited for"


def test_a_limit_may_be_longer_than_the_system_can_wait() -> None:
    with toy_pool(1, timeout_seconds=1e9) as pool:
        assert len(pool.reset(tasks(2))) == 2
