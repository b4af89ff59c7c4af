"""The paper's style: what each role is shown, and that nothing of it looks like a score."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from helpers.playing import play
from rlanything.domains.base import DomainError, RewriteRequest
from rlanything.domains.templates import REASON_CHARACTERS
from rlanything.records import Completion, JudgedTrajectory, Judgement, Step, Task, Trajectory
from rlanything.runs.open import open_run
from rlanything.runs.trainer import Trainer
from rlanything_alfworld.commands import without_commands
from rlanything_alfworld.domain import AlfWorld
from rlanything_alfworld.paper_prompts import ACTION_CHARACTERS, GRAMMAR

RESPONSES = [
    "I go to the first place there is. \\boxed{1}",
    "Anything will do. \\boxed{99}",
    "I cannot decide.",
    "\\boxed{" + "x" * 200 + "}",
    "Back to where I have not been. \\boxed{2}",
]


@pytest.fixture(scope="module")
def domain() -> AlfWorld:
    return AlfWorld(style="paper")


@pytest.fixture(scope="module")
def task(domain: AlfWorld) -> Task:
    return domain.tasks("train", 3, 0)[0]


@pytest.fixture(scope="module")
def steps(domain: AlfWorld, task: Task) -> list[Step]:
    return play(domain, task, RESPONSES)


@pytest.fixture(scope="module")
def judged(task: Task, steps: list[Step]) -> JudgedTrajectory:
    def said(text: str, score: int) -> Judgement:
        return Judgement(Completion.unsampled(text), score)

    doubts = (said("The number 99 stands in no list.", -1), said("Why\nnot?", 1))
    long = (said("It goes nowhere. " * 100, -1), said("It goes nowhere. " * 100, -1))
    return JudgedTrajectory(Trajectory("t", task, tuple(steps), -1), ((), doubts, long, (), doubts))


def only(messages: tuple) -> str:
    [message] = messages
    return message.content


def test_the_policy_reads_its_goal_its_history_and_the_numbered_commands(
    domain: AlfWorld, task: Task, steps: list[Step]
) -> None:
    text = only(domain.policy_prompt(task, steps[:2], steps[2].observation))
    assert task.instruction in text
    assert without_commands(steps[0].observation)[0] in text
    assert f"Turn 1, you: {steps[0].action}\n" in text
    assert "Turn 2, you: 99\nNothing happens." in text
    lines = without_commands(steps[2].observation)[1]
    assert lines.startswith("1. ")
    # Those of this turn, once, and of none before; what the agent thought is left out.
    assert text.count("\n1. ") == 1
    assert f"\n{lines}\n" in text
    assert "Anything will do" not in text
    assert text.endswith("end your answer with `\\boxed{number}`.")


def test_a_policys_prompt_repeats_the_one_before_up_to_its_commands(
    domain: AlfWorld, task: Task, steps: list[Step]
) -> None:
    texts = [
        only(domain.policy_prompt(task, steps[:i], s.observation)) for i, s in enumerate(steps)
    ]
    for shorter, longer in pairwise(texts):
        assert longer.startswith(shorter.partition("\n\nCommands that are possible now")[0])


def test_a_policys_prompt_repeats_the_latest_steps_only_where_a_recipe_says_so(
    task: Task, steps: list[Step]
) -> None:
    domain = AlfWorld(style="paper", history=2)
    text = only(domain.policy_prompt(task, steps[:4], steps[4].observation))
    assert [number for number in range(1, 6) if f"Turn {number}, you:" in text] == [3, 4]
    with pytest.raises(DomainError, match="history: the nano prompts"):
        AlfWorld(history=2)


def test_a_long_answer_is_shortened_in_the_history(
    domain: AlfWorld, task: Task, steps: list[Step]
) -> None:
    text = only(domain.policy_prompt(task, steps, steps[-1].next_observation))
    assert "Turn 3, you: no command\n" in text
    assert "x" * (ACTION_CHARACTERS + 1) not in text
    assert steps[3].action == "x" * 200


@pytest.mark.parametrize(
    ("commands", "form", "shown"),
    [
        ("list", "`\\boxed{command}`", "\ngo to "),
        ("none", "`> ` and one action", GRAMMAR),
        ("numbered", "`\\boxed{number}`", "\n1. "),
    ],
)
def test_the_prompt_asks_for_the_answer_that_is_read(
    task: Task, commands: str, form: str, shown: str
) -> None:
    domain = AlfWorld(style="paper", commands=commands)  # pyright: ignore[reportArgumentType]
    environment = domain.environment()
    seen = environment.reset(task)
    text = only(domain.policy_prompt(task, (), seen.text))
    assert form in text
    assert shown in text
    wanted = (seen.choices or ("",))[0]
    answer = {"list": f"\\boxed{{{wanted}}}", "none": f"> {wanted}", "numbered": "\\boxed{1}"}
    assert environment.step(answer[commands]).action == wanted


def test_the_judge_reads_the_policys_prompt_its_response_and_what_came_of_it(
    domain: AlfWorld, task: Task, steps: list[Step]
) -> None:
    policy = only(domain.policy_prompt(task, steps[:1], steps[1].observation))
    text = only(domain.judge_prompt(task, steps[:2]))
    assert policy.replace("\\boxed", "boxed") in text
    assert without_commands(steps[1].observation)[1] in text
    assert "Anything will do." in text
    assert "Nothing happens. The answer is none of the possible commands." in text
    criteria = ("1. Is the action appropriate?", "2. Is the reasoning sound?")
    assert all(criterion in text for criterion in (*criteria, "3. Is the choice valid?"))
    assert text.rstrip().endswith("\\boxed{-1} if it fails in any.")


def test_only_the_judges_own_question_shows_scores(
    domain: AlfWorld, task: Task, steps: list[Step]
) -> None:
    # What was answered and observed comes to the prompt without boxes: the judge sees to it.
    text = only(domain.judge_prompt(task, [steps[0]]))
    assert text.partition("##### The agent's response")[0].count("\\boxed") == 0
    assert text.partition("##### Your review")[2].count("\\boxed") == 2


def test_critics_read_all_actions_and_observations_and_why_steps_were_rejected(
    domain: AlfWorld, judged: JudgedTrajectory
) -> None:
    steps = judged.trajectory.steps
    text = only(domain.critic_prompt(judged, [1, 2, 3]))
    for step in steps:
        assert without_commands(step.next_observation)[0] in text
    assert "Possible commands" not in text
    assert f"Turn 1: {steps[0].action}\n" in text
    assert "Turn 2, REJECTED: 99\n" in text
    assert "\nThe judge: The number 99 stands in no list.\n" in text
    assert "Why not?" not in text  # said in favour
    # Shortened, and not twice.
    [long] = [line for line in text.splitlines() if "It goes nowhere." in line]
    assert long.endswith(" ...")
    assert len(long) <= len("The judge: ") + REASON_CHARACTERS
    assert "The judge: none given" in text
    assert "in two sentences" in text


def test_the_adapter_reads_the_facts_of_the_scene_and_how_well_it_went(
    domain: AlfWorld, task: Task, judged: JudgedTrajectory
) -> None:
    won = JudgedTrajectory(Trajectory("w", task, judged.trajectory.steps, 1), ())
    chats = domain.adapter_prompt(
        RewriteRequest.of(task, "harder", ("It got lost.",), (judged, won, won))
    )
    text = only(chats)
    assert task.instruction == "cool some bread and put it in fridge"
    for fact in (
        "The task: cool some bread and put it in fridge",
        "Its form, which stays as it is: put a cool <object> in <place>",
        "Attempts that succeeded: 2 of 3",
        "- bread: 1, in microwave 1",
        "- fork: 2, in sinkbasin 1, sinkbasin 1",
        "- cabinet: 3, may contain ladle",
        "- can be cooled: bread",
        "- can be cleaned: butterknife, fork, ladle",
        "- can be switched on: none",
        "- It got lost.",
        "- Harder:",
        "- Easier:",
        "object: TYPE place: TYPE",
    ):
        assert fact in text, fact
    unknown = only(domain.adapter_prompt(RewriteRequest.of(task, "easier", ())))
    assert "Attempts that succeeded: not known" in unknown
    assert "nothing is known" in unknown


def test_own_prompts_replace_those_of_the_style(tmp_path: Path, task: Task) -> None:
    (tmp_path / "policy_step.txt").write_text(" [$action]")
    domain = AlfWorld(style="paper", prompts=str(tmp_path))
    steps = play(domain, task, RESPONSES[:2])
    text = only(domain.policy_prompt(task, steps, steps[-1].next_observation))
    assert f" [{steps[0].action}] [99]\n\nCommands" in text
    (tmp_path / "turn.txt").write_text("A turn of the nano prompts.")
    with pytest.raises(DomainError, match=r"turn\.txt: no such prompt; known are adapter\.txt"):
        AlfWorld(style="paper", prompts=str(tmp_path))


@pytest.mark.parametrize("decoding", ["free", "choices"])
def test_an_iteration_in_the_papers_style_stores_what_the_policy_was_shown(
    tmp_path: Path, decoding: str
) -> None:
    small = {"tasks": 2, "tasks_per_iteration": 2, "rollouts_per_task": 2, "max_steps": 2}
    overrides = {f"loop.{name}": count for name, count in (small | {"iterations": 1}).items()}
    overrides |= {"domain.options.style": "paper", "policy.decoding": decoding}
    overrides |= {"environment.workers": 0, "evaluation.episodes": 0}
    overrides |= {"adapter.critics_per_task": "all", "adapter.tries": 1}
    trainer = Trainer("tiny", run_dir=tmp_path / "run", overrides=overrides)
    assert [iteration.number for iteration in trainer] == [1]
    trajectories = open_run(tmp_path / "run").trajectories(iteration=1)
    steps = [step for trajectory in trajectories for step in trajectory.steps]
    assert len(steps) == 8
    assert all(without_commands(step.observation)[1].startswith("1. ") for step in steps)
    # Restricted, every action is one of the list; a thought that ends the turn leaves none.
    restricted = [step for step in steps if step.action is not None] if decoding != "free" else []
    assert all(step.valid for step in restricted)
    assert restricted or decoding == "free"
