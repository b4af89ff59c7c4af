"""The `learner:` key of a recipe: learners elsewhere, which also generate."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, TypeAlias

from pydantic import BeforeValidator, SerializeAsAny, ValidationInfo

from rlanything.config.engines import ConfigSection, parse_plugin
from rlanything.config.trust import is_code


class LearnerConfig(ConfigSection):
    """Base class of the settings of a learner elsewhere, which trains a role's model and generates
    with it.

    A plug-in learner is such a class: an entry point of the group `rlanything.learners`, or
    `name: module:Class` in a recipe."""

    continuous_batching: ClassVar[bool] = False
    """As `EngineConfig.continuous_batching`."""

    name: str
    """A registered learner (`tinker`) or `module:Class`."""

    def check(self, role: Any) -> None:
        """Raises pydantic's errors for a setting of `role`, a `TrainedRoleConfig`, that this
        learner cannot honour."""
        raise NotImplementedError(f"{type(self).__name__} does not define check()")

    def load(self, source: Any) -> Any:
        """Returns the model of a `cluster.models.RoleSource` as a `cluster.open.Trained`, also if
        it only generates. Raises `ModelError`, or another one-line ValueError."""
        raise NotImplementedError(f"{type(self).__name__} does not define load()")


def parse_learner(value: Any, info: ValidationInfo) -> Any:
    """Returns the settings of a role's learner, as `parse_plugin` does; `tinker` is short for
    `{name: tinker}`."""
    if isinstance(value, str) and not is_code(value):
        value = {"name": value}
    return parse_plugin("learner", LearnerConfig, value, info)


AnyLearnerConfig: TypeAlias = Annotated[
    SerializeAsAny[LearnerConfig], BeforeValidator(parse_learner)
]
"""The settings of whichever learner is named."""
