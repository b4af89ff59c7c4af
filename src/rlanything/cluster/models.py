"""Loads the models of a recipe's roles into this process: network, engine and learner."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import cloudpickle
import torch
import torch.utils.deterministic
from transformers.utils.peft_utils import find_adapter_config_file

from rlanything.algorithm.losses.base import Loss
from rlanything.config.roles import RoleConfig, TrainedRoleConfig
from rlanything.engines import shipped
from rlanything.engines.base import Engine
from rlanything.engines.hf.lora import add_adapters
from rlanything.engines.hf.model import LanguageModel, load_model
from rlanything.learning.learner import Learner
from rlanything.learning.reference import ReferenceModel
from rlanything.learning.sharding import ALONE, SeatGroup, whole
from rlanything.learning.shares import Share
from rlanything.openmp import warn_of_spinning
from rlanything.records import Sample

OPTIMIZER = "optimizer"
"""The folder of a learner's state, in that of its model."""


@dataclass(frozen=True, slots=True)
class RoleSource:
    """Where a role's model comes from, and how it is used. It can be pickled."""

    name: str
    """The role: `policy`, `judge`, ..."""
    role: RoleConfig
    checkpoint: Path | None = None
    """A folder with the weights that it continues with; None: the recipe's model."""
    threads: int = 0
    """CPU threads; 0: as many as there are cores."""
    seed: int = 0
    """Where new adapters begin."""
    pickled_loss: bytes | None = None
    """A loss that is an object; None: the one that the role names."""

    @property
    def loss(self) -> Loss | None:
        return None if self.pickled_loss is None else cloudpickle.loads(self.pickled_loss)


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model in this process, with the engine that generates with it."""

    model: LanguageModel
    engine: Engine


@dataclass(frozen=True, slots=True)
class TrainedModel(ServedModel):
    """A model that learns, with its learner. On several seats the engine's is a copy."""

    learner: Learner
    learning: LanguageModel
    """The model whose weights the learner moves, of which a seat has its shard."""
    group: SeatGroup

    def update(
        self,
        samples: Sequence[tuple[str, Sample]],
        seed: int,
        on_samples: Callable[[int], None] | None = None,
    ) -> dict[str, float]:
        """Trains on all samples; see `Learner.update`."""
        return self.learner.update(samples, seed, on_samples)

    def learn(self, share: Share, on_samples: Callable[[int], None]) -> dict[str, float]:
        """Trains on this seat's share, and hands the engine's model the new weights."""
        statistics = self.learner.learn(share, on_samples)
        self._hand_over()
        return statistics

    def save(self, folder: Path) -> None:
        """Writes the model in Hugging Face format, and the learner's state beside it."""
        self.learning.save(folder)
        self.learner.save(folder / OPTIMIZER)

    def load_state(self, folder: Path) -> None:
        """Reads the learner's state from the folder of its model. Raises `ModelError`."""
        self.learner.load(folder / OPTIMIZER)

    @torch.no_grad()
    def _hand_over(self) -> None:
        """Copies what trained into the engine's model, tensor by tensor, all seats together."""
        if self.model is self.learning:
            return
        copies = dict(self.model.network.named_parameters())
        for name, weights in self.learning.network.named_parameters():
            if weights.requires_grad:
                copies[name].copy_(whole(weights))


def prepare_torch(threads: int) -> None:
    """CPU threads of the language models (0: as many as there are cores), and one result per seed.

    Without the second, threads add the gradients of shared tokens in whatever order they arrive."""
    threads = threads or len(os.sched_getaffinity(0))
    warn_of_spinning(threads)
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(True, warn_only=True)
    # Filling fresh memory first would cost time and guard against nothing here.
    setattr(torch.utils.deterministic, "fill_uninitialized_memory", False)  # noqa: B010


def load_trained(source: RoleSource, group: SeatGroup = ALONE) -> TrainedModel:
    """Loads a model that learns, with its engine and its learner; all seats of a group together.

    Raises `ModelError` for a model that cannot be used as its role asks."""
    role = source.role
    assert isinstance(role, TrainedRoleConfig)
    found = role if source.checkpoint is None else _from(role, source.checkpoint)
    learning = load_role(found, source.name)
    if role.lora is not None:
        add_adapters(learning, role.lora, source.seed)
    # What generates needs every weight at every token; what learns is about to be divided.
    model = learning if group is ALONE else _copy(learning)
    # It may refuse the model, which is sooner said than an engine started.
    learner = Learner(learning, role, _reference(role, source.name, learning), source.loss, group)
    engine = build_engine(model, role, source.name, source.threads)
    return TrainedModel(model, engine, learner, learning, group)


def load_served(source: RoleSource) -> ServedModel:
    """Loads a model that generates and never learns, with its engine. Raises `ModelError`."""
    model = load_role(source.role, source.name)
    return ServedModel(model, build_engine(model, source.role, source.name, source.threads))


def load_role(role: RoleConfig, name: str) -> LanguageModel:
    """Loads a role's model. One that could learn has the weights it would learn with, also where it
    does not (in `eval`, or with a learning rate of 0): it acts as it does in training. Raises
    `ModelError`."""
    trains = isinstance(role, TrainedRoleConfig)
    return load_model(shipped.resolve(role.model, name), role.dtype, role.device, trains)


def build_engine(model: LanguageModel, role: RoleConfig, name: str, threads: int) -> Engine:
    """Builds the engine that generates with a model in this process."""
    return role.engine.build(model, role.engine_setting(name, threads))


def _from(role: TrainedRoleConfig, checkpoint: Path) -> TrainedRoleConfig:
    return role.model_copy(update={"model": str(checkpoint)})


def _copy(model: LanguageModel) -> LanguageModel:
    """Returns a model of equal weights that never trains; on a GPU they are in the type that it
    computes in, for there is no room for more."""
    copied = copy.deepcopy(model)
    for weights in copied.network.parameters():
        weights.requires_grad_(False)
        if model.device.type != "cpu" and model.autocast is not None:
            weights.data = weights.data.to(model.autocast)
    return copied


def _reference(role: TrainedRoleConfig, name: str, model: LanguageModel) -> ReferenceModel | None:
    """Returns the recipe's own model of a role that is held to it, None for any other role. It is a
    copy, unless all that learns are adapters which began as nothing."""
    if not role.reference_kl_weight:
        return None
    source = shipped.resolve(role.model, name)
    if role.lora is not None and find_adapter_config_file(source) is None:
        return ReferenceModel(model, adapters_off=True)
    return ReferenceModel(load_model(source, role.dtype, role.device, trains=False))
