"""Supervised samples from demonstrated or judged episodes."""

from __future__ import annotations

from collections.abc import Sequence

from rlanything.domains.base import Domain
from rlanything.domains.screens import LOOK
from rlanything.domains.teaching import SeenScene
from rlanything.engines.hf.model import LanguageModel
from rlanything.records import Completion, Messages, Sample, Step, Task, Trajectory
from rlanything.roles.chat_template import Chat, Prompt
from rlanything.roles.looking import before_acting, before_judging


class SampleWriter:
    """Writes the answers that a model of this tokenizer should give, as samples."""

    def __init__(self, model: LanguageModel, domain: Domain, screenshots: int = 0) -> None:
        """`screenshots`: how many of the latest the policy is shown; none: nor is the judge."""
        self._model = model
        self._domain = domain
        self._screenshots = screenshots
        self._chat = Chat(model)

    def demonstration(self, trajectory: Trajectory) -> list[Sample]:
        """Returns one sample a step: the demonstrator's response in its place in the chat."""
        samples: list[Sample] = []
        prompt: Prompt | None = None
        for i, step in enumerate(trajectory.steps):
            messages = self._domain.policy_prompt(
                trajectory.task, trajectory.steps[:i], step.observation
            )
            if self._screenshots:
                names = [earlier.image for earlier in trajectory.steps[: i + 1]]
                messages = before_acting(messages, names, self._screenshots)
            if prompt is None:
                prompt = self._chat.prompt(messages)
            else:
                prompt = self._chat.following(prompt, samples[-1].completion, messages)
            samples.append(self._sample(f"{trajectory.id}/{i}", prompt.ids, step.response))
        return samples

    def scene(self, scene: SeenScene) -> list[Sample]:
        """Returns one sample for each task that could begin with a scene. The model's book keeps
        its image."""
        assert self._model.sight is not None
        name = self._model.sight.book.add(scene.image.data)
        samples: list[Sample] = []
        for task, text in scene.asked:
            messages = self._domain.policy_prompt(task, (), LOOK)
            samples.append(self.answer(task.id, before_acting(messages, [name], 1), text))
        return samples

    def judgement(self, source: str, task: Task, steps: Sequence[Step], text: str) -> Sample:
        """Returns the sample in which `text` judges the last of the steps; `source` is its id."""
        messages = self._domain.judge_prompt(task, steps)
        if self._screenshots:
            messages = before_judging(messages, steps[-1])
        return self.answer(source, messages, text)

    def answer(self, source: str, messages: Messages, text: str) -> Sample:
        """Returns the sample in which `text` answers `messages`; `source` is its id."""
        return self._sample(source, self._chat.prompt(messages).ids, text)

    def _sample(self, source: str, prompt_ids: tuple[int, ...], text: str) -> Sample:
        ids = (*self._model.encode(text), self._model.stop_ids[0])
        zeros = (0.0,) * len(ids)
        completion = Completion(prompt_ids, ids, zeros, ((),) * len(ids), "stop", text)
        return Sample(source, completion, 1.0)
