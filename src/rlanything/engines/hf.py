"""The embedded engine: any transformers decoder, batched, on the device the model is on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rlanything.engines.base import Request, Sampling
from rlanything.engines.cache import RaggedCache
from rlanything.engines.choices import ChoiceWalker, restricted_logprobs
from rlanything.engines.model import LanguageModel
from rlanything.records import Completion

BATCH_ROWS = 128
PREFILL_TOKENS = 16_384
MAX_PADDING = 1.3
"""How many padded tokens a prefill batch may compute per real one."""


@dataclass(slots=True)
class _Draft:
    """A response in the making."""

    row: int
    request: Request
    uniforms: np.ndarray
    walker: ChoiceWalker | None
    token_ids: list[int]
    logprobs: list[float]
    allowed: list[tuple[int, ...]]
    stopped: bool = False

    def take(self, token: int, logprob: float, allowed: tuple[int, ...], stop: frozenset[int]):
        self.token_ids.append(token)
        self.logprobs.append(logprob)
        self.allowed.append(allowed)
        if token in stop:
            self.stopped = True
        elif self.walker is not None:
            self.walker.advance(token)


class HFEngine:
    """Generation with a `LanguageModel` that a learner may be training at the same time.

    Prompts are prefilled once: the n samples of a request start from one prefill, and a prompt that
    begins with the tokens of a recent one reuses its keys and values until `weights_changed`.
    """

    def __init__(self, model: LanguageModel) -> None:
        self._lm = model
        self._cache = RaggedCache()

    def weights_changed(self) -> None:
        self._cache = RaggedCache()

    @torch.inference_mode()
    def generate(
        self,
        requests: Sequence[Request],
        sampling: Sampling,
    ) -> list[list[Completion]]:
        self._lm.network.eval()
        completions: list[list[Completion]] = []
        for start in range(0, len(requests), BATCH_ROWS):
            batch = requests[start : start + BATCH_ROWS]
            completions += self._generate_batch(batch, sampling)
        return completions

    def _generate_batch(
        self,
        requests: Sequence[Request],
        sampling: Sampling,
    ) -> list[list[Completion]]:
        cache = self._cache
        rows = cache.assign(
            [request.conversation for request in requests],
            [request.prompt_ids for request in requests],
        )
        first_logits = self._prefill(rows, requests)
        completions: list[list[Completion]] = [[] for _ in requests]
        for sample in range(max(len(request.seeds) for request in requests)):
            chosen = [i for i, request in enumerate(requests) if sample < len(request.seeds)]
            for i in chosen:
                del cache.tokens[rows[i]][len(requests[i].prompt_ids) :]
            drafts = [
                _draft(rows[i], requests[i], requests[i].seeds[sample], sampling) for i in chosen
            ]
            self._decode(drafts, first_logits[chosen], sampling)
            for i, draft in zip(chosen, drafts, strict=True):
                completions[i].append(self._finish(draft))
        return completions

    def _prefill(self, rows: Sequence[int], requests: Sequence[Request]) -> Tensor:
        """Computes what the cache lacks of each prompt; returns the logits [requests, vocab] of its
        last token."""
        cache = self._cache
        suffixes = [
            list(request.prompt_ids[len(cache.tokens[row]) :])
            for row, request in zip(rows, requests, strict=True)
        ]
        logits: list[Tensor | None] = [None] * len(requests)
        for group in _length_groups([len(suffix) for suffix in suffixes]):
            width = max(len(suffixes[i]) for i in group)
            positions, mask = cache.begin([rows[i] for i in group], width)
            ids = torch.zeros(len(group), width, dtype=torch.long)
            for line, i in enumerate(group):
                ids[line, : len(suffixes[i])] = torch.tensor(suffixes[i])
            hidden = self._lm.hidden_states(ids, positions, mask, cache)
            last = torch.tensor([len(suffixes[i]) - 1 for i in group])
            out = self._lm.logits(hidden[torch.arange(len(group)), last])
            for line, i in enumerate(group):
                cache.tokens[rows[i]].extend(suffixes[i])
                logits[i] = out[line]
        return torch.stack([row for row in logits if row is not None])

    def _decode(
        self,
        drafts: Sequence[_Draft],
        logits: Tensor,
        sampling: Sampling,
    ) -> None:
        """Runs all drafts to their end. `logits` [drafts, vocab] are those of the prompts."""
        cache, stop = self._cache, frozenset(self._lm.stop_ids)
        batch = list(drafts)
        while True:
            live = [i for i, draft in enumerate(batch) if not _over(draft, sampling)]
            if not live:
                return
            if len(live) <= len(batch) // 2:
                # Ended rows ride along until they are the majority: leaving them out costs a copy.
                batch, logits = [batch[i] for i in live], logits[live]
                live = list(range(len(batch)))
            allowed = [draft.walker.allowed() if draft.walker else () for draft in batch]
            tokens, logprobs = _draw(logits, allowed, [_uniform(d) for d in batch], sampling)
            for i in live:
                batch[i].take(tokens[i], logprobs[i], allowed[i], stop)
            if all(_over(draft, sampling) for draft in batch):
                return
            positions, mask = cache.begin([draft.row for draft in batch], 1)
            ids = torch.tensor([[draft.token_ids[-1]] for draft in batch])
            hidden = self._lm.hidden_states(ids, positions, mask, cache)
            logits = self._lm.logits(hidden[:, 0])
            for i in live:
                cache.tokens[batch[i].row].append(batch[i].token_ids[-1])

    def _finish(self, draft: _Draft) -> Completion:
        text_ids = draft.token_ids[:-1] if draft.stopped else draft.token_ids
        return Completion(
            prompt_ids=draft.request.prompt_ids,
            token_ids=tuple(draft.token_ids),
            logprobs=tuple(draft.logprobs),
            allowed=tuple(draft.allowed),
            stop_reason="stop" if draft.stopped else "length",
            text=self._lm.decode(text_ids),
        )


def _draft(row: int, request: Request, seed: int, sampling: Sampling) -> _Draft:
    # One uniform number a token, from the sample's own seed: what a sample draws does not depend on
    # its neighbours in the batch.
    uniforms = np.random.default_rng(seed).random(sampling.max_tokens)
    walker = ChoiceWalker(request.choices) if request.choices else None
    return _Draft(row, request, uniforms, walker, [], [], [])


def _over(draft: _Draft, sampling: Sampling) -> bool:
    return draft.stopped or len(draft.token_ids) >= sampling.max_tokens


def _uniform(draft: _Draft) -> float:
    return float(draft.uniforms[min(len(draft.token_ids), len(draft.uniforms) - 1)])


def _draw(
    logits: Tensor,
    allowed: Sequence[tuple[int, ...]],
    uniforms: Sequence[float],
    sampling: Sampling,
) -> tuple[list[int], list[float]]:
    """One token a row by inverting the cumulative distribution, and its log-prob."""
    logprobs = restricted_logprobs(logits, allowed, sampling.temperature or 1.0)
    if sampling.temperature == 0:
        tokens = logprobs.argmax(-1)
    else:
        cumulative = logprobs.double().exp().cumsum(-1)
        # Scaled by the total, so that rounding never selects a token beyond the last possible one.
        drawn = torch.tensor(uniforms, dtype=torch.double, device=cumulative.device)
        target = drawn[:, None] * cumulative[:, -1:]
        tokens = torch.searchsorted(cumulative, target, right=True)[:, 0]
    picked = logprobs.gather(-1, tokens[:, None])[:, 0]
    return tokens.tolist(), picked.tolist()


def _length_groups(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Indices in groups of similar length, so that little of a batch is padding."""
    order = sorted(range(len(lengths)), key=lambda i: lengths[i])
    if sum(lengths) * MAX_PADDING * 1.5 >= max(lengths) * len(lengths) <= PREFILL_TOKENS:
        # In the given order a batch that covers the whole cache needs no copy of it.
        yield list(range(len(lengths)))
        return
    group: list[int] = []
    real = 0
    for i in order:
        padded = lengths[i] * (len(group) + 1)
        if group and (padded > PREFILL_TOKENS or padded > MAX_PADDING * (real + lengths[i])):
            yield group
            group, real = [], 0
        group.append(i)
        real += lengths[i]
    yield group
