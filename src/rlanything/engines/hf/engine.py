"""The embedded engine: batched generation with any transformers decoder, on the model's device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from rlanything.engines.base import Engine, ModelError, OnSamples, Request, Sampling
from rlanything.engines.hf.cache import RaggedCache, shared_length
from rlanything.engines.hf.model import LanguageModel
from rlanything.engines.hf.partial_completion import PartialCompletion, draw
from rlanything.engines.hf.plain import PlainEngine
from rlanything.records import Completion

BATCH_ROWS = 128
PREFILL_TOKENS = 16_384
MIN_COPIED = 16
"""Smallest prefix in tokens that is copied from another row; shorter ones are computed again."""
MAX_PADDING = 1.3
"""Largest ratio of padded to real tokens in a prefill batch."""


class HFEngine:
    """Generation with a `LanguageModel` that a learner may be training at the same time.

    With prefix sharing: the n samples of a request share one prefill and are decoded in parallel,
    prompts of one call compute a common prefix once, and a prompt reuses the keys and values of a
    recent prompt of its conversation until `sync_weights` or `release_cache`.

    Raises `ModelError` for models whose sequences cannot share keys and values.
    """

    def __init__(self, model: LanguageModel) -> None:
        if model.sharing_problem is not None:
            raise ModelError(
                f"model {model.name!r} cannot share keys and values: {model.sharing_problem}. "
                "Use PlainEngine."
            )
        self._lm = model
        self._cache = RaggedCache()

    def sync_weights(self) -> None:
        self._cache = RaggedCache()
        self._lm.forget_images()

    def release_cache(self) -> None:
        self._cache = RaggedCache()

    @torch.inference_mode()
    def generate(
        self,
        requests: Sequence[Request],
        sampling: Sampling,
        on_samples: OnSamples | None = None,
    ) -> list[list[Completion]]:
        self._lm.network.eval()
        completions: list[list[Completion]] = []
        for start in range(0, len(requests), BATCH_ROWS):
            batch = requests[start : start + BATCH_ROWS]
            try:
                completions += self._generate_batch(batch, sampling)
            except BaseException:  # keys and values may be half moved
                self.release_cache()
                raise
            if on_samples is not None:
                on_samples(sum(len(request.seeds) for request in batch))
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
        order = cache.bring_together(rows)
        rows, requests = [rows[i] for i in order], [requests[i] for i in order]
        first_logits = self._share_prefill(rows, requests)
        completions: list[list[Completion]] = [[] for _ in requests]
        for samples in sorted({len(request.seeds) for request in requests}):
            chosen = [i for i, request in enumerate(requests) if len(request.seeds) == samples]
            chosen = [chosen[i] for i in cache.bring_together([rows[i] for i in chosen])]
            partials = [
                [
                    PartialCompletion.begin(requests[i], seed, sampling, self._lm.stop_ids)
                    for seed in requests[i].seeds
                ]
                for i in chosen
            ]
            self._decode([rows[i] for i in chosen], partials, first_logits[chosen], sampling)
            for i, branches in zip(chosen, partials, strict=True):
                if samples == 1:
                    # The next prompt of the conversation may continue from here.
                    cache.tokens[rows[i]] += branches[0].token_ids[:-1][: branches[0].computed]
                completions[i] = [partial.completion(self._lm) for partial in branches]
        return [group for _, group in sorted(zip(order, completions, strict=True))]

    def _share_prefill(self, rows: Sequence[int], requests: Sequence[Request]) -> Tensor:
        """Prefills in waves: a prompt that shares a prefix with another waits for that one's keys
        and values, and then only computes the rest.

        Returns the logits [requests, vocab] of the prompts' last tokens."""
        logits: list[Tensor] = [torch.empty(0)] * len(requests)
        for wave in self._waves(rows, requests):
            for i, (source, shared) in wave.items():
                if shared > len(self._cache.tokens[rows[i]]):
                    self._cache.copy(rows[source], rows[i], shared)
            last_logits = self._prefill([rows[i] for i in wave], [requests[i] for i in wave])
            for i, row_logits in zip(wave, last_logits, strict=True):
                logits[i] = row_logits
        return torch.stack(logits)

    def _waves(
        self, rows: Sequence[int], requests: Sequence[Request]
    ) -> list[dict[int, tuple[int, int]]]:
        """Returns waves of requests, each with the request it copies from and the number of copied
        tokens; itself and 0 if it copies nothing. Sources are in earlier waves.

        In sorted order, a prompt shares its longest prefix with its neighbour, and also with the
        first prompt that has this prefix. Copying from the latter keeps the number of waves low."""
        waves: list[dict[int, tuple[int, int]]] = [{}]
        # First prompts with ever longer prefixes: request, wave, tokens shared with the one before.
        path: list[tuple[int, int, int]] = []
        before: tuple[int, ...] = ()
        for i in sorted(range(len(requests)), key=lambda i: requests[i].prompt_ids):
            prompt = requests[i].prompt_ids
            common = shared_length(before, prompt)
            while path and path[-1][2] >= common:
                path.pop()
            before = prompt
            # The last token is always computed: its logits are needed.
            shared = min(common, len(prompt) - 1)
            source, wave = i, 0
            if path and shared - len(self._cache.tokens[rows[i]]) >= MIN_COPIED:
                source, wave = path[-1][0], path[-1][1] + 1
            else:
                shared = 0
            if wave == len(waves):
                waves.append({})
            waves[wave][i] = (source, shared)
            path.append((i, wave, common))
        return [dict(sorted(wave.items())) for wave in waves]

    def _prefill(self, rows: Sequence[int], requests: Sequence[Request]) -> Tensor:
        """Computes the uncached part of each prompt; returns the logits [requests, vocab] of its
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
            if self._lm.in_grid:
                positions = self._in_grid(positions, [requests[i] for i in group])
            hidden = self._lm.hidden_states(ids, positions, mask, cache)
            last = torch.tensor([len(suffixes[i]) - 1 for i in group])
            out = self._lm.logits(hidden[torch.arange(len(group)), last])
            for line, i in enumerate(group):
                cache.tokens[rows[i]].extend(suffixes[i])
                logits[i] = out[line]
        return torch.stack([row for row in logits if row is not None])

    def _in_grid(self, columns: Tensor, requests: Sequence[Request]) -> Tensor:
        """Returns the positions [3, requests, width] of the prompts' tokens at columns [requests,
        width], with arbitrary values after a prompt's end."""
        rows: list[Tensor] = []
        for line, request in zip(columns, requests, strict=True):
            places = self._lm.positions(request.prompt_ids)
            rows.append(places[:, line.clamp(max=places.shape[1] - 1)])
        return torch.stack(rows, 1)

    def _decode(
        self,
        rows: Sequence[int],
        partials: Sequence[Sequence[PartialCompletion]],
        logits: Tensor,
        sampling: Sampling,
    ) -> None:
        """Runs the partials of each row of the cache, equally many, to their end. `logits`
        [rows, vocab] are those of the prompts."""
        cache = self._cache
        batch, samples = list(partials), len(partials[0])
        # Sampled tokens are text, so one shift per row suffices.
        shifts = torch.tensor([[self._lm.shift(row[0].request.prompt_ids)] for row in batch])
        logits = logits.repeat_interleave(samples, 0)
        for drawn in range(sampling.max_tokens):
            live = [i for i, row in enumerate(batch) if not all(partial.over for partial in row)]
            if not live:
                return
            if len(live) <= len(batch) // 2:
                # Ended rows stay in the batch until they are the majority: removing them copies.
                live = [live[i] for i in cache.bring_together([rows[i] for i in live])]
                logits = logits.unflatten(0, (len(batch), samples))[live].flatten(0, 1)
                rows, batch = [rows[i] for i in live], [batch[i] for i in live]
                shifts = shifts[live]
            every = [partial for row in batch for partial in row]
            allowed = [partial.next_allowed() for partial in every]
            tokens, logprobs = draw(logits, allowed, [d.next_uniform() for d in every], sampling)
            for partial, token, logprob, among in zip(
                every, tokens, logprobs, allowed, strict=True
            ):
                if not partial.over:
                    partial.take(token, logprob, among)
            if all(partial.over for partial in every):
                return
            positions, mask = cache.begin_branches(rows, samples, drawn)
            # Ended ones stay in the batch, with the tokens that were forced.
            ids = torch.tensor([[partial.next_input() for partial in row] for row in batch])
            hidden = self._lm.hidden_states(ids, positions + shifts, mask, cache)
            logits = self._lm.logits(hidden.flatten(0, 1))


def _length_groups(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Yields indices in groups of similar length, to limit padding."""
    order = sorted(range(len(lengths)), key=lambda i: lengths[i])
    if sum(lengths) * MAX_PADDING * 1.5 >= max(lengths) * len(lengths) <= PREFILL_TOKENS:
        # A single batch in the given order needs no copy of the cache.
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


def embedded_engine(model: LanguageModel) -> Engine:
    """Returns the batched engine, or the plain one for models without prefix sharing."""
    return HFEngine(model) if model.sharing_problem is None else PlainEngine(model)
