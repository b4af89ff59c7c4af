"""FSDP sharding: each seat has a shard of every weight and computes its share of an update
(FSDP2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from transformers.modeling_layers import GradientCheckpointingLayer

from rlanything.engines.hf.vision_tower import tower_weights
from rlanything.learning.scorer import TokenScorer


@dataclass(frozen=True)
class SeatGroup:
    """The seats that update a model together, seen from one of them."""

    rank: int = 0
    size: int = 1
    mesh: DeviceMesh | None = None
    """One-dimensional device mesh of all seats; None: a single seat, which keeps its model whole
    and needs no process group."""

    @property
    def device_type(self) -> str:
        """Type of the seats' devices: `cpu` or `cuda`."""
        return "cpu" if self.mesh is None else self.mesh.device_type

    def shard(self, scorer: TokenScorer) -> TokenScorer:
        """Shards a scorer's weights, trained and frozen, and keeps this seat's shard.

        Build optimizers afterwards, since parameters are replaced. All seats call it in the same
        order. A seat with only an outline (`LanguageModel.outline`) receives its shard from seat 0.
        """
        if self.mesh is None:
            return scorer
        outlined = any(weights.is_meta for weights in scorer.parameters())
        given = self.total(float(outlined)) > 0
        # Seat 0 keeps all weights until the others have theirs.
        full: dict[str, Any] = scorer.network.state_dict() if given and not outlined else {}
        policy = MixedPrecisionPolicy()
        if self.mesh.device_type != "cpu" and scorer.model.autocast is not None:
            policy = MixedPrecisionPolicy(scorer.model.autocast, torch.float32)
        # A frozen tower stays whole: not every pass on every seat has an image for it.
        tower = tower_weights(scorer.network)
        layers = [
            module
            for module in scorer.modules()
            if isinstance(module, GradientCheckpointingLayer)
            and not {id(w) for w in tower.values()} & {id(w) for w in module.parameters()}
        ]
        # Inner modules first, the root last. All are resharded after forward: a pass without a
        # backward pass would otherwise leave them whole, and the optimizer with other parameters.
        for module in (*reversed(layers), scorer):
            fully_shard(
                module,
                mesh=self.mesh,
                mp_policy=policy,
                reshard_after_forward=True,
                ignored_params=set(tower.values()),
            )
        for module in scorer.modules():
            if isinstance(module, FSDPModule):
                # The loss is already a mean over all seats' samples, so gradients are summed.
                module.set_gradient_divide_factor(1.0)
                module.set_force_sum_reduction_for_comms(True)
        if given:
            self._give(scorer, full, outlined)
        return scorer

    def gather_once(self, scorer: TokenScorer, last: bool) -> None:
        """Keeps weights and gradients whole between the passes of a minibatch, until its `last`:
        CPU seats have the memory, and communicate much more slowly than they compute."""
        if self.device_type == "cpu":
            for module in scorer.modules():
                if isinstance(module, FSDPModule):
                    module.set_requires_gradient_sync(last, recurse=False)
                    module.set_reshard_after_forward(last, recurse=False)
                    module.set_reshard_after_backward(last, recurse=False)

    def _give(self, scorer: TokenScorer, full: dict[str, Any], outlined: bool) -> None:
        """Sends every seat its shards of seat 0's full weights."""
        assert self.mesh is not None
        if outlined:
            scorer.to_empty(device=torch.device(self.mesh.device_type))
        options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
        set_model_state_dict(scorer.network, full if self.rank == 0 else {}, options=options)
        # Non-persistent buffers, such as rotary frequencies, are in no file and are not sharded.
        for buffer in scorer.network.buffers():
            distributed.broadcast(buffer, 0, group=self.mesh.get_group())

    def gathered(self, values: Sequence[float]) -> Tensor:
        """Returns the numbers of all seats [seats, values], float64 on the CPU; every seat calls it
        with the same number of values."""
        own = torch.tensor([list(values)], dtype=torch.float64)
        if self.mesh is None:
            return own
        own = own.to(self.mesh.device_type)
        everyone = [torch.empty_like(own) for _ in range(self.size)]
        distributed.all_gather(everyone, own, group=self.mesh.get_group())
        return torch.cat(everyone).cpu()

    def total(self, value: float) -> float:
        """Returns the sum of a number over all seats; every seat calls it."""
        return value if self.mesh is None else float(self.gathered([value]).sum())


SINGLE = SeatGroup()


def seats_of_world(device_type: str) -> SeatGroup:
    """Returns the group of all processes that joined the default process group."""
    rank, size = distributed.get_rank(), distributed.get_world_size()
    return SeatGroup(rank, size, init_device_mesh(device_type, (size,)))


def move(
    modules: Sequence[nn.Module], optimizer: torch.optim.Optimizer, device: torch.device | str
) -> None:
    """Moves modules and the optimizer state of their weights to a device."""
    for module in modules:
        module.to(device)
    for memory in optimizer.state.values():
        values: dict[str, Any] = memory
        # Step counts stay where they are.
        memory.update({name: value.to(device) for name, value in values.items() if value.dim()})
