"""Loads the models of a recipe's roles into this process: network, engine and learner."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.utils.deterministic
from torch import distributed

from rlanything.config.roles import RoleConfig, TrainedRoleConfig
from rlanything.engines import shipped
from rlanything.engines.base import Engine, ModelError
from rlanything.engines.hf.loading import is_adapters
from rlanything.engines.hf.lora import add_adapters
from rlanything.engines.hf.model import LanguageModel, load_model
from rlanything.engines.hf.shards import whole
from rlanything.learning.base import Statistics
from rlanything.learning.learner import Learner
from rlanything.learning.reference import ReferenceModel
from rlanything.learning.sharding import ALONE, SeatGroup
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
    seed: int = 0
    """Where new adapters begin."""
    images: tuple[Path, ...] = ()
    """Folders in which images lie that it may be shown."""


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model in this process, with the engine that generates with it."""

    model: LanguageModel
    engine: Engine


@dataclass(frozen=True, slots=True)
class TrainedModel(ServedModel):
    """A model that learns. On several seats each has it whole for its engine, and a shard of it for
    its learner, and all enter its methods together; elsewhere both are one."""

    learning: LanguageModel
    """The model whose weights the learner moves."""
    learner: Learner
    group: SeatGroup
    offload: bool
    """Whether the learner's memory is the host's while the engine generates."""

    def learn(
        self, minibatches: Sequence[Minibatch], on_samples: Callable[[int], None]
    ) -> Statistics:
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
        """Copies what trained into the engine's model, tensor by tensor."""
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
    # cuDNN plans attention anew for every length, and with a cache each token has another.
    torch.backends.cuda.enable_cudnn_sdp(False)
    # Filling fresh memory first would cost time and guard against nothing here.
    setattr(torch.utils.deterministic, "fill_uninitialized_memory", False)  # noqa: B010


def load_trained(
    source: RoleSource, group: SeatGroup = ALONE, offload: bool = False
) -> TrainedModel:
    """Loads a model that learns, with its engine and its learner. Where `group` has several seats
    they call it together: the first reads the model, and the others are given what they need.

    Raises `ModelError` for a model that cannot be used as its role asks."""
    role, name = _trained_role(source), source.name
    if group.mesh is not None:
        # Into the host's memory: no GPU need hold more than its shards, and what its engine needs.
        role = role.model_copy(update={"device": "cpu"})
    learning = _from_first(group, lambda: _learning_model(source, role))
    reference = _reference(group, role, source, learning)
    # What generates needs every weight at every token; what learns is about to be divided.
    model = learning if group.mesh is None else _copy(learning, group)
    # It may refuse the model, which is sooner said than an engine started.
    learner = Learner(learning, role, reference, group)
    engine = build_engine(model, source.role, name)
    return TrainedModel(model, engine, learning, learner, group, offload)


def load_served(source: RoleSource) -> ServedModel:
    """Loads a model that generates and never learns, with its engine. Raises `ModelError`."""
    model = load_role(source.role, source.images)
    return ServedModel(model, build_engine(model, source.role, source.name))


def load_role(role: RoleConfig, images: Sequence[Path] = ()) -> LanguageModel:
    """Loads a role's model, which looks for images in these folders. One that could learn has the
    weights it would learn with, also where it does not (in `eval`, or with a learning rate of 0):
    it acts as it does in training. Raises `ModelError`."""
    model = shipped.resolve(role.model, role.shipped_role)
    if not isinstance(role, TrainedRoleConfig):
        return load_model(model, role.dtype, role.device, trains=False, images=images)
    return load_model(model, role.dtype, role.device, images=images, train_vision=role.train_vision)


def build_engine(model: LanguageModel, role: RoleConfig, name: str) -> Engine:
    """Builds the engine that generates with a model in this process, on as many threads."""
    return role.engine.build(model, role.engine_setting(name, torch.get_num_threads()))


def _trained_role(source: RoleSource) -> TrainedRoleConfig:
    assert isinstance(source.role, TrainedRoleConfig)
    return source.role


def _learning_model(source: RoleSource, role: TrainedRoleConfig) -> LanguageModel:
    """Loads what a role's learner begins with: the recipe's model, or that of a checkpoint."""
    if source.checkpoint is not None:
        role = role.model_copy(update={"model": str(source.checkpoint)})
    model = load_role(role, source.images)
    if role.lora is not None and source.checkpoint is None:  # whose adapters are the run's own
        add_adapters(model, role.lora, source.seed)
    return model


def _reference(
    group: SeatGroup, role: TrainedRoleConfig, given: RoleSource, model: LanguageModel
) -> ReferenceModel | None:
    """Returns the recipe's own model of a role that is held to it, None for any other role. It is a
    copy, unless all that learns are adapters which began as nothing."""
    if not role.reference_kl_weight:
        return None
    source, images = shipped.resolve(role.model, role.shipped_role), given.images
    if role.lora is not None and not is_adapters(source):
        return ReferenceModel(model, adapters_off=True)

    def load() -> LanguageModel:
        return load_model(source, role.dtype, role.device, trains=False, images=images)

    return ReferenceModel(_from_first(group, load))


def _from_first(group: SeatGroup, load: Callable[[], LanguageModel]) -> LanguageModel:
    """Returns the model that the first seat of a group loads; the others have it without weights.
    Raises at all of them what loading raises."""
    if group.mesh is None:
        return load()
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
    narrow = None if group.device_type == "cpu" else model.autocast
    copied = model.empty(group.device_type, narrow)
    ours = (*model.network.parameters(), *model.network.buffers())
    theirs = (*copied.network.parameters(), *copied.network.buffers())
    with torch.no_grad():
        for original, weights in zip(ours, theirs, strict=True):
            if group.rank == 0:
                weights.copy_(original)
            distributed.broadcast(weights, 0)
            weights.requires_grad_(False)
    return copied
