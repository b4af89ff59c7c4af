"""The policy: a short thought, then an action."""

from __future__ import annotations

from collections.abc import Sequence

from rlanything.engines.base import Choices, Engine, Request, Sampling
from rlanything.engines.model import LanguageModel, ModelError
from rlanything.environments.base import Domain, Episode, Observation
from rlanything.records import Completion
from rlanything.roles.chat import Chat, Prompt


class LanguagePolicy:
    """Asks a language model for each next response.

    `decoding` is "choices" to let it act only as the environment admits (token by token, log-probs
    renormalised over what was possible), or "free"."""

    def __init__(
        self,
        model: LanguageModel,
        engine: Engine,
        domain: Domain,
        sampling: Sampling,
        decoding: str,
        thought_tokens: int,
    ) -> None:
        self._model = model
        self._engine = engine
        self._domain = domain
        self._sampling = sampling
        self._chat = Chat(model)
        self._thought_tokens = thought_tokens
        self._marker: int | None = None
        if decoding == "choices":
            marker = model.encode(f" {domain.action_marker}")
            if len(marker) != 1:
                raise ModelError(
                    f"decoding: choices needs the action marker {domain.action_marker!r} to be one "
                    f"token of {model.name}; use decoding: free"
                )
            self._marker = marker[0]
        self._options: dict[str, tuple[int, ...]] = {}
        self._prompts: dict[str, Prompt] = {}

    def respond(self, episodes: Sequence[Episode], seeds: Sequence[int]) -> list[Completion]:
        """One response per episode; remembers each prompt, so that the next one can continue it."""
        requests: list[Request] = []
        prompts: dict[str, Prompt] = {}
        for episode, seed in zip(episodes, seeds, strict=True):
            messages = self._domain.policy_prompt(
                episode.task, episode.steps, episode.observation.text
            )
            previous = self._prompts.get(episode.id)
            if not episode.steps or previous is None:
                prompt = self._chat.prompt(messages)
            else:
                prompt = self._chat.following(previous, episode.steps[-1].completion, messages)
            choices = self._choices(episode.observation)
            requests.append(Request(prompt.ids, (seed,), choices, episode.id))
            prompts[episode.id] = prompt
        self._prompts = prompts
        return [group[0] for group in self._engine.generate(requests, self._sampling)]

    def _choices(self, observation: Observation) -> Choices | None:
        if self._marker is None or not observation.choices:
            return None
        options = tuple(self._option(choice) for choice in observation.choices)
        return Choices(self._marker, options, self._thought_tokens)

    def _option(self, action: str) -> tuple[int, ...]:
        if action not in self._options:
            ids = self._model.encode(f" {action}")
            self._options[action] = (*ids, self._model.tokenizer.eos_token_id)  # pyright: ignore
        return self._options[action]
