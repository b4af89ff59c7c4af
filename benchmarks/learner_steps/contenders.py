"""The contenders: ways to make one optimizer step on a minibatch, each with its own model."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from learner_steps.trl_step import TRLStep, clip_range
from rlanything.algorithm.losses import LossConfig
from rlanything.config.roles import TrainedRoleConfig
from rlanything.engines.hf.model import LanguageModel
from rlanything.learning.learner import Learner
from rlanything.learning.padding import pad
from rlanything.records import Sample

Step = Callable[[Sequence[Sample]], object]
ROW_TOKENS = (1024, 2048, 4096)
"""Padded tokens computed together, of which the fastest counts. Fewer or more were slower."""


def comparable(settings: TrainedRoleConfig) -> TrainedRoleConfig:
    """Returns settings under which steps can be compared: a learning rate of 0, so that every step
    starts from the same weights; the clipped loss, which is TRL's; no KL, since TRL's is another;
    no gradient clipping, which would hide a factor between gradients."""
    return settings.model_copy(
        update={
            "learning_rate": 0.0,
            "loss": LossConfig(name="clipped", options={"clip_range": clip_range(settings)}),
            "kl_weight": 0.0,
            "max_grad_norm": 1e9,
            "minibatches": 1,
        }
    )


class Contender:
    """One way to make a step, with a model of its own."""

    def __init__(self, network: nn.Module, step: Step) -> None:
        self._network = network
        self.step = step

    def gradient(self) -> Tensor:
        """Returns the gradient [weights] that the last step left."""
        return torch.cat(
            [w.grad.flatten() for w in self._network.parameters() if w.grad is not None]
        )


def learner_contender(
    model: LanguageModel,
    settings: TrainedRoleConfig,
    packing: Literal["shared", "padded"],
    max_tokens: int,
) -> Contender:
    """Returns this library's learner, with shared beginnings or with separate sequences."""
    own = LanguageModel(copy.deepcopy(model.network), model.tokenizer, model.autocast)
    chosen = comparable(settings).model_copy(
        update={"packing": packing, "max_pack_tokens": max_tokens}
    )
    learner = Learner(own, chosen)
    return Contender(own.network, lambda samples: learner.update([("", s) for s in samples], 0))


def trl_contender(model: LanguageModel, settings: TrainedRoleConfig, max_tokens: int) -> Contender:
    """Returns TRL's GRPO step on rows of similar length, which its own loader would not arrange."""
    stepper = TRLStep(model, comparable(settings))
    return Contender(
        stepper.network,
        lambda samples: stepper.update([rows.samples for rows in pad(samples, max_tokens)]),
    )
