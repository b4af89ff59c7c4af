"""A role's objective: the loss of trained tokens from their log-probs, wherever these come from."""

from __future__ import annotations

from torch import Tensor

from rlanything.algorithm.losses import LossInputs, LossOutputs
from rlanything.config.roles import TrainedRoleConfig
from rlanything.learning.statistics import Mismatch
from rlanything.learning.trained_tokens import TrainedTokens
from rlanything.plugins import PluginError


class Objective:
    """The loss of a role with its KL terms and weights. Raises `PluginError` for an unknown
    loss."""

    def __init__(self, settings: TrainedRoleConfig) -> None:
        self._settings = settings
        self._loss = settings.loss.function

    def __call__(
        self,
        tokens: TrainedTokens,
        sample_count: int,
        new: Tensor,
        before: Tensor | None = None,
        reference: Tensor | None = None,
        mismatch: Mismatch | None = None,
    ) -> tuple[Tensor, LossOutputs]:
        """Returns a batch's share of the minibatch's mean loss, a scalar, and its parts [tokens].

        `new`: log-probs [tokens] under the weights being trained; `before`: those before the
        update, None to compare with the sampler's; `reference`: those of the reference model;
        `sample_count`: samples in the batch; `mismatch`: statistics that get the difference between
        learner and sampler, None if their weights differ already."""
        sampled = tokens.old_logprobs.to(new)
        old, importance = sampled, 1.0
        if before is not None:
            old = before
            if self._settings.importance_cap is not None:
                importance = (old - sampled).exp().clamp(max=self._settings.importance_cap)
        elif mismatch is not None:
            mismatch.add(new.detach(), sampled)
        outputs = self._outputs(
            LossInputs(
                new_logprobs=new,
                old_logprobs=old,
                advantages=tokens.advantages.to(new),
                samples=tokens.samples,
                sample_count=sample_count,
                kl_weight=self._settings.kl_weight,
                reference_kl_weight=self._settings.reference_kl_weight,
                importance=importance,
                reference_logprobs=reference,
            )
        )
        return (outputs.loss * tokens.weights.to(new)).sum(), outputs

    def _outputs(self, inputs: LossInputs) -> LossOutputs:
        """Returns the loss outputs, per token: a mean over tokens would be weighed wrongly."""
        outputs, name = self._loss(inputs), self._settings.loss.name
        if not isinstance(outputs, LossOutputs):
            raise PluginError(f"loss {name} gave {type(outputs).__name__}: return a LossOutputs")
        if outputs.loss.shape != inputs.new_logprobs.shape:
            raise PluginError(
                f"loss {name}: its `loss` has the shape {list(outputs.loss.shape)} for "
                f"{len(inputs.new_logprobs)} tokens; return one number a token and leave the mean "
                "to the learner"
            )
        return outputs
