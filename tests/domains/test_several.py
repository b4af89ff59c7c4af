"""Several worlds as one domain: each is asked about its own tasks, as if it were played alone."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from rlanything.domains.base import (
    Capabilities,
    DomainError,
    EpisodeError,
    InvalidTask,
    MissingData,
    Observation,
    RewriteRequest,
    StepResult,
)
from rlanything.domains.registry import checked_tasks, load_domain
from rlanything.domains.several import Several
from rlanything.domains.text import TextDomain
from rlanything.records import Completion, JudgedTrajectory, Step, Task, Trajectory
from rlanything.rollout.workers import EnvironmentPool

SPLITS = ("train", "in_domain")


class Letters(TextDomain):
    """Say the letter; its tasks have kinds and can be rewritten."""

    def tasks(self, split: str, count: int, seed: int) -> Sequence[Task]:
        if split not in SPLITS:
            raise DomainError(f"no split {split!r}: use one of {', '.join(SPLITS)}")
        rng = random.Random(f"{split}/{seed}")
        names = [rng.choice("abc") for _ in range(count)]
        return [
            Task(f"{split}-{i}", f"Say {name}.", "letter", {"name": name})
            for i, name in enumerate(names)
        ]

    def environment(self) -> Any:
        return Saying()

    def parse_candidate(self, root: Task, task_id: str, completion: str) -> Task:
        if "/" in root.id or "/" in task_id or root.kind != "letter":
            raise InvalidTask(f"{root.id}, {task_id} and {root.kind} are not this world's own")
        return Task(task_id, f"Say {completion}.", "letter", {"name": completion})

    def oracle(self, task: Task, steps: Sequence[Step]) -> list[int]:
        assert task.id.startswith(SPLITS)
        return [1 if step.action == task.data["name"] else -1 for step in steps]

    def objection(self, task: Task, trajectories: Sequence[Trajectory]) -> str | None:
        return " ".join([task.id, *(each.task.id for each in trajectories)])


class Digits(Letters):
    """The same with numbers, which nothing rewrites."""

    parse_candidate = TextDomain.parse_candidate

    def tasks(self, split: str, count: int, seed: int) -> Sequence[Task]:
        return [
            Task(task.id, f"Say {i}.", data={"name": str(i)})
            for i, task in enumerate(super().tasks(split, count, seed))
        ]


class Programs(Digits):
    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(judge="tests")


class Arrows(Digits):
    action_marker = "=>"


class Absent(Digits):
    def tasks(self, split: str, count: int, seed: int) -> Sequence[Task]:
        raise MissingData("its data are not here: fetch them")

    def stand_ins(self, count: int) -> Sequence[Task]:
        return [Task(f"like-{i}", "Say 1.", data={"name": "1"}) for i in range(count)]


class Saying:
    def reset(self, task: Task) -> Observation:
        if task.data["name"] == "2":
            raise EpisodeError(task.id, "there is no 2")
        self.name = task.data["name"]
        return Observation(f"{task.id}?", ("a", "b", "1"))

    def step(self, response: str) -> StepResult:
        action = TextDomain.action_in(response)
        return StepResult(Observation("Thanks."), action, True, 1 if action == self.name else -1)


def world(kind: type, **settings: object) -> dict[str, object]:
    return {"name": f"{__name__}:{kind.__name__}", **settings}


@pytest.fixture
def domain() -> Several:
    made = load_domain("several", {"worlds": [world(Letters), world(Digits, weight=2.0)]})
    assert isinstance(made, Several)
    return made


def test_tasks_are_mixed_by_weight_and_the_first_ones_are_a_sample(domain: Several) -> None:
    tasks = checked_tasks(domain, "train", 30, 0)
    labels = [task.id.partition("/")[0] for task in tasks]
    assert Counter(labels) == {"letters": 10, "digits": 20}
    assert Counter(labels[:6]) == {"letters": 2, "digits": 4}


def test_a_world_of_weight_0_is_only_evaluated() -> None:
    domain = load_domain("several", {"worlds": [world(Letters), world(Digits, weight=0)]})
    assert {task.kind for task in domain.tasks("train", 5, 0)} == {"letters/letter"}
    assert [task.kind for task in domain.tasks("digits/in_domain", 1, 0)] == ["digits"]


def test_a_world_plays_the_tasks_that_it_plays_alone(domain: Several) -> None:
    alone = Letters().tasks("in_domain", 5, 7)
    own = domain.tasks("letters/in_domain", 5, 7)
    assert [domain.of(task)[1] for task in own] == alone
    assert [task.id for task in own] == [f"letters/{task.id}" for task in alone]
    assert {task.kind for task in own} == {"letters/letter"}
    assert {task.kind for task in domain.tasks("digits/train", 5, 7)} == {"digits"}


def test_too_few_tasks_for_every_world_are_refused(domain: Several) -> None:
    with pytest.raises(DomainError, match="1 tasks leave none for letters: ask for more"):
        domain.tasks("train", 1, 0)


def test_a_split_that_a_world_lacks_is_named_with_the_world(domain: Several) -> None:
    with pytest.raises(DomainError, match="letters: no split 'ood'"):
        domain.tasks("letters/ood", 3, 0)


def test_each_world_answers_about_its_own_task(domain: Several) -> None:
    [task] = domain.tasks("letters/train", 1, 0)
    name = task.data["name"]
    step = Step("?", Completion.unsampled(f"> {name}"), name, True, "Thanks.")
    episode = Trajectory("e", task, (step,), -1)
    failed = JudgedTrajectory(episode, ((),))
    assert domain.oracle(task, [step]) == [1]
    assert domain.objection(task, [episode]) == "train-0 train-0"
    candidate = domain.parse_candidate(task, f"{task.id}@1", "z")
    assert (candidate.id, candidate.kind) == ("letters/train-0@1", "letters/letter")
    request = RewriteRequest.of(task, "easier", ["too long"], [failed])
    alone, own = Letters(), domain.of(task)[1]
    assert domain.adapter_prompt(request) == alone.adapter_prompt(
        RewriteRequest.of(own, "easier", ["too long"], [failed])
    )
    assert domain.policy_prompt(task, [step], "?") == alone.policy_prompt(own, [step], "?")
    assert domain.judge_prompt(task, [step]) == alone.judge_prompt(own, [step])
    assert domain.value_prompt(task, [step]) == alone.value_prompt(own, [step])
    assert domain.critic_prompt(failed, [0]) == alone.critic_prompt(failed, [0])
    [number] = domain.tasks("digits/train", 1, 0)
    with pytest.raises(InvalidTask, match="does not rewrite tasks"):
        domain.parse_candidate(number, f"{number.id}@1", "z")


def test_workers_play_all_worlds_and_name_a_task_that_fails_once(domain: Several) -> None:
    tasks = [*domain.tasks("letters/train", 1, 0), *domain.tasks("digits/train", 3, 0)]
    options = {"worlds": [world(Letters), world(Digits)]}
    with EnvironmentPool("several", options, 1, 30.0) as pool:
        letter, zero, one, two = pool.reset(tasks)
        assert isinstance(two, EpisodeError)
        assert (two.task_id, two.reason) == ("digits/train-2", "there is no 2")
        assert isinstance(letter, Observation)
        assert letter.text == "train-0?"
        right = {0: f"> {tasks[0].data['name']}", 1: "> 0", 2: "> 7"}
        played = pool.step(right)
        assert [getattr(each, "outcome", None) for each in played.values()] == [1, 1, -1]
        assert isinstance(zero, Observation)
        assert isinstance(one, Observation)


@pytest.mark.parametrize(
    ("worlds", "said"),
    [
        (
            [world(Letters), world(Programs)],
            "domains: the judge of letters scores steps, that of programs writes tests of programs",
        ),
        ([world(Letters), world(Arrows)], "domains: actions follow '>' in letters and '=>' in"),
        ([world(Letters), world(Digits, options={"size": 1})], "domains.1.options.size: unknown"),
        ([world(Letters)], "name at least two worlds"),
        ([world(Letters), world(Letters)], "two worlds are called letters: give one of them a"),
    ],
)
def test_worlds_that_cannot_be_mixed_are_one_line(worlds: list[object], said: str) -> None:
    with pytest.raises(DomainError) as error:
        load_domain("several", {"worlds": worlds})
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_abilities_are_those_that_any_world_has(domain: Several) -> None:
    assert domain.capabilities.rewrites_tasks
    neither = load_domain("several", {"worlds": [world(Digits), world(Digits, label="more")]})
    assert not neither.capabilities.rewrites_tasks


def test_a_plan_reads_what_is_here_and_stand_ins_of_the_rest() -> None:
    domain = load_domain("several", {"worlds": [world(Letters), world(Absent)]})
    with pytest.raises(MissingData, match="absent: its data are not here"):
        domain.tasks("train", 4, 0)
    assert sorted(task.id for task in domain.stand_ins(4)) == [
        *("absent/like-0", "absent/like-1"),
        *("letters/train-0", "letters/train-1"),
    ]
