"""The generative judge: a language model that scores every step, m times, after reasoning."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain

from rlanything.domains.base import Domain
from rlanything.engines.base import Sampling
from rlanything.records import (
    Completion,
    JudgedTrajectory,
    Judgement,
    Messages,
    Step,
    Task,
    Trajectory,
)
from rlanything.roles.chat_model import ChatModel, ChatRequest
from rlanything.roles.chat_template import with_step_screenshots, without_scores
from rlanything.roles.judges.base import OnJudgements, StepJudge
from rlanything.roles.judges.scores import QUADRATIC, WON_AT, grade_of, score_of
from rlanything.seeds import derive

PARALLEL_TRAJECTORIES = 128
STEPS_AT_ONCE = 1024
"""Number of steps in one call if the engine schedules requests itself: enough to keep it busy, and
a bound of the prompts and screenshots that wait."""


class LLMJudge(StepJudge):
    """A language model as a judge: reasoning, then a boxed score, m times per step."""

    def __init__(
        self,
        chat_model: ChatModel,
        domain: Domain,
        sampling: Sampling,
        samples: int,
        screenshots: bool = False,
        score_first: bool = False,
        at_once: bool = False,
    ) -> None:
        """`samples`: m; `screenshots`: whether it sees those before and after a step;
        `score_first`: whether answers begin with their score, as in `score_of`; `at_once`: ask
        about `STEPS_AT_ONCE` steps in a call, for models that schedule requests themselves."""
        self._chat_model = chat_model
        self._domain = domain
        self._sampling = sampling
        self._screenshots = screenshots
        self._score_first = score_first
        self._at_once = at_once
        self.samples = samples

    def judge(
        self,
        trajectories: Sequence[Trajectory],
        seed: int,
        on_judgements: OnJudgements | None = None,
    ) -> list[JudgedTrajectory]:
        """Returns m judgements for every step, [trajectories][steps][m]."""
        quoted = [[_defused(step) for step in each.steps] for each in trajectories]
        judgements: list[list[tuple[Judgement, ...]]] = [[] for _ in trajectories]
        for places in self._batches([len(steps) for steps in quoted]):
            asked = [(trajectories[i], quoted[i][: index + 1]) for i, index in places]
            answers = self._ask(asked, seed, on_judgements)
            for (i, _), row in zip(places, answers, strict=True):
                judgements[i].append(row)
        self._chat_model.release_cache()
        return [
            JudgedTrajectory(trajectory, tuple(rows))
            for trajectory, rows in zip(trajectories, judgements, strict=True)
        ]

    def judge_last(
        self,
        trajectories: Sequence[Trajectory],
        seed: int,
        on_judgements: OnJudgements | None = None,
    ) -> list[tuple[Judgement, ...]]:
        """Returns m judgements of the last step of each trajectory, [trajectories][m]; earlier
        steps are context only. Equal to `judge` on that step for the same id and seed, up to
        rounding. Each trajectory must have a step."""
        judged: list[tuple[Judgement, ...]] = []
        for start in range(0, len(trajectories), PARALLEL_TRAJECTORIES):
            chunk = trajectories[start : start + PARALLEL_TRAJECTORIES]
            quoted = [[_defused(step) for step in each.steps] for each in chunk]
            judged += self._ask(list(zip(chunk, quoted, strict=True)), seed, on_judgements)
        self._chat_model.release_cache()
        return judged

    def pop_usage(self) -> dict[str, int]:
        """Returns the requests and tokens of its model since the last call, by name."""
        return self._chat_model.pop_usage()

    def _batches(self, lengths: Sequence[int]) -> Iterator[list[tuple[int, int]]]:
        """Yields the steps to ask about together, as pairs of a trajectory and a step, for
        trajectories of these lengths. Steps of a trajectory come in order."""
        if self._at_once:
            places = [(i, index) for i, length in enumerate(lengths) for index in range(length)]
            for start in range(0, len(places), STEPS_AT_ONCE):
                yield places[start : start + STEPS_AT_ONCE]
            return
        # Step by step over all trajectories: each prompt then extends the one before. Longest
        # first: trajectories still to be judged are then contiguous in the engine's cache, which
        # avoids copying.
        order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
        for start in range(0, len(order), PARALLEL_TRAJECTORIES):
            chunk = order[start : start + PARALLEL_TRAJECTORIES]
            for index in range(lengths[chunk[0]]):
                yield [(i, index) for i in chunk if lengths[i] > index]

    def _ask(
        self,
        asked: Sequence[tuple[Trajectory, Sequence[Step]]],
        seed: int,
        on_judgements: OnJudgements | None,
    ) -> list[tuple[Judgement, ...]]:
        """Returns judgements of the last step of each trajectory, with scores in it defused."""
        questions = [self._question(trajectory, steps, seed) for trajectory, steps in asked]
        left = len(asked) * self.samples

        def advance(samples: int) -> None:
            nonlocal left
            new = min(samples, left)
            left -= new
            if on_judgements is not None and new:
                on_judgements(new)

        answers = self._chat_model.answer(questions, self._sampling, advance) if asked else []
        advance(left)
        return [tuple(map(self._read, group)) for group in answers]

    def _question(self, trajectory: Trajectory, steps: Sequence[Step], seed: int) -> ChatRequest:
        task = trajectory.task
        task = replace(task, instruction=without_scores(task.instruction))
        messages = self._prompt(task, steps)
        if self._screenshots:
            messages = with_step_screenshots(messages, steps[-1])
        seeds = tuple(
            derive(seed, trajectory.id, len(steps) - 1, sample) for sample in range(self.samples)
        )
        return ChatRequest(messages, seeds, trajectory.id)

    def _prompt(self, task: Task, steps: Sequence[Step]) -> Messages:
        return self._domain.judge_prompt(task, steps)

    def _read(self, written: Completion) -> Judgement:
        return Judgement(written, score_of(written, self._score_first))


class ValueJudge(LLMJudge):
    """A language model as a judge of value: after each step it says m times, after reasoning, how
    likely the episode is still to be won from there, in a boxed grade from 0 to 10."""

    def _prompt(self, task: Task, steps: Sequence[Step]) -> Messages:
        return self._domain.value_prompt(task, steps)

    def _read(self, written: Completion) -> Judgement:
        grade = grade_of(written, self._score_first)
        return Judgement(written, 0 if grade < 0 else 1 if grade >= 5 else -1, grade=grade)

    def counts(self, judged: Sequence[JudgedTrajectory]) -> dict[str, dict[str, tuple[int, int]]]:
        """Returns counts by task of the measures `WON_AT` and `QUADRATIC` (in hundredths)."""
        counts: dict[str, dict[str, tuple[int, int]]] = {}
        for one in judged:
            own = counts.setdefault(one.trajectory.task.id, {})
            won = int(one.trajectory.outcome == 1)
            for grade in chain.from_iterable(one.grades):
                error = 100 if grade < 0 else (grade - 10 * won) ** 2
                counted = [(QUADRATIC, 100 - error, 100), *[(WON_AT[grade], won, 1)] * (grade >= 0)]
                for measure, hits, total in counted:
                    before = own.get(measure, (0, 0))
                    own[measure] = (before[0] + hits, before[1] + total)
        return counts


def _defused(step: Step) -> Step:
    """Returns the step without any text that could be read as a score."""
    return replace(
        step,
        observation=without_scores(step.observation),
        next_observation=without_scores(step.next_observation),
        action=None if step.action is None else without_scores(step.action),
        completion=replace(step.completion, text=without_scores(step.response), answer_at=0),
    )
