"""The gymnasium domain: any environment that Gymnasium makes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from rlanything.domains.base import DomainError
from rlanything.domains.registry import named_function
from rlanything.domains.winning import WinRule
from rlanything_gyms.ecosystem import EcosystemDomain, EcosystemEnvironment, EpisodeRules
from rlanything_gyms.gymnasium.actions import ActionReader
from rlanything_gyms.gymnasium.game import GymnasiumGame, make_environment
from rlanything_gyms.gymnasium.rendering import Renderer, Rendering, check_observations


class GymnasiumDomain(EcosystemDomain):
    """Episodes of a Gymnasium environment.

    `id`: as for `gymnasium.make`; `module:ID` imports a module that registers it. `win`: conditions
    for winning (`domains/winning.py`). `kwargs`: arguments of `gymnasium.make`. `actions`: names of
    the actions 0, 1, ..., or a mapping from names to actions; None: numbers, a text, or JSON,
    depending on the action space. `render`: what the policy reads: `ansi`, `observation`, a method
    of the environment that returns text, or `module:function` of the environment and the
    observation; None: the first of these that exists. `instruction`: the policy's instruction; the
    actions are appended. `horizon`: largest number of steps. `reward_range`: range of the return.
    `ood`: the kwargs that differ in the split `ood`.

    Raises `DomainError` for options that do not fit the environment."""

    def __init__(
        self,
        id: str,
        win: Mapping[str, Any],
        kwargs: Mapping[str, Any] = MappingProxyType({}),
        actions: Sequence[str] | Mapping[str, Any] | None = None,
        render: str | Renderer | None = None,
        instruction: str | None = None,
        horizon: int | None = None,
        reward_range: Sequence[float] | None = None,
        ood: Mapping[str, Any] | None = None,
    ) -> None:
        self._rules = EpisodeRules.read(WinRule.read(win), reward_range, horizon)
        super().__init__(str(id), instruction, ood)
        self._kwargs = kwargs
        renderer = render
        if isinstance(render, str) and ":" in render:
            renderer = named_function("render", render, "(environment, observation)")
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
