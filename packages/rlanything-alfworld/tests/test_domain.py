"""AlfWorld's words: prompts, candidates, and what is refused."""

from __future__ import annotations

import hashlib
from itertools import pairwise
from pathlib import Path

import pytest

from helpers.playing import play
from rlanything.domains.base import DomainError, InvalidTask, RewriteRequest
from rlanything.records import JudgedTrajectory, Step, Task, Trajectory
from rlanything_alfworld.domain import AlfWorld


@pytest.fixture(scope="module")
def domain() -> AlfWorld:
    return AlfWorld()


@pytest.fixture(scope="module")
def task(domain: AlfWorld) -> Task:
    return domain.tasks("train", 3, 0)[0]


@pytest.fixture(scope="module")
def steps(domain: AlfWorld, task: Task) -> list[Step]:
    responses: list[str] = []
    for _ in range(3):
        response = domain.expert(task, play(domain, task, responses))
        responses.append(f"because {response}")
    return play(domain, task, [*responses, "no action here", "> fly away"])


def test_policy_prompts_only_ever_grow(domain: AlfWorld, task: Task, steps: list[Step]) -> None:
    chats = [domain.policy_prompt(task, steps[:i], steps[i].observation) for i in range(len(steps))]
    for shorter, longer in pairwise(chats):
        assert longer[: len(shorter)] == shorter
        assert len(longer) == len(shorter) + 2


def test_the_nano_models_prompts_are_bit_for_bit_those_they_were_taught_with(
    domain: AlfWorld, task: Task, steps: list[Step]
) -> None:
    steps = play(domain, task, [*(step.response for step in steps), "> look"])
    failed = JudgedTrajectory(Trajectory("t", task, tuple(steps), -1), ())
    chats = [
        domain.policy_prompt(task, steps, steps[-1].next_observation),
        domain.judge_prompt(task, steps),
        domain.critic_prompt(failed, [1]),
        domain.adapter_prompt(RewriteRequest.of(task, "harder", ("It got lost.",))),
    ]
    text = "\n".join(f"{turn.role}: {turn.content}" for chat in chats for turn in chat)
    assert hashlib.sha256(text.encode()).hexdigest() == (
        "889cdd52b09e2a7cbc83664061b79ca2fcc246f4bb780a0166c000489b7c8e77"
    )


def test_policy_prompt_names_the_task_and_how_to_answer(
    domain: AlfWorld, task: Task, steps: list[Step]
) -> None:
    text = domain.policy_prompt(task, (), steps[0].observation)[0].content
    assert task.instruction in text
    assert domain.action_marker in text


def test_judge_prompt_shows_thought_action_and_what_came_of_it(
    domain: AlfWorld, task: Task, steps: list[Step]
) -> None:
    text = domain.judge_prompt(task, steps[:2])[-1].content
    assert steps[0].response in text
    assert steps[1].response in text
    assert task.instruction in text


def test_judge_prompts_share_everything_before_the_last_step(
    domain: AlfWorld, task: Task, steps: list[Step]
) -> None:
    question = "\nJudge the last step."
    texts = [domain.judge_prompt(task, steps[: i + 1])[0].content for i in range(len(steps))]
    for shorter, longer in pairwise(texts):
        assert longer.startswith(shorter.removesuffix(question))


def test_a_judge_of_value_sees_the_same_record_and_another_question(
    domain: AlfWorld, task: Task, steps: list[Step]
) -> None:
    [judged], [valued] = domain.judge_prompt(task, steps), domain.value_prompt(task, steps)
    record = judged.content.removesuffix("\nJudge the last step.")
    assert valued.content == f"{record}\nHow likely is it still done, 0 to 10?"


def test_condemned_steps_are_marked_for_the_critic(
    domain: AlfWorld, task: Task, steps: list[Step]
) -> None:
    failed = JudgedTrajectory(Trajectory("t", task, tuple(steps), -1), ())
    lines = domain.critic_prompt(failed, [1])[0].content.splitlines()
    marked = [line for line in lines if line.startswith("(bad) ")]
    assert marked == [f"(bad) {steps[1].response}"]


def test_the_oracle_condemns_what_cannot_be_done(
    domain: AlfWorld, task: Task, steps: list[Step]
) -> None:
    assert domain.oracle(task, steps) == [1, 1, 1, -1, -1]


def test_a_candidate_changes_sentence_and_game_together(domain: AlfWorld) -> None:
    found = 0
    for root in domain.tasks("train", 30, 1):
        prompt = domain.adapter_prompt(RewriteRequest.of(root, "harder", ("It got lost.",)))[
            0
        ].content
        assert root.instruction in prompt
        assert "It got lost." in prompt
        for thing in ("mug", "plate", "pan", "pencil", "book", "apple"):
            try:
                task = domain.parse_candidate(
                    root, "new", f"object: {thing} place: {root.data['goal']['receptacle']}"
                )
            except InvalidTask:
                continue
            found += 1
            assert thing in task.instruction
            assert task.instruction != root.instruction
            assert task.data["goal"]["object"].lower() == thing
            assert domain.environment().reset(task).choices
    assert found > 0


@pytest.mark.parametrize(
    ("answer", "reason", "stage"),
    [
        ("something harder", "no `object:", "unreadable"),
        ("object: mug place: shelf object: cup place: desk", "more than one", "unreadable"),
        ("object: unicorn place: shelf", "unknown object type 'unicorn'", "invalid"),
        ("object: mug place: moon", "moon", "invalid"),
    ],
)
def test_an_answer_that_is_no_goal_is_refused_with_the_reason(
    domain: AlfWorld, answer: str, reason: str, stage: str
) -> None:
    root = next(t for t in domain.tasks("train", 12, 0) if t.kind == "pick_and_place_simple")
    with pytest.raises(InvalidTask, match=reason) as refusal:
        domain.parse_candidate(root, "new", answer)
    assert refusal.value.stage == stage


def test_own_prompts_replace_the_shipped_ones(tmp_path: Path, task: Task) -> None:
    (tmp_path / "policy.txt").write_text("Please: $task. You see: $observation")
    text = AlfWorld(prompts=str(tmp_path)).policy_prompt(task, (), "Silence.")[0].content
    assert text == f"Please: {task.instruction}. You see: Silence."


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("policy.txt", "$secret", "unknown placeholder \\$secret"),
        ("policy.txt", "costs 5$", "literal dollar sign"),
        ("polcy.txt", "hello", "no such prompt"),
    ],
)
def test_a_broken_prompt_is_named(tmp_path: Path, name: str, content: str, said: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(DomainError, match=said):
        AlfWorld(prompts=str(tmp_path))


@pytest.mark.parametrize("size", [[3], [0, 2], [5, 4], [1, 2, 3]])
def test_a_scene_size_that_is_no_range_is_refused(size: list[int]) -> None:
    with pytest.raises(DomainError, match="fewest, most"):
        AlfWorld(receptacles=size)


def test_a_number_where_a_range_is_meant_is_refused_with_the_remedy() -> None:
    with pytest.raises(DomainError, match=r"options\.objects: write a list, as \[3\]"):
        AlfWorld(objects=3)
