"""The learner: samples in, new weights out. Policy and judge learn with the same code."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from rlanything.algorithm.losses.base import Loss, LossInputs, LossOutputs, LossSettings
from rlanything.algorithm.losses.registry import load_loss
from rlanything.config.roles import TrainedRoleConfig
from rlanything.engines.base import ModelError
from rlanything.engines.hf.choices import restricted_logprobs
from rlanything.engines.hf.damage import reading
from rlanything.engines.hf.model import LanguageModel
from rlanything.engines.hf.sharing import stretched_positions
from rlanything.learning.packing import pack
from rlanything.learning.padding import pad
from rlanything.learning.recomputing import recomputable_layers, recomputed
from rlanything.learning.reference import ReferenceModel
from rlanything.learning.statistics import Totals
from rlanything.learning.trained_tokens import Batch, TrainedTokens, trained_tokens
from rlanything.records import Sample


class DivergedError(ValueError):
    """Several updates in a row were not finite; the message is one line with the remedy."""


class Learner:
    """AdamW on the mean of a loss over samples. Its state outlives the iteration.

    `loss` is a function, or a name as in a recipe; None takes the name in `settings`. Raises
    `ModelError` for a model that cannot be trained as the settings ask, `PluginError` for a loss
    that cannot be found, ValueError where a reference model is asked for and there is none."""

    def __init__(
        self,
        model: LanguageModel,
        settings: TrainedRoleConfig,
        reference: ReferenceModel | None = None,
        loss: str | Loss | None = None,
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
                "Set `packing: padded` in its section of the recipe, or choose a Qwen- or "
                "Llama-type model."
            )
        self._model = model
        self._settings = settings
        self._reference = reference if settings.reference_kl_weight else None
        self._loss = load_loss(settings.loss if loss is None else loss)
        self._loss_settings = LossSettings(
            clip_range=settings.clip_range,
            clip_range_high=settings.clip_range_high,
            kl_weight=settings.kl_weight,
            reference_kl_weight=settings.reference_kl_weight,
        )
        self._recomputed = recomputable_layers(model) if settings.gradient_checkpointing else []
        self._skipped_in_a_row = 0
        self._optimizer = torch.optim.AdamW(
            [p for p in model.network.parameters() if p.requires_grad],
            lr=settings.learning_rate,
            weight_decay=settings.weight_decay,
        )

    def update(
        self,
        samples: Sequence[tuple[str, Sample]],
        seed: int,
        on_samples: Callable[[int], None] | None = None,
    ) -> dict[str, float]:
        """Trains once on (task id, sample) pairs and returns statistics of the update.

        Minibatches are made of whole tasks, in seeded order. Samples of advantage 0 carry no signal
        and are refused: the caller decides what trains. So are samples without a prompt.

        An update whose loss or gradient is not finite is skipped and counted. Raises
        `DivergedError` after `max_skipped_updates` of them in a row, with the weights as the last
        good update left them."""
        if any(sample.advantage == 0 for _, sample in samples):
            raise ValueError("a sample of advantage 0 must not reach the learner")
        if not all(sample.completion.prompt_ids for _, sample in samples):
            raise ValueError("a sample without a prompt has nothing to predict its first token")
        totals = Totals()
        # Not in training mode: dropout would make the ratio to the sampler noise.
        self._model.network.eval()
        parts = minibatches(samples, self._settings.updates_per_iteration, seed)
        batches = [self._batches(part) for part in parts]
        before = [[self._before(batch, totals) for batch in minibatch] for minibatch in batches]
        for part, minibatch, old in zip(parts, batches, before, strict=True):
            self._optimizer.zero_grad(set_to_none=True)
            for batch, old_logprobs in zip(minibatch, old, strict=True):
                with recomputed(self._recomputed):
                    self._accumulate(batch, len(part), old_logprobs, totals)
                if on_samples is not None:
                    on_samples(len(batch.samples))
            norm = torch.nn.utils.clip_grad_norm_(
                self._model.network.parameters(), self._settings.max_grad_norm
            )
            if math.isfinite(totals.loss) and math.isfinite(norm):
                self._optimizer.step()
                self._skipped_in_a_row = 0
                totals.end_of_update(float(norm))
            else:
                self._skip(totals)
        return totals.statistics()

    def _skip(self, totals: Totals) -> None:
        totals.skip_update()
        self._skipped_in_a_row += 1
        if self._skipped_in_a_row >= self._settings.max_skipped_updates:
            self._optimizer.zero_grad(set_to_none=True)
            raise DivergedError(
                f"model {self._model.name!r}: the loss or gradient of {self._skipped_in_a_row} "
                "updates in a row was not finite; its weights are those of the last good update. "
                "Lower its learning_rate, or resume from an earlier checkpoint"
            )

    def _batches(self, minibatch: Sequence[Sample]) -> Sequence[Batch]:
        arrange = pack if self._settings.packing == "shared" else pad
        return arrange(minibatch, self._settings.max_pack_tokens)

    @torch.no_grad()
    def _before(self, batch: Batch, totals: Totals) -> Tensor | None:
        """Returns the log-probs [tokens] that the learner computes before the update; None where
        ratios compare with the sampler's."""
        if self._settings.old_logprobs == "sampled":
            return None
        tokens = trained_tokens(batch, 1, self._model.device)
        old = self._chosen(self._logprobs(self._model, batch, tokens), tokens)
        totals.mismatch.add(old, tokens.old_logprobs)
        return old

    def _accumulate(
        self, batch: Batch, mean_over: int, before: Tensor | None, totals: Totals
    ) -> None:
        """Adds the gradient of a batch's share of the minibatch mean."""
        tokens = trained_tokens(batch, mean_over, self._model.device)
        reference = self._reference_logprobs(batch, tokens)
        logprobs = self._logprobs(self._model, batch, tokens)
        new = self._chosen(logprobs, tokens)
        sampled = tokens.old_logprobs.to(new)
        old, importance = sampled, 1.0
        if before is not None:
            old = before
            if self._settings.importance_cap is not None:
                importance = (old - sampled).exp().clamp(max=self._settings.importance_cap)
        elif not totals.norms:
            # Before its first step the learner has the weights that sampled.
            totals.mismatch.add(new.detach(), sampled)
        outputs = self._outputs(
            LossInputs(
                new_logprobs=new,
                old_logprobs=old,
                advantages=tokens.advantages.to(new),
                samples=tokens.samples,
                sample_count=len(batch.samples),
                settings=self._loss_settings,
                importance=importance,
                reference_logprobs=reference,
            )
        )
        loss = (outputs.loss * tokens.weights.to(new)).sum()
        loss.backward()
        with torch.no_grad():
            finite = logprobs.masked_fill(logprobs.isneginf(), 0.0)
            entropy = -(finite.exp() * finite * ~logprobs.isneginf()).sum(-1)
            totals.add(batch, loss, outputs, entropy[tokens.rows])

    def _outputs(self, inputs: LossInputs) -> LossOutputs:
        """Returns what the loss gives. A mean in place of its tokens would be weighed wrongly."""
        outputs = self._loss(inputs)
        if outputs.loss.shape != inputs.new_logprobs.shape:
            raise ValueError(
                f"loss {getattr(self._loss, '__name__', self._loss)}: its `loss` has the shape "
                f"{list(outputs.loss.shape)} for {len(inputs.new_logprobs)} tokens; return one "
                "number a token and leave the mean to the learner"
            )
        return outputs

    @torch.no_grad()
    def _reference_logprobs(self, batch: Batch, tokens: TrainedTokens) -> Tensor | None:
        """Returns the reference model's log-probs [tokens]; None where there is none.

        Before the pass whose gradient is wanted: adapters may be off meanwhile."""
        if self._reference is None:
            return None
        with self._reference.reference() as model:
            return self._chosen(self._logprobs(model, batch, tokens), tokens)

    def _logprobs(self, model: LanguageModel, batch: Batch, tokens: TrainedTokens) -> Tensor:
        """Returns the distributions [rows, vocab] that were drawn from, under `model`."""
        hidden = batch.hidden_states(model)
        # Logits only where a token was chosen: memory follows responses, not prompts. (A look-up,
        # because its gradient is summed in a fixed order.)
        logits = model.logits(functional.embedding(tokens.nodes, hidden))
        return restricted_logprobs(logits, tokens.allowed, self._settings.temperature)

    @staticmethod
    def _chosen(logprobs: Tensor, tokens: TrainedTokens) -> Tensor:
        """Returns the log-probs [tokens] of what was drawn, from distributions [rows, vocab]."""
        picked = tokens.rows * logprobs.shape[1] + tokens.ids
        return logprobs.flatten().gather(0, picked)

    def state(self) -> dict[str, Any]:
        """Returns everything beside the weights that the next update depends on."""
        return {
            "optimizer": self._optimizer.state_dict(),
            "skipped_in_a_row": self._skipped_in_a_row,
        }

    def load_state(self, path: Path) -> None:
        """Continues from the saved `state` of another learner. Raises `ModelError`."""
        with reading(f"cannot go on from {path}", "Take the file from a copy of the run."):
            state = torch.load(path, weights_only=True)
            self._optimizer.load_state_dict(state["optimizer"])
            self._skipped_in_a_row = int(state["skipped_in_a_row"])


def minibatches(samples: Sequence[tuple[str, Sample]], count: int, seed: int) -> list[list[Sample]]:
    """Divides (task id, sample) pairs into at most `count` minibatches of about equal size.

    A task's samples stay together, in order; `seed` shuffles the tasks."""
    groups: dict[str, list[Sample]] = defaultdict(list)
    for task, sample in samples:
        groups[task].append(sample)
    order = list(groups.values())
    np.random.default_rng(seed).shuffle(order)  # pyright: ignore[reportArgumentType]
    batches: list[list[Sample]] = [[] for _ in range(min(count, len(order)))]
    for group in order:
        min(batches, key=len).extend(group)
    return batches
