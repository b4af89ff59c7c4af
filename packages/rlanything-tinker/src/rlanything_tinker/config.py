"""Settings of the Tinker learner, and what it refuses."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, ClassVar, NoReturn

from pydantic import Field, ValidationInfo, model_validator
from pydantic_core import PydanticCustomError

from rlanything.config.learners import LearnerConfig
from rlanything.config.roles import LoraSettings, PolicyConfig, TrainedRoleConfig, role_key
from rlanything.config.trust import check_key
from rlanything.engines.base import ModelError

if TYPE_CHECKING:
    from rlanything.cluster.models import RoleSource
    from rlanything_tinker.model import TinkerModel

URL = "https://tinker.thinkingmachines.dev/services/tinker-prod"
"""Address of Thinking Machines' own service."""
OF_THE_SERVICE = ("dtype", "device", "packing", "max_pack_tokens", "gradient_checkpointing")
OF_THE_SERVICE += ("train_vision",)
"""Keys of a role that the service decides."""


class TinkerConfig(LearnerConfig):
    """A service with the Tinker API: Thinking Machines', SkyRL's, verl's, or another."""

    continuous_batching: ClassVar[bool] = True
    name: str = "tinker"
    """The public SDK, package `tinker`; `model` is then the service's name of the base model."""
    url: str = Field(URL, pattern=r"^https?://[^/?#@\s]+[^?#@\s]*$")
    """Base URL of the API, without a key."""
    key_variable: str = Field("TINKER_API_KEY", pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    """Environment variable with the API key. A recipe alone sends no key to another address than
    Thinking Machines': its user must name the variable too, as an override or in
    `RLANYTHING_KEYS`."""

    @model_validator(mode="after")
    def _key_may_be_sent(self, info: ValidationInfo) -> TinkerConfig:
        check_key("key_variable", {"key_variable": self.key_variable, "url": self.url}, info)
        return self

    def check(self, role: TrainedRoleConfig) -> None:
        """Raises pydantic's errors for a setting that the API has no counterpart of."""
        fields = type(role).model_fields
        for key in OF_THE_SERVICE:
            if getattr(role, key) != fields[key].get_default(call_default_factory=True):
                self.refuse(key, "the service decides this: leave it out")
        if role.model == "nano":
            self.refuse("model", "say here what the service calls the base model")
        if role.lora is None:
            self.refuse("lora", "the API trains adapters only: set it, as lora: {rank: 32}")
        default = LoraSettings()
        if role.lora.alpha != default.alpha or role.lora.targets != default.targets:
            self.refuse("lora", "the API takes a rank only: leave out alpha and targets")
        if role.temperature != 1:
            self.refuse("temperature", "the API trains on log-probs at temperature 1: set it to 1")
        if role.reference_kl_weight:
            self.refuse("reference_kl_weight", "this learner has no reference model: leave it out")
        if isinstance(role, PolicyConfig) and role.decoding == "choices":
            self.refuse("decoding", "the API samples without restrictions: set it to free")

    def refuse(self, key: str, why: str) -> NoReturn:
        """Raises pydantic's error for a key of the role."""
        raise PydanticCustomError(
            "learner", "with learner {name}, {why}", {"key": key, "name": self.name, "why": why}
        )

    def load(self, source: RoleSource) -> TinkerModel:
        """Returns a role's model at the service. Raises `ModelError` or `ServiceError`."""
        if importlib.util.find_spec("tinker") is None:
            raise ModelError(
                f"{role_key(source.name)}.learner: the SDK is not installed; "
                "pip install 'rlanything-tinker[tinker]'"
            )
        from rlanything_tinker.model import load_model

        return load_model(self.url, self.key_variable, source)
