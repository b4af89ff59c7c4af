"""Loads the models of a recipe's roles into this process: network, engine and learner."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
import torch.utils.deterministic
from torch import Tensor, distributed
from transformers.utils.peft_utils import find_adapter_config_file

from rlanything.algorithm.losses.base import Loss
from rlanything.config.roles import RoleConfig, TrainedRoleConfig
from rlanything.engines import shipped
from rlanything.engines.base import Engine, ModelError
from rlanything.engines.hf.lora import add_adapters
from rlanything.engines.hf.model import LanguageModel, load_model
from rlanything.engines.hf.shards import whole
from rlanything.learning.learner import Learner
from rlanything.learning.reference import ReferenceModel
from rlanything.learning.sharding import SeatGroup
from rlanything.learning.shares import Minibatch
from rlanything.openmp import warn_of_spinning

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
    loss: Loss | None = None
    """A loss that is an object; None: the one that the role names."""


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model in this process, with the engine that generates with it."""

    model: LanguageModel
    engine: Engine


@dataclass(frozen=True, slots=True)
class TrainedModel(ServedModel):
    """A model that learns, with its learner."""

    learner: Learner

    def save(self, folder: Path) -> None:
        """Writes the model in Hugging Face format, and the learner's state beside it."""
        self.model.save(folder)
        self.learner.save(folder / OPTIMIZER)

    def load_state(self, folder: Path) -> None:
        """Reads the learner's state from the folder of its model. Raises `ModelError`."""
        self.learner.load(folder / OPTIMIZER)


@dataclass(frozen=True, slots=True)
class SharedModel(ServedModel):
    """A model that learns on several seats, as one of them has it: whole for its engine, a shard
    for its learner. All seats enter its methods together."""

    learning: LanguageModel
    """The model whose weights the learner moves, of which this seat has a shard."""
    learner: Learner
    group: SeatGroup
    offload: bool
    """Whether the learner's memory is the host's while the engine generates."""

    def learn(
        self, minibatches: Sequence[Minibatch], on_samples: Callable[[int], None]
    ) -> dict[str, float]:
        """Trains on this seat's passes, and hands the engine's model the new weights."""
        if self.offload:
            self.learner.wake()
        statistics = self.learner.learn(minibatches, on_samples)
        self._hand_over()
        if self.offload:
            self.learner.rest()
        return statistics

    def save(self, folder: Path) -> None:
        """Writes the model in Hugging Face format, and the learners' state beside it."""
        self.learning.save(folder, writes=self.group.rank == 0)
        # All seats write into its folder, which the first has made by then.
        self.group.total(0.0)
        if not folder.is_dir():
            raise ModelError(
                f"{folder} is not there on {socket.gethostname()}: the run directory must be on a "
                "file system that all machines see"
            )
        self.learner.save(folder / OPTIMIZER)

    def load_state(self, folder: Path) -> None:
        """Reads the learners' state from the folder of their model. Raises `ModelError`."""
        self.learner.load(folder / OPTIMIZER)

    @torch.no_grad()
    def _hand_over(self) -> None:
        """Copies what trains into the engine's model, tensor by tensor."""
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


def load_trained(source: RoleSource) -> TrainedModel:
    """Loads a model that learns in this process alone, with its engine and its learner.

    Raises `ModelError` for a model that cannot be used as its role asks."""
    model, role = _learning_model(source), _trained_role(source)
    # It may refuse the model, which is sooner said than an engine started.
    learner = Learner(model, role, _reference(role, source.name, model), source.loss)
    return TrainedModel(model, build_engine(model, role, source.name, source.threads), learner)


def load_shared(source: RoleSource, group: SeatGroup, offload: bool) -> SharedModel:
    """Loads a model that learns on all seats of a group, which call it together: the first reads
    it, and the others are given what they need. Raises as `load_trained`."""
    role, name = _trained_role(source), source.name
    # Into the host's memory: no GPU need hold more than its shards, and what its engine needs.
    hosted = role.model_copy(update={"device": "cpu"})
    learning = _from_first(group, lambda: _learning_model(replace(source, role=hosted)))
    reference = None
    if role.reference_kl_weight:
        reference = ReferenceModel(learning, adapters_off=True)
        if not _began_as_nothing(role, name):
            reference = ReferenceModel(_from_first(group, lambda: _first_model(hosted, name)))
    model = _copy(learning, group)
    # From here on it is divided among the seats.
    learner = Learner(learning, role, reference, source.loss, group)
    engine = build_engine(model, role, name, source.threads)
    return SharedModel(model, engine, learning, learner, group, offload)


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


def _trained_role(source: RoleSource) -> TrainedRoleConfig:
    assert isinstance(source.role, TrainedRoleConfig)
    return source.role


def _learning_model(source: RoleSource) -> LanguageModel:
    """Loads what a role's learner begins with: the recipe's model, or that of a checkpoint."""
    role = _trained_role(source)
    if source.checkpoint is not None:
        role = role.model_copy(update={"model": str(source.checkpoint)})
    model = load_role(role, source.name)
    if role.lora is not None:
        add_adapters(model, role.lora, source.seed)
    return model


def _reference(role: TrainedRoleConfig, name: str, model: LanguageModel) -> ReferenceModel | None:
    """Returns the recipe's own model of a role that is held to it, None for any other role. It is a
    copy, unless all that learns are adapters which began as nothing."""
    if not role.reference_kl_weight:
        return None
    if _began_as_nothing(role, name):
        return ReferenceModel(model, adapters_off=True)
    return ReferenceModel(_first_model(role, name))


def _began_as_nothing(role: TrainedRoleConfig, name: str) -> bool:
    """Whether all that learns are adapters that were not there before the run."""
    source = shipped.resolve(role.model, name)
    return role.lora is not None and find_adapter_config_file(source) is None


def _first_model(role: TrainedRoleConfig, name: str) -> LanguageModel:
    return load_model(shipped.resolve(role.model, name), role.dtype, role.device, trains=False)


def _from_first(group: SeatGroup, load: Callable[[], LanguageModel]) -> LanguageModel:
    """Returns the model that the first seat of a group loads; the others have it without weights.
    Raises at all of them what loading raises."""
    told: list[LanguageModel | Exception | None] = [None]
    model: LanguageModel | None = None
    if group.rank == 0:
        try:
            model = load()
            told = [model.outline()]
        except Exception as error:  # the others must not wait for what will not come
            told = [error]
    distributed.broadcast_object_list(told, 0)
    [given] = told
    if isinstance(given, Exception):
        raise given
    assert given is not None
    return model or given


def _copy(model: LanguageModel, group: SeatGroup) -> LanguageModel:
    """Returns a model with all weights of the first seat's, for an engine. On a GPU they are in the
    type that it computes in, for there is no room for more."""
    device = torch.device(group.device_type)
    narrow = None if device.type == "cpu" else model.autocast

    def empty(weights: Tensor) -> Tensor:
        dtype = narrow if narrow is not None and weights.is_floating_point() else weights.dtype
        return torch.empty_like(weights, device=device, dtype=dtype)

    copied = model.with_weights(empty)
    ours = (*model.network.parameters(), *model.network.buffers())
    theirs = (*copied.network.parameters(), *copied.network.buffers())
    with torch.no_grad():
        for original, weights in zip(ours, theirs, strict=True):
            if group.rank == 0:
                weights.copy_(original)
            distributed.broadcast(weights, 0)
            weights.requires_grad_(False)
    return copied
