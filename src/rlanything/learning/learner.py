"""The learner: trains a model on samples. Policy and judge use the same code."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from rlanything.config.roles import TrainedRoleConfig
from rlanything.engines.base import DivergedError, ModelError
from rlanything.engines.hf.damage import reading
from rlanything.engines.hf.model import LanguageModel, full_tensor
from rlanything.engines.hf.probing import SEE_TYPES, stretched_positions
from rlanything.learning.base import Statistics
from rlanything.learning.objective import Objective
from rlanything.learning.recomputing import recomputable_layers, recomputed
from rlanything.learning.reference import ReferenceModel
from rlanything.learning.saving import load_optimizer, snapshot_optimizer
from rlanything.learning.scorer import TokenScorer
from rlanything.learning.sharding import SINGLE, SeatGroup, move
from rlanything.learning.shares import Minibatch, Pass, arrange, share
from rlanything.learning.statistics import Totals
from rlanything.learning.trained_tokens import Batch, TrainedTokens, trained_tokens
from rlanything.records import Sample


class Learner:
    """AdamW on the mean of a loss over samples. Its state persists between iterations.

    If `group` has several seats, each has a learner with the same model and settings and its shard
    of the weights, and every call is made on all of them. Raises `ModelError` for a model that
    cannot be trained with these settings, `PluginError` for an unknown loss, ValueError if a
    required reference model is missing."""

    def __init__(
        self,
        model: LanguageModel,
        settings: TrainedRoleConfig,
        reference: ReferenceModel | None = None,
        group: SeatGroup = SINGLE,
    ) -> None:
        if settings.reference_kl_weight and reference is None:
            raise ValueError("reference_kl_weight needs a reference model: hand one to the learner")
        if (rope := stretched_positions(model.network)) is not None:
            raise ModelError(
                f"model {model.name!r} cannot train: its positions ({rope} RoPE) change with the "
                "length of a sequence, so a token is not trained as it was sampled. Choose a model "
                "with plain RoPE, or set rope_parameters in its config.json."
            )
        if settings.packing == "shared" and model.sharing_problem is not None:
            raise ModelError(
                f"model {model.name!r} cannot train with shared prefixes: {model.sharing_problem}. "
                "Set `packing: padded` in the sections of all roles that train it (slower, the "
                f"same gradients); {SEE_TYPES}"
            )
        self._model = model
        self._settings = settings
        self._group = group
        self._scorer = group.shard(TokenScorer(model, settings.temperature))
        self._reference = reference if settings.reference_kl_weight else None
        self._reference_scorer = self._scorer
        if self._reference is not None and not self._reference.adapters_off:
            scorer = TokenScorer(self._reference.model, settings.temperature)
            self._reference_scorer = group.shard(scorer)
        self._objective = Objective(settings)
        self._recomputed = recomputable_layers(model) if settings.gradient_checkpointing else []
        self._skipped_in_a_row = 0
        self._device = model.device
        named = model.network.named_parameters()
        self._weights = {name: weight for name, weight in named if weight.requires_grad}
        self._optimizer = torch.optim.AdamW(
            list(self._weights.values()),
            lr=settings.learning_rate,
            weight_decay=settings.weight_decay,
            # The unfused kernel needs one more number per weight while stepping; CPUs keep the
            # default.
            fused=self._device.type == "cuda",
        )

    def update(
        self,
        samples: Sequence[tuple[str, Sample]],
        seed: int,
        on_samples: Callable[[int], None] | None = None,
    ) -> Statistics:
        """Trains once on (task id, sample) pairs and returns statistics of the update.

        Every seat receives all samples and trains on its share. Raises ValueError like `arrange`,
        and everything that `learn` raises."""
        shares = share(arrange(samples, self._settings, seed), self._group.size)
        return self.learn(shares[self._group.rank], on_samples)

    def learn(
        self, minibatches: Sequence[Minibatch], on_samples: Callable[[int], None] | None = None
    ) -> Statistics:
        """Takes an optimizer step per minibatch and epoch, with this seat's passes. Returns the
        statistics of all seats. `on_samples` counts this seat's samples only, once per epoch.

        An update whose loss or gradient is not finite on any seat is skipped by all and counted.
        Raises `DivergedError` after `max_skipped_updates` of them in a row, with the weights of the
        last good update."""
        _trim_heap()
        totals = Totals()
        # Not in training mode: dropout would make the ratio to the sampler noise.
        self._model.network.eval()
        before = [[self._before(work, totals, on_samples) for work in part] for part in minibatches]
        for part, old in list(zip(minibatches, before, strict=True)) * self._settings.epochs:
            self._optimizer.zero_grad(set_to_none=True)
            for number, (work, old_logprobs) in enumerate(zip(part, old, strict=True), start=1):
                # Counted, because a padding pass may appear several times.
                self._group.gather_once(self._scorer, last=number == len(part))
                with recomputed(self._recomputed):
                    self._accumulate(work, old_logprobs, totals)
                if on_samples is not None and work.counts:
                    on_samples(len(work.batch.samples))
            norm = torch.nn.utils.clip_grad_norm_(
                self._model.network.parameters(), self._settings.max_grad_norm
            )
            norm = float(full_tensor(norm))
            totals.loss = self._group.total(totals.loss)
            if math.isfinite(totals.loss) and math.isfinite(norm):
                self._optimizer.step()
                self._skipped_in_a_row = 0
                totals.end_of_update(norm)
            else:
                self._skip(totals)
        totals.merge(self._group)
        _trim_heap()
        return totals.statistics()

    def gradient(self, samples: Sequence[Sample]) -> Tensor:
        """Returns the gradient [weights] of the mean loss over samples, the trained weights as one
        vector, and updates nothing. For a learner on one seat. Raises ValueError like `arrange`."""
        [passes] = arrange([("", sample) for sample in samples], self._settings, 0)
        self._model.network.eval()
        self._optimizer.zero_grad(set_to_none=True)
        for work in passes:
            before = self._before(work, Totals(), None)
            with recomputed(self._recomputed):
                self._accumulate(work, before, Totals())
        weights = self._weights.values()
        given = [torch.zeros_like(w) if w.grad is None else w.grad for w in weights]
        self._optimizer.zero_grad(set_to_none=True)
        return torch.cat([gradient.flatten() for gradient in given])

    def _skip(self, totals: Totals) -> None:
        totals.skip_update()
        self._skipped_in_a_row += 1
        if self._skipped_in_a_row >= self._settings.max_skipped_updates:
            self._optimizer.zero_grad(set_to_none=True)
            raise DivergedError(
                f"model {self._model.name!r}: the loss or gradient of {self._skipped_in_a_row} "
                "updates in a row was not finite; its weights are those of the last good update"
            )

    @torch.no_grad()
    def _before(
        self, work: Pass, totals: Totals, on_samples: Callable[[int], None] | None
    ) -> Tensor | None:
        """Returns the log-probs [tokens] that the learner computes before the update; None if
        ratios compare with the sampler's."""
        if self._settings.old_logprobs == "sampled":
            return None
        tokens = trained_tokens(work.batch, 1, self._model.device)
        old, _ = self._scorer(work.batch, tokens)
        if work.counts:
            totals.mismatch.add(old, tokens.old_logprobs)
        if on_samples is not None:
            on_samples(0)  # a long silence counts as a lost seat
        return old

    def _accumulate(self, work: Pass, before: Tensor | None, totals: Totals) -> None:
        """Adds the gradient of a batch's share of the minibatch mean."""
        batch, totals = work.batch, totals if work.counts else Totals()
        tokens = trained_tokens(batch, work.mean_over, self._model.device)
        reference = self._reference_logprobs(batch, tokens)
        new, entropy = self._scorer(batch, tokens)
        # Before the first step the learner has the weights that sampled.
        mismatch = None if totals.norms else totals.mismatch
        loss, outputs = self._objective(
            tokens, len(batch.samples), new, before, reference, mismatch
        )
        loss.backward()
        with torch.no_grad():
            totals.add(batch, loss, outputs, entropy)

    @torch.no_grad()
    def _reference_logprobs(self, batch: Batch, tokens: TrainedTokens) -> Tensor | None:
        """Returns the reference model's log-probs [tokens]; None without one.

        Call it before the forward pass that needs a gradient: adapters may be off during the
        call."""
        if self._reference is None:
            return None
        with self._reference.reference():
            logprobs, _ = self._reference_scorer(batch, tokens)
        return logprobs

    def offload(self) -> None:
        """Frees device memory for generation: moves the optimizer state and, if this learner's
        shards are not shared, the weights to the host."""
        self._optimizer.zero_grad(set_to_none=True)
        self._move("cpu")

    def onload(self) -> None:
        """Moves back what `offload` moved; call it before any other use of the learner."""
        self._move(self._device)

    def _move(self, device: torch.device | str) -> None:
        own = [] if self._group.mesh is None else [self._scorer, self._reference_scorer]
        move(own, self._optimizer, device)

    def snapshot(self, folder: Path) -> Callable[[], None]:
        """Returns a function that writes into a folder, as it is now, all state of the next update
        except the weights."""
        state = (self._weights, self._optimizer, self._skipped_in_a_row)
        return snapshot_optimizer(folder, *state, self._group, self._device)

    def load(self, folder: Path) -> None:
        """Continues from another learner's saved state, with any number of seats. Raises
        `ModelError`."""
        with reading(f"cannot go on from {folder}", "Take the folder from a copy of the run."):
            self._skipped_in_a_row = load_optimizer(
                folder, self._weights, self._optimizer, self._group
            )


def _trim_heap() -> None:
    """Returns freed memory that the C library keeps (glibc) to the system: updates can hardly use
    the gaps that generation leaves, and vice versa."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
