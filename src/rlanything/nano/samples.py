"""Supervised samples from demonstrated or judged episodes."""

from __future__ import annotations

from rlanything.domains.base import Domain
from rlanything.engines.hf.model import LanguageModel
from rlanything.records import Completion, Messages, Sample, Trajectory
from rlanything.roles.chat_template import Chat, Prompt


class SampleWriter:
    """Writes the answers that a model of this tokenizer should give, as samples."""

    def __init__(self, model: LanguageModel, domain: Domain) -> None:
        self._model = model
        self._domain = domain
        self._chat = Chat(model)

    def demonstration(self, trajectory: Trajectory) -> list[Sample]:
        """Returns one sample a step: the demonstrator's response in its place in the chat."""
        samples: list[Sample] = []
        prompt: Prompt | None = None
        for i, step in enumerate(trajectory.steps):
            messages = self._domain.policy_prompt(
                trajectory.task, trajectory.steps[:i], step.observation
            )
            if prompt is None:
                prompt = self._chat.prompt(messages)
            else:
                prompt = self._chat.following(prompt, samples[-1].completion, messages)
            samples.append(self._sample(f"{trajectory.id}/{i}", prompt.ids, step.response))
        return samples

    def answer(self, source: str, messages: Messages, text: str) -> Sample:
        """Returns the sample in which `text` answers `messages`; `source` is its id."""
        return self._sample(source, self._chat.prompt(messages).ids, text)

    def _sample(self, source: str, prompt_ids: tuple[int, ...], text: str) -> Sample:
        ids = (*self._model.encode(text), self._model.stop_ids[0])
        zeros = (0.0,) * len(ids)
        completion = Completion(prompt_ids, ids, zeros, ((),) * len(ids), "stop", text)
        return Sample(source, completion, 1.0)
