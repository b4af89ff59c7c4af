"""Supervised samples from demonstrators and teachers, and the text that they contain."""

from __future__ import annotations

import random
from collections.abc import Sequence

from rlanything.domains.base import Domain, RewriteRequest
from rlanything.domains.screens import LOOK
from rlanything.engines.hf.model import LanguageModel
from rlanything.records import (
    Completion,
    JudgedTrajectory,
    Messages,
    Sample,
    Step,
    Task,
    Trajectory,
)
from rlanything.roles.chat_template import (
    Chat,
    Prompt,
    with_latest_screenshots,
    with_step_screenshots,
)
from rlanything_nano.making import DIRECTIONS
from rlanything_nano.measuring import sample_critics
from rlanything_nano.teaching import Exercise, FailureTeacher, SeenScene, StepTeacher


def texts_read(
    domain: Domain, teacher: StepTeacher, demonstrations: Sequence[Trajectory], seed: int
) -> list[str]:
    """Returns every kind of text that the models will read or write, for the tokenizer."""
    rng = random.Random(seed)
    words = [word for group in teacher.interchangeable() for word in group]
    # Repeated often enough that every word becomes one token.
    texts = [f"{word} {word}" for word in words] * 50
    for t in demonstrations[:: max(1, len(demonstrations) // 1200)]:
        last = t.steps[-1].next_observation
        texts += [m.content for m in domain.policy_prompt(t.task, t.steps, last)]
        texts += [m.content for m in domain.judge_prompt(t.task, t.steps)]
        texts.append(teacher.judgement(t.task, t.steps, rng.choice((1, -1))))
        critic = teacher.critic(t.task, t.steps, ())
        for direction in DIRECTIONS:
            prompt = domain.adapter_prompt(RewriteRequest.of(t.task, direction, (critic,)))
            texts += [m.content for m in prompt]
            texts.append(teacher.proposal(t.task, direction, rng) or "")
    return texts


class SampleWriter:
    """Writes the right answers of a model with this tokenizer as samples."""

    def __init__(self, model: LanguageModel, domain: Domain, screenshots: int = 0) -> None:
        """`screenshots`: number of latest screenshots that the policy sees; with 0 the judge sees
        none either."""
        self._model = model
        self._domain = domain
        self._screenshots = screenshots
        self._chat = Chat(model)

    def demonstration(self, trajectory: Trajectory) -> list[Sample]:
        """Returns one sample per step: the demonstrator's response at its place in the chat."""
        samples: list[Sample] = []
        prompt: Prompt | None = None
        for i, step in enumerate(trajectory.steps):
            messages = self._domain.policy_prompt(
                trajectory.task, trajectory.steps[:i], step.observation
            )
            if self._screenshots:
                names = [earlier.image for earlier in trajectory.steps[: i + 1]]
                messages = with_latest_screenshots(messages, names, self._screenshots)
            if prompt is None:
                prompt = self._chat.prompt(messages)
            else:
                prompt = self._chat.following(prompt, samples[-1].completion, messages)
            samples.append(self._sample(f"{trajectory.id}/{i}", prompt.ids, step.response))
        return samples

    def scene(self, scene: SeenScene) -> list[Sample]:
        """Returns one sample for each task that could begin with a scene. The model's book keeps
        its image."""
        assert self._model.vision is not None
        name = self._model.vision.book.add(scene.image.data)
        samples: list[Sample] = []
        for task, text in scene.asked:
            messages = self._domain.policy_prompt(task, (), LOOK)
            samples.append(self.answer(task.id, with_latest_screenshots(messages, [name], 1), text))
        return samples

    def judgement(self, source: str, task: Task, steps: Sequence[Step], text: str) -> Sample:
        """Returns the sample in which `text` judges the last of the steps; `source`: the sample's
        id."""
        messages = self._domain.judge_prompt(task, steps)
        if self._screenshots:
            messages = with_step_screenshots(messages, steps[-1])
        return self.answer(source, messages, text)

    def valuation(self, source: str, task: Task, steps: Sequence[Step], text: str) -> Sample:
        """Returns the sample in which `text` values the state after the steps."""
        messages = self._domain.value_prompt(task, steps)
        if self._screenshots:
            messages = with_step_screenshots(messages, steps[-1])
        return self.answer(source, messages, text)

    def exercise(self, exercise: Exercise) -> Sample:
        """Returns the sample of a step without a screen."""
        messages = self._domain.policy_prompt(exercise.task, exercise.steps, "")
        return self.answer(exercise.task.id, messages, exercise.response)

    def explanation(self, teacher: StepTeacher, failed: Trajectory) -> Sample:
        """Returns the sample that explains a failed rollout; the oracle's bad steps are the
        rejected ones."""
        labels = self._domain.oracle(failed.task, failed.steps) or []
        rejected = [i for i, label in enumerate(labels) if label == -1]
        messages = self._domain.critic_prompt(JudgedTrajectory(failed, ()), rejected)
        text = teacher.critic(failed.task, failed.steps, rejected)
        return self.answer(failed.id, messages, text)

    def proposals(
        self, teacher: StepTeacher, root: Task, critics: Sequence[str], rng: random.Random
    ) -> list[Sample]:
        """Returns harder and easier tasks by rule, with none, one or two of `critics`."""
        samples: list[Sample] = []
        for direction in DIRECTIONS:
            texts = {teacher.proposal(root, direction, rng) for _ in range(4)}
            request = RewriteRequest.of(root, direction, sample_critics(critics, rng))
            messages = self._domain.adapter_prompt(request)
            samples += [self.answer(root.id, messages, t) for t in sorted(filter(None, texts))]
        return samples

    def revisions(
        self, teacher: FailureTeacher, failed: Sequence[Trajectory], rng: random.Random
    ) -> list[Sample]:
        """Returns harder and easier versions of a task after one or two of its `failed` rollouts,
        whose critics the prompt holds."""
        samples: list[Sample] = []
        for direction in DIRECTIONS:
            shown = rng.sample(failed, min(rng.randint(1, 2), len(failed)))
            root = shown[0].task
            critics = [teacher.critic(one.task, one.steps, ()) for one in shown]
            texts = {teacher.revision(root, direction, shown, rng) for _ in range(4)}
            messages = self._domain.adapter_prompt(RewriteRequest.of(root, direction, critics))
            samples += [self.answer(root.id, messages, t) for t in sorted(filter(None, texts))]
        return samples

    def answer(self, source: str, messages: Messages, text: str) -> Sample:
        """Returns the sample in which `text` answers `messages`; `source`: the sample's id."""
        return self._sample(source, self._chat.prompt(messages).ids, text)

    def _sample(self, source: str, prompt_ids: tuple[int, ...], text: str) -> Sample:
        ids = (*self._model.encode(text), self._model.stop_ids[0])
        zeros = (0.0,) * len(ids)
        completion = Completion(prompt_ids, ids, zeros, ((),) * len(ids), "stop", text)
        return Sample(source, completion, 1.0)
