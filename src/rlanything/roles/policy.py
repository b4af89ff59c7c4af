"""The policy: a language model that answers with a short thought and an action."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from rlanything.domains.base import Domain, DomainError, Episode, Observation
from rlanything.domains.requests import RequestsRefused
from rlanything.engines.base import Sampling
from rlanything.records import Completion, Messages, steps_of
from rlanything.roles.chat_model import Actions, ChatModel, ChatRequest
from rlanything.roles.chat_template import with_latest_screenshots

_FREE = "this run's policy answers freely: a list of choices needs policy.decoding=choices"


class LanguagePolicy:
    """A policy that asks a language model for each response.

    `decoding`: "choices" restricts it to admitted actions (token by token, with log-probs
    renormalised over the possible tokens), or "free". `screenshots`: number of latest screenshots
    it is shown."""

    def __init__(
        self,
        chat_model: ChatModel,
        domain: Domain,
        sampling: Sampling,
        decoding: str,
        thought_tokens: int,
        screenshots: int = 0,
    ) -> None:
        """Raises `ModelError` if the model cannot be restricted to choices."""
        self._chat_model = chat_model
        self._domain = domain
        self._sampling = sampling
        self._thought_tokens = thought_tokens
        self._screenshots = screenshots
        self._chooses = decoding == "choices"
        if self._chooses:
            chat_model.check_marker(domain.action_marker)

    def respond(self, episodes: Sequence[Episode], seeds: Sequence[int]) -> list[Completion]:
        """Returns one response per episode. Raises `RequestsRefused` for requests of agents that
        the model's chat template cannot render."""
        if refused := {i: _FREE for i, e in enumerate(episodes) if self._unlistable(e.observation)}:
            raise RequestsRefused(refused)
        questions = [
            self._question(episode, seed) for episode, seed in zip(episodes, seeds, strict=True)
        ]
        return [group[0] for group in self._chat_model.answer(questions, self._sampling)]

    def answer(self, chats: Sequence[Messages], seeds: Sequence[int]) -> list[Completion]:
        """Returns an answer to each chat outside episodes, such as a request to repair."""
        asked = [ChatRequest(chat, (seed,)) for chat, seed in zip(chats, seeds, strict=True)]
        answers = self._chat_model.answer(asked, self._sampling) if asked else []
        self._chat_model.release_cache()
        return [group[0] for group in answers]

    def release_cache(self) -> None:
        self._chat_model.release_cache()

    def _question(self, episode: Episode, seed: int) -> ChatRequest:
        seen = episode.observation
        if seen.request is not None:
            return self._requested(episode, seed)
        messages = self._domain.policy_prompt(episode.task, episode.steps, seen.text)
        if self._screenshots:
            names = [*(step.image for step in episode.steps), seen.image_name]
            messages = with_latest_screenshots(messages, names, self._screenshots)
        return ChatRequest(
            messages,
            (seed,),
            episode.id,
            episode.steps[-1].completion if episode.steps else None,
            self._actions(seen),
        )

    def _requested(self, episode: Episode, seed: int) -> ChatRequest:
        """Returns the chat of a program's request."""
        request = episode.observation.request
        assert request is not None
        follows, thread = request.follows, request.thread
        return ChatRequest(
            request.messages,
            (seed,),
            f"{episode.id}/{thread}" if thread else episode.id,
            None if follows is None else episode.steps[follows].completion,
            self._actions(episode.observation),
            request.tools,
            request.stop,
            request.max_tokens,
            refusable=True,
            chat_template_kwargs=request.chat_template_kwargs,
            count_only=request.count_only,
        )

    def _unlistable(self, seen: Observation) -> bool:
        """Whether a program lists admitted answers although the policy answers freely."""
        return bool(seen.request and seen.choices) and not self._chooses

    def _actions(self, observation: Observation) -> Actions | None:
        if not self._chooses or not observation.choices:
            return None
        return Actions(self._domain.action_marker, observation.choices, self._thought_tokens)


@dataclass(frozen=True, slots=True)
class Players:
    """The roles that act in the same episodes. Each is asked in its turns, about its own steps."""

    policies: Mapping[str, LanguagePolicy]
    """The policies by role; "" for the first."""

    def respond(self, episodes: Sequence[Episode], seeds: Sequence[int]) -> list[Completion]:
        """Returns one response per episode. Raises `DomainError` for an observation that is for
        none of the roles."""
        responses: dict[int, Completion] = {}
        for player in dict.fromkeys(episode.observation.player for episode in episodes):
            if player not in self.policies:
                raise DomainError(f"an observation is for {player!r}: name a role that acts")
            turns = [i for i, each in enumerate(episodes) if each.observation.player == player]
            seen = [_seen_by(player, episodes[i]) for i in turns]
            try:
                answers = self.policies[player].respond(seen, [seeds[i] for i in turns])
            except RequestsRefused as refused:
                raise refused.within(turns) from None
            responses |= zip(turns, answers, strict=True)
        return [responses[i] for i in range(len(episodes))]

    def release_cache(self) -> None:
        for policy in self.policies.values():
            policy.release_cache()


def _seen_by(player: str, episode: Episode) -> Episode:
    now = episode.observation
    return replace(episode, steps=[*steps_of(player, episode.steps, (now.text, now.image_name))])
