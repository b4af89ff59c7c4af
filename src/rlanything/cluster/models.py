"""Loads the models of a recipe's roles into this process: network, engine and learner."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch
import torch.utils.deterministic
from torch import distributed

from rlanything.config.engines import OnStage, unseen
from rlanything.config.roles import RoleConfig, TrainedRoleConfig
from rlanything.engines import shipped
from rlanything.engines.base import Engine, ModelError
from rlanything.engines.hf.loading import is_adapters
from rlanything.engines.hf.lora import add_adapters
from rlanything.engines.hf.model import LanguageModel, full_tensor, load_model
from rlanything.learning.base import Statistics
from rlanything.learning.learner import Learner
from rlanything.learning.reference import ReferenceModel
from rlanything.learning.sharding import SINGLE, SeatGroup
from rlanything.learning.shares import Minibatch
from rlanything.openmp import cores, warn_of_spinning

OPTIMIZER = "optimizer"
"""Name of the learner-state folder inside its model's folder."""


@dataclass(frozen=True, slots=True)
class RoleSource:
    """Everything needed to load a role's model. It can be pickled."""

    name: str
    """Name of the role: `policy`, `judge`, ..."""
    role: RoleConfig
    checkpoint: Path | None = None
    """Folder with the weights to continue from; None: the recipe's model."""
    seed: int = 0
    """Seed of new adapters."""
    images: tuple[Path, ...] = ()
    """Folders with the images that it may be shown."""


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model in this process, with the engine that generates with it."""

    model: LanguageModel
    engine: Engine


@dataclass(frozen=True, slots=True)
class TrainedModel(ServedModel):
    """A model that learns. With several seats, each has a full copy for its engine and a shard for
    its learner, and all call its methods together; with one seat they are the same model."""

    learning: LanguageModel
    """The model whose weights the learner updates."""
    outline: LanguageModel
    """Its outline, with which another thread writes its weights."""
    learner: Learner
    group: SeatGroup
    offload: bool
    """Whether the learner's state moves to host memory while the engine generates."""

    def learn(
        self, minibatches: Sequence[Minibatch], on_samples: Callable[[int], None]
    ) -> Statistics:
        """Trains on this seat's passes, then copies the new weights to the engine's model."""
        with self._onloaded():
            statistics = self.learner.learn(minibatches, on_samples)
            self._hand_over()
        return statistics

    def snapshot(self, folder: Path) -> Callable[[], None]:
        """Returns a function that writes the model in Hugging Face format into an existing folder,
        and the learner's state next to it, as they are now. Another thread may call it."""
        if not folder.is_dir():
            raise ModelError(
                f"{folder} is not there on {socket.gethostname()}: the run directory must be on a "
                "file system that all machines see"
            )
        first = self.group.rank == 0
        weights = self.learning.snapshot(keeps=first)
        write_state = self.learner.snapshot(folder / OPTIMIZER)

        def write() -> None:
            if first:
                self.outline.save(folder, weights)
            write_state()

        return write

    def load_state(self, folder: Path) -> None:
        """Reads the learners' state from the folder of their model. Raises `ModelError`."""
        with self._onloaded():
            self.learner.load(folder / OPTIMIZER)

    @contextmanager
    def _onloaded(self) -> Iterator[None]:
        """The learner's state is on its device meanwhile."""
        if self.offload:
            self.learner.onload()
        yield
        if self.offload:
            self.learner.offload()

    @torch.no_grad()
    def _hand_over(self) -> None:
        """Copies trained weights into the engine's model, tensor by tensor."""
        copies = dict(self.model.network.named_parameters())
        for name, weights in self.learning.network.named_parameters():
            if weights.requires_grad:
                copies[name].copy_(full_tensor(weights))


def prepare_torch(threads: int) -> None:
    """Sets the CPU threads of the language models (0: one per core) and deterministic algorithms.

    Without the latter, threads would add up gradients of shared tokens in varying order."""
    threads = threads or cores()
    warn_of_spinning(threads)
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(True, warn_only=True)
    # cuDNN plans attention again for every length, and with a cache each token has a new one.
    torch.backends.cuda.enable_cudnn_sdp(False)
    # Filling fresh memory would cost time without a benefit here.
    setattr(torch.utils.deterministic, "fill_uninitialized_memory", False)  # noqa: B010


def load_trained(
    source: RoleSource,
    group: SeatGroup = SINGLE,
    offload: bool = False,
    on_stage: OnStage = unseen,
) -> TrainedModel:
    """Loads a model that learns, with its engine and its learner. All seats of `group` call it
    together: the first reads the model and broadcasts it.

    Raises `ModelError` for a model that does not fit its role."""
    assert isinstance(source.role, TrainedRoleConfig)
    role = source.role
    if group.mesh is not None:
        # Into host memory: a GPU only has to hold its shards and the engine's copy.
        role = role.model_copy(update={"device": "cpu"})
    shown = _reading_stages(source, on_stage)
    learning = _from_first(group, lambda: _learning_model(source, role))
    reference = _reference(group, role, source, learning)
    if group.mesh is not None:
        shown(f"{source.name}: sharding the model, and copying it for each seat's engine", 0.0)
    # The engine needs a full copy; the learner is about to shard its own.
    model = learning if group.mesh is None else _copy(learning, group)
    outline = learning.outline()  # not later: shards cannot be copied
    # Build the learner first: rejecting a model is cheaper than starting an engine.
    learner = Learner(learning, role, reference, group)
    if offload:
        learner.offload()
    engine = build_engine(model, source.role, source.name, on_stage)
    return TrainedModel(model, engine, learning, outline, learner, group, offload)


def load_served(source: RoleSource, on_stage: OnStage = unseen) -> ServedModel:
    """Loads a model that only generates, with its engine. Raises `ModelError`."""
    _reading_stages(source, on_stage)
    model = load_role(source.role, source.images)
    return ServedModel(model, build_engine(model, source.role, source.name, on_stage))


def _reading_stages(source: RoleSource, on_stage: OnStage) -> OnStage:
    """Shows that a model is about to be read, and returns what shows its next stages. Models that
    came with the library show none: they are tiny."""
    if source.role.model in shipped.NAMES:
        return unseen
    model = str(source.checkpoint or source.role.model)
    fetched = "" if Path(model).exists() else " (what is not in the cache is downloaded first)"
    on_stage(f"{source.name}: reading {model}{fetched}", 0.0)
    return on_stage


def load_role(role: RoleConfig, images: Sequence[Path] = ()) -> LanguageModel:
    """Loads a role's model, which finds images in these folders. A role that can learn gets its
    training dtype even if it does not learn (in `eval`, or with a learning rate of 0), so that it
    acts as in training. Raises `ModelError`."""
    model = shipped.resolve(role.model, role.shipped_role)
    if not isinstance(role, TrainedRoleConfig):
        return load_model(model, role.dtype, role.device, trains=False, images=images)
    return load_model(model, role.dtype, role.device, images=images, train_vision=role.train_vision)


def build_engine(
    model: LanguageModel, role: RoleConfig, name: str, on_stage: OnStage = unseen
) -> Engine:
    """Builds the engine that generates with a model, with this process's number of threads."""
    setting = role.engine_setting(name, torch.get_num_threads())
    return role.engine.build(model, replace(setting, on_stage=on_stage))


def _learning_model(source: RoleSource, role: TrainedRoleConfig) -> LanguageModel:
    """Loads a learner's first model: the recipe's, or a checkpoint's."""
    if source.checkpoint is not None:
        role = role.model_copy(update={"model": str(source.checkpoint)})
    model = load_role(role, source.images)
    if role.lora is not None and source.checkpoint is None:  # a checkpoint has its adapters
        add_adapters(model, role.lora, source.seed)
    return model


def _reference(
    group: SeatGroup, role: TrainedRoleConfig, given: RoleSource, model: LanguageModel
) -> ReferenceModel | None:
    """Returns the reference model of a role; None: its loss has no KL term to one. It is a copy of
    the recipe's model, or the same model without adapters if only new adapters learn."""
    if not role.reference_kl_weight:
        return None
    source, images = shipped.resolve(role.model, role.shipped_role), given.images
    if role.lora is not None and not is_adapters(source):
        return ReferenceModel(model, adapters_off=True)

    def load() -> LanguageModel:
        return load_model(source, role.dtype, role.device, trains=False, images=images)

    return ReferenceModel(_from_first(group, load))


def _from_first(group: SeatGroup, load: Callable[[], LanguageModel]) -> LanguageModel:
    """Returns the model that the first seat of a group loads, without weights on the other seats.
    If loading fails, all seats raise its error."""
    if group.mesh is None:
        return load()
    message: list[LanguageModel | Exception | None] = [None]
    model: LanguageModel | None = None
    if group.rank == 0:
        try:
            model = load()
            message = [model.outline()]
        except Exception as error:  # the other seats wait for a message
            message = [error]
    distributed.broadcast_object_list(message, 0)
    [given] = message
    if isinstance(given, Exception):
        raise given
    assert given is not None
    return model or given


def _copy(model: LanguageModel, group: SeatGroup) -> LanguageModel:
    """Returns a copy of the first seat's model for an engine. On a GPU its weights have the compute
    dtype, to save memory."""
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
