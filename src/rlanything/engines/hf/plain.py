"""The fallback engine: any causal language model, one sequence at a time, slow but exact.

It uses no padding, prefix sharing or cache of ours. Transformers' `generate` runs the network with
its own cache and masks, so sliding windows and recurrent layers are right. If the network's cache
is faulty, it runs without one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList

from rlanything.engines.base import OnSamples, Request, Sampling
from rlanything.engines.hf.model import LanguageModel
from rlanything.engines.hf.partial_completion import PartialCompletion, draw
from rlanything.engines.hf.probing import own_settings_aside
from rlanything.records import Completion


class PlainEngine:
    """Generation with a `LanguageModel` that `HFEngine` does not support.

    It samples like `HFEngine`. Each sample computes its prompt again, so nothing outlives a
    call."""

    def __init__(self, model: LanguageModel) -> None:
        self._lm = model

    def sync_weights(self) -> None:
        """Drops cached images, the only cache."""
        self._lm.forget_images()

    def release_cache(self) -> None:
        """Does nothing: there is no cache to free."""

    def generate(
        self,
        requests: Sequence[Request],
        sampling: Sampling,
        on_samples: OnSamples | None = None,
    ) -> list[list[Completion]]:
        self._lm.network.eval()
        completions: list[list[Completion]] = []
        for request in requests:
            completions.append([self._sample(request, seed, sampling) for seed in request.seeds])
            if on_samples is not None:
                on_samples(len(request.seeds))
        return completions

    def _sample(self, request: Request, seed: int, sampling: Sampling) -> Completion:
        model = self._lm
        partial = PartialCompletion.begin(request, seed, sampling, model.stop_ids)
        settings = GenerationConfig(
            do_sample=False,
            max_new_tokens=sampling.max_tokens,
            eos_token_id=list(model.stop_ids) or None,
            use_cache=model.own_cache_works,
        )
        network: Any = model.network
        # Not in inference_mode (`generate` has its own no_grad): some networks store their
        # recurrent state, and inference tensors must not be used outside.
        with (
            own_settings_aside(model.network),
            torch.autocast(model.device.type, model.autocast, enabled=model.autocast is not None),
        ):
            ids, images = model.plain_inputs(request.prompt_ids)
            network.generate(
                ids,
                generation_config=settings,
                logits_processor=LogitsProcessorList([_Drawing(model, partial, sampling)]),
                **images,
            )
        return partial.completion(model)


class _Drawing(LogitsProcessor):
    """Samples each token itself and masks all others for `generate`."""

    def __init__(
        self, model: LanguageModel, partial: PartialCompletion, sampling: Sampling
    ) -> None:
        self._lm = model
        self._partial = partial
        self._sampling = sampling

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """`scores`: raw logits [1, vocab] in float32."""
        partial = self._partial
        # On some devices `generate` notices the end one token late and drops the extra one.
        if not partial.over:
            allowed, scores = partial.next_allowed(), self._lm.possible(scores)
            [token], [logprob] = draw(scores, [allowed], [partial.next_uniform()], self._sampling)
            partial.take(token, logprob, allowed)
        only = torch.full_like(scores, float("-inf"))
        only[:, partial.token_ids[-1]] = 0
        return only
