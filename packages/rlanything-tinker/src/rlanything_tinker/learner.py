"""The learner: our objective on the service's log-probs, its gradient and its AdamW."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence

import tinker
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from rlanything.config.roles import TrainedRoleConfig
from rlanything.engines.base import DivergedError
from rlanything.learning.base import Statistics
from rlanything.learning.objective import Objective
from rlanything.learning.shares import Pass, arrange
from rlanything.learning.statistics import Totals
from rlanything.learning.trained_tokens import TrainedTokens, trained_tokens
from rlanything.records import Sample
from rlanything_tinker.service import MOST_SECONDS, ServiceError, asking
from rlanything_tinker.weights import ServedWeights

BETAS, EPSILON = (0.9, 0.999), 1e-8
"""AdamW's other settings, as in torch and so in the learner of this process."""
_CPU = torch.device("cpu")


class TinkerLearner:
    """Trains a role's adapters at a service; the same minibatches, objective and optimizer as
    `learning.learner.Learner`."""

    def __init__(self, weights: ServedWeights, settings: TrainedRoleConfig) -> None:
        self._weights = weights
        # A minibatch is one batch of rows: the service divides it further.
        self._settings = settings.model_copy(
            update={"packing": "padded", "max_pack_tokens": sys.maxsize}
        )
        self._objective = Objective(settings)
        self.skipped_in_a_row = 0
        """Number of consecutive skipped updates."""

    def update(
        self,
        samples: Sequence[tuple[str, Sample]],
        seed: int,
        on_samples: Callable[[int], None] | None = None,
    ) -> Statistics:
        """Takes an optimizer step per minibatch and epoch on (task id, sample) pairs, and returns
        statistics of the update. The entropy is None, because the service gives log-probs of
        sampled tokens only; so is the gradient's norm if the service does not report it.

        Raises `ServiceError`; `DivergedError` after `max_skipped_updates` consecutive losses that
        are not finite, or once log-probs or the gradient's norm are not."""
        totals, norms = Totals(), list[float | None]()
        work = [minibatch[0] for minibatch in arrange(samples, self._settings, seed)]
        before = [self._before(each, totals) for each in work]
        for one, old in list(zip(work, before, strict=True)) * self._settings.epochs:
            if self._accumulate(one, old, totals):
                norms.append(self._step(totals))
                self.skipped_in_a_row = 0
            else:
                self._skip(totals)
            if on_samples is not None:
                on_samples(len(one.batch.samples))
        known = [norm for norm in norms if norm is not None]
        norm = sum(known) / len(known) if known and len(known) == len(norms) else None
        unknown = {"entropy": None, "computed_tokens": None, "grad_norm": norm}
        return {**totals.statistics(), **unknown}

    def _before(self, work: Pass, totals: Totals) -> Tensor | None:
        """Returns the log-probs [tokens] before the update; None if ratios compare with the
        sampler's."""
        if self._settings.old_logprobs == "sampled":
            return None
        tokens = trained_tokens(work.batch, 1, _CPU)
        with asking(self._weights.role, "computing log-probs"):
            asked = self._weights.client.forward(_data(work), "cross_entropy")
            output = asked.result(MOST_SECONDS)
            rows = [torch.tensor(each["logprobs"].data) for each in output.loss_fn_outputs]
            old = _chosen(rows, tokens)
        totals.mismatch.add(old, tokens.old_logprobs)
        return old

    def _accumulate(self, work: Pass, before: Tensor | None, totals: Totals) -> bool:
        """Has the service accumulate the gradient of a minibatch's mean loss. Returns False, and
        leaves a gradient of 0, if the loss is not finite."""
        batch = work.batch
        tokens = trained_tokens(batch, work.mean_over, _CPU)
        role, finite = self._weights.role, False
        failure: Exception | None = None

        def loss_of(
            _data: Sequence[tinker.Datum], rows: list[Tensor]
        ) -> tuple[Tensor, dict[str, float]]:
            nonlocal finite, failure
            try:
                new = _chosen(rows, tokens)
                if not new.isfinite().all():
                    # Even a loss of 0 would have a gradient that is not finite.
                    raise DivergedError(f"model {role!r}: the service's log-probs are not finite")
                mismatch = None if totals.norms else totals.mismatch
                loss, outputs = self._objective(
                    tokens, len(batch.samples), new, before, mismatch=mismatch
                )
                finite = math.isfinite(loss.item())
                with torch.no_grad():
                    totals.add(batch, loss, outputs, entropy=new.new_zeros(()))
            except Exception as error:
                failure = error
                raise
            return (loss if finite else 0 * new.sum()), {}

        try:
            with asking(role, "computing gradients"):
                asked = self._weights.client.forward_backward_custom(_data(work), loss_of)
                asked.result(MOST_SECONDS)
        except ServiceError:
            if failure is not None:  # of the objective, not the service
                raise failure from None
            raise
        return finite

    def _step(self, totals: Totals) -> float | None:
        """Takes an optimizer step. Returns the gradient's norm before clipping; None: unknown."""
        settings = self._settings
        parameters = tinker.AdamParams(
            learning_rate=settings.learning_rate,
            beta1=BETAS[0],
            beta2=BETAS[1],
            eps=EPSILON,
            weight_decay=settings.weight_decay,
            grad_clip_norm=settings.max_grad_norm,
        )
        with asking(self._weights.role, "taking an optimizer step"):
            step = self._weights.client.optim_step(parameters).result(MOST_SECONDS)
        self._weights.updates += 1
        norm = _gradient_norm(step.metrics or {})
        if norm is not None and not math.isfinite(norm):
            raise DivergedError(
                f"model {self._weights.role!r}: the norm of the gradient was not finite, and the "
                "service has taken the step"
            )
        totals.end_of_update(norm or 0.0)
        return norm

    def _skip(self, totals: Totals) -> None:
        totals.skip_update()
        self.skipped_in_a_row += 1
        if self.skipped_in_a_row >= self._settings.max_skipped_updates:
            raise DivergedError(
                f"model {self._weights.role!r}: the loss of {self.skipped_in_a_row} updates in a "
                "row was not finite; its weights are those of the last good update"
            )


def _data(work: Pass) -> list[tinker.Datum]:
    """Returns a batch's samples as the API takes them: each token predicts the next."""
    data: list[tinker.Datum] = []
    for sample in work.batch.samples:
        tokens = sample.completion.tokens
        targets = tinker.TensorData(list(tokens[1:]), "int64", [len(tokens) - 1])
        # Weights of a loss that is not ours: `forward` asks for them.
        weights = tinker.TensorData([0.0] * (len(tokens) - 1), "float32", [len(tokens) - 1])
        prompt = tinker.ModelInput.from_ints(list(tokens[:-1]))
        data.append(tinker.Datum(prompt, {"target_tokens": targets, "weights": weights}))
    return data


def _chosen(rows: list[Tensor], tokens: TrainedTokens) -> Tensor:
    """Returns the log-probs of the trained tokens [tokens] from those of all predicted tokens
    [samples][prompt + response - 1]."""
    # As wide as the batch's rows, whose last token predicts nothing.
    table = torch.nn.functional.pad(pad_sequence(rows, batch_first=True), (0, 1))
    return table.flatten()[tokens.nodes[tokens.rows]]


def _gradient_norm(metrics: Mapping[str, float]) -> float | None:
    """Returns the gradient's norm among a step's metrics, whose names no standard sets; None: it is
    not there."""
    for name, value in metrics.items():
        if name.partition(":")[0].endswith("grad_norm"):
            return value
    return None
