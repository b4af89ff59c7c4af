"""The gymnasium domain: any environment that Gymnasium makes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from rlanything.domains.base import CodeName, DomainError
from rlanything.domains.registry import named_function
from rlanything_gyms.ecosystem import (
    EcosystemDomain,
    EcosystemEnvironment,
    EcosystemOptions,
    EpisodeRules,
)
from rlanything_gyms.gymnasium.actions import ActionReader
from rlanything_gyms.gymnasium.game import GymnasiumGame, make_environment
from rlanything_gyms.gymnasium.rendering import Renderer, Rendering, check_observations
from rlanything_gyms.winning import WinRule


class GymnasiumDomain(EcosystemDomain):
    """Episodes of a Gymnasium environment.

    Raises `DomainError` for options that do not fit it."""

    class Options(EcosystemOptions):
        id: CodeName
        """As for `gymnasium.make`; `module:ID` imports a module that registers it."""
        win: Mapping[str, Any]
        """Condition for winning an episode (`winning.py`)."""
        kwargs: Mapping[str, Any] = Field(default_factory=dict)
        """Further arguments of `gymnasium.make`."""
        actions: Sequence[Any] | Mapping[str, Any] | None = None
        """Names of the actions 0, 1, ..., or each name with its action; None: numbers, a text or
        JSON, according to the action space."""
        render: CodeName | Renderer | None = None
        """Text that the policy reads: `ansi`, `observation`, a method of the environment that
        returns text, or `module:function` of the environment and the observation; None: the first
        of these that exists."""
        reward_range: Any = None
        """Lowest and highest return; None: any."""

    def __init__(self, **options: Any) -> None:
        chosen = self.Options.read(options)
        self._rules = EpisodeRules.read(
            WinRule.read(chosen.win), chosen.reward_range, chosen.horizon
        )
        super().__init__(chosen.id, chosen.instruction, chosen.ood)
        kwargs, actions = chosen.kwargs, chosen.actions
        self._kwargs = kwargs
        renderer = chosen.render
        if isinstance(renderer, str) and ":" in renderer:
            renderer = named_function("render", renderer, "(environment, observation)")
        readers: list[ActionReader] = []
        for settings in self.all_settings(kwargs):
            environment, rendering = make_environment(self._name, settings, renderer)
            try:
                readers.append(ActionReader.of(environment.action_space, actions))
                check_observations(environment, rendering)
            finally:
                environment.close()
        self._reader = readers[0]
        if other := [each.space for each in readers if each.space != self._reader.space]:
            raise DomainError(
                f"ood: its actions are {other[0]}, those of training {self._reader.space}: choose "
                "kwargs that leave the actions as they are"
            )
        self._renderer = renderer
        self._instruction = f"{self._instruction}\n{self._reader.explanation}"

    def environment(self) -> EcosystemEnvironment:
        def make(data: Mapping[str, Any]) -> tuple[Any, Rendering]:
            return make_environment(self._name, self.settings(data, self._kwargs), self._renderer)

        return EcosystemEnvironment(GymnasiumGame(make, self._reader), self._rules)
