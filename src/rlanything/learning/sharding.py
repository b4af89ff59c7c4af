"""Seats that hold a model together: each has a shard of every weight, and computes its own share
of an update (FSDP2)."""

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
    """The devices of all of them, of one dimension; None: there is one seat, and it keeps its
    model whole, without a process group."""

    @property
    def device_type(self) -> str:
        """The kind of device that seats compute on: `cpu` or `cuda`."""
        return "cpu" if self.mesh is None else self.mesh.device_type

    def shard(self, scorer: TokenScorer) -> TokenScorer:
        """Leaves this seat its shard of a scorer's weights, be they trained or frozen.

        Build optimizers afterwards: parameters are others then. All seats call it in the same
        order. One that has an outline only (`LanguageModel.outline`) is given its shard by seat 0.
        """
        if self.mesh is None:
            return scorer
        outlined = any(weights.is_meta for weights in scorer.parameters())
        given = self.total(float(outlined)) > 0
        # The first seat keeps all weights until the others have theirs.
        full: dict[str, Any] = scorer.network.state_dict() if given and not outlined else {}
        policy = MixedPrecisionPolicy()
        if self.mesh.device_type != "cpu" and scorer.model.autocast is not None:
            policy = MixedPrecisionPolicy(scorer.model.autocast, torch.float32)
        # A frozen tower stays whole: not every pass of every seat has an image to send through it.
        tower = tower_weights(scorer.network)
        layers = [
            module
            for module in scorer.modules()
            if isinstance(module, GradientCheckpointingLayer)
            and not {id(w) for w in tower.values()} & {id(w) for w in module.parameters()}
        ]
        # What is inside comes first, the root last. None stays whole after its forward pass: one
        # without a backward pass would leave it so, and the optimizer another's parameters.
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
                # The loss is a mean over all seats' samples already: gradients add up.
                module.set_gradient_divide_factor(1.0)
                module.set_force_sum_reduction_for_comms(True)
        if given:
            self._give(scorer, full, outlined)
        return scorer

    def gather_once(self, scorer: TokenScorer, last: bool) -> None:
        """Leaves weights and gradients whole between the passes of a minibatch, until its `last`:
        seats of processors have the memory, and talk by far more slowly than they compute."""
        if self.device_type == "cpu":
            for module in scorer.modules():
                if isinstance(module, FSDPModule):
                    module.set_requires_gradient_sync(last, recurse=False)
                    module.set_reshard_after_forward(last, recurse=False)
                    module.set_reshard_after_backward(last, recurse=False)

    def _give(self, scorer: TokenScorer, full: dict[str, Any], outlined: bool) -> None:
        """Sends every seat its shards of what seat 0 has in full."""
        assert self.mesh is not None
        if outlined:
            scorer.to_empty(device=torch.device(self.mesh.device_type))
        options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
        set_model_state_dict(scorer.network, full if self.rank == 0 else {}, options=options)
        # Angles of positions and the like are in no file, and none of the weights.
        for buffer in scorer.network.buffers():
            distributed.broadcast(buffer, 0, group=self.mesh.get_group())

    def gathered(self, values: Sequence[float]) -> Tensor:
        """Returns the numbers of all seats [seats, values], in float64 on the CPU; every seat calls
        it with equally many."""
        own = torch.tensor([list(values)], dtype=torch.float64)
        if self.mesh is None:
            return own
        own = own.to(self.mesh.device_type)
        everyone = [torch.empty_like(own) for _ in range(self.size)]
        distributed.all_gather(everyone, own, group=self.mesh.get_group())
        return torch.cat(everyone).cpu()

    def total(self, value: float) -> float:
        """Returns the sum of a number over all seats, which each of them calls for."""
        return value if self.mesh is None else float(self.gathered([value]).sum())


SINGLE = SeatGroup()


def seats_of_world(device_type: str) -> SeatGroup:
    """Returns the group of all processes that joined the default process group."""
    rank, size = distributed.get_rank(), distributed.get_world_size()
    return SeatGroup(rank, size, init_device_mesh(device_type, (size,)))


def move(
    modules: Sequence[nn.Module], optimizer: torch.optim.Optimizer, device: torch.device | str
) -> None:
    """Puts modules, and what an optimizer remembers of their weights, on a device."""
    for module in modules:
        module.to(device)
    for memory in optimizer.state.values():
        values: dict[str, Any] = memory
        # Counts of steps stay where they are.
        memory.update({name: value.to(device) for name, value in values.items() if value.dim()})
