"""The engine: samples from a service, with the weights that it trains."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import tinker

from rlanything.engines.base import (
    DivergedError,
    ModelError,
    OnSamples,
    PromptsTooLong,
    Request,
    Sampling,
)
from rlanything.engines.deadline import GenerationTimeout
from rlanything.engines.hf.text import ModelText
from rlanything.records import Completion
from rlanything_tinker.service import ServiceError, asking
from rlanything_tinker.weights import SEED_BITS, ServedWeights


class TinkerEngine:
    """Generation by a service. The first samples after an update are drawn with the new weights.

    Raises `GenerationTimeout` if no sample comes within the role's timeout, and `ServiceError`."""

    def __init__(self, weights: ServedWeights, text: ModelText, seconds: float) -> None:
        """`seconds`: longest time without a sample."""
        self._weights = weights
        self._text = text
        self._seconds = seconds
        self._sampler: tinker.SamplingClient | None = None
        self.version: int | None = None
        """Version of the weights that it samples with; None before the first sample."""

    def sync_weights(self) -> None:
        """Does nothing: weights have a version, and caches are the service's."""

    def release_cache(self) -> None:
        """Does nothing: caches are the service's."""

    def generate(
        self,
        requests: Sequence[Request],
        sampling: Sampling,
        on_samples: OnSamples | None = None,
    ) -> list[list[Completion]]:
        """Returns completions [requests][n], with a request per sample, as each has its own seed.
        Raises `ModelError` for restricted responses, which `decoding: choices` asks for."""
        role = self._weights.role
        self._check(requests, sampling)
        results: list[list[Any]] = []
        with asking(role, f"generating for {len(requests)} prompts"):
            try:
                sampler = self._current()
                drawn = [
                    [self._sample(sampler, request, seed, sampling) for seed in request.seeds]
                    for request in requests
                ]
                for group in drawn:
                    results.append([each.result(self._seconds) for each in group])
                    if on_samples is not None:
                        on_samples(len(group))
            except TimeoutError:
                raise GenerationTimeout(
                    f"{role}: generating for {len(requests)} prompts, the service gave no sample "
                    f"for {self._seconds:g} s; raise {role}.timeout_seconds"
                ) from None
        return [
            [self._completion(request, result) for result in group]
            for request, group in zip(requests, results, strict=True)
        ]

    def _check(self, requests: Sequence[Request], sampling: Sampling) -> None:
        role, room = self._weights.role, self._text.context
        if any(request.choices is not None for request in requests):
            raise ModelError(f"{role}: the API samples without restrictions; set decoding: free")
        lengths = [len(request.prompt_ids) for request in requests]
        too_long = [i for i, n in enumerate(lengths) if room and n + sampling.max_tokens > room]
        if too_long:
            raise PromptsTooLong(
                f"{role}: a prompt of {max(lengths)} tokens and {sampling.max_tokens} new ones do "
                f"not fit into the {room} of {self._text.name}; lower {role}.max_tokens, or choose "
                "a model with a longer context",
                too_long,
            )

    def _current(self) -> tinker.SamplingClient:
        """Returns a client that samples with the current weights."""
        if self._sampler is None or self.version != self._weights.updates:
            published = self._weights.client.save_weights_and_get_sampling_client()
            self._sampler = published.result(self._seconds)
            self.version = self._weights.updates
        return self._sampler

    def _sample(
        self, sampler: tinker.SamplingClient, request: Request, seed: int, sampling: Sampling
    ) -> Any:
        return sampler.sample(
            tinker.ModelInput.from_ints(list(request.prompt_ids)),
            1,
            tinker.SamplingParams(
                max_tokens=sampling.max_tokens,
                seed=seed & SEED_BITS,
                temperature=sampling.temperature,
                stop=list(self._text.stop_ids) or None,
            ),
        )

    def _completion(self, request: Request, result: tinker.SampleResponse) -> Completion:
        with asking(self._weights.role, "generating"):
            [sequence] = result.sequences
        ids, logprobs = tuple(sequence.tokens), tuple(sequence.logprobs or ())
        if len(ids) != len(logprobs):
            raise ServiceError(
                f"{self._weights.role}.learner: the service gave {len(logprobs)} log-probs for "
                f"{len(ids)} tokens; use one that returns them"
            )
        if not all(map(math.isfinite, logprobs)):
            raise DivergedError
        stopped = sequence.stop_reason == "stop"
        ended = stopped and ids[-1:] and ids[-1] in self._text.stop_ids
        return Completion(
            prompt_ids=request.prompt_ids,
            token_ids=ids,
            logprobs=logprobs,
            allowed=((),) * len(ids),
            stop_reason="stop" if stopped else "length",
            text=self._text.decode(ids[:-1] if ended else ids),
        )
