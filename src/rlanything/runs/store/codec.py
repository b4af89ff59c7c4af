"""Encodes an episode as compressed bytes (texts, token ids and log-probs) or, for episodes that
judges are evaluated on, as JSON without tokens.

An episode is compressed as a whole, since its texts repeat one another. Log-probs are kept as
float32, the type of engines and learner, so stored values are bit for bit those trained on. Prompts
are rendered again on demand; a hash shows whether that gave the same tokens."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import TypeAlias

import numpy as np

from rlanything.records import Completion, JudgedTrajectory, Step, Task, Trajectory

HASH_BYTES = 16
MOST_BYTES = 1 << 26
"""Largest column of an episode, decompressed; a run of 1,000 steps with 64 kB each writes less.
Guards against decompression bombs."""


Texts: TypeAlias = tuple[list[str], list[str], list[list[str]]]
"""Observations [steps + 1], responses [steps] and judgements [steps][m]."""


class UnreadableEpisodeError(ValueError):
    """Stored bytes are not a result of `encode_episode`."""


@dataclass(frozen=True, slots=True)
class StoredCompletion:
    """A completion as stored."""

    text: str
    token_ids: tuple[int, ...]
    """[response]"""
    logprobs: tuple[float, ...]
    """[response], float32 numbers."""
    prompt_hash: bytes


@dataclass(frozen=True, slots=True)
class EpisodeText:
    """All texts of an episode."""

    observations: tuple[str, ...]
    """[steps + 1]: the observation after a step is the one before the next."""
    responses: tuple[StoredCompletion, ...]
    """[steps]"""
    judgements: tuple[tuple[StoredCompletion, ...], ...]
    """[steps][m]"""


@dataclass(frozen=True, slots=True)
class EncodedEpisode:
    """An episode's text as four compressed columns."""

    texts: bytes
    """JSON: observations, responses, judgements."""
    token_ids: bytes
    """int32: the length of every completion, then their tokens. Step by step, the response first,
    then its judgements."""
    logprobs: bytes
    """float32, in the order of the tokens."""
    prompts: bytes
    """Hashes, in the order of the completions."""


def encode_episode(judged: JudgedTrajectory) -> EncodedEpisode:
    """Compresses the texts and tokens of an episode.

    Raises ValueError if a step's observation is not the previous step's next observation."""
    trajectory = judged.trajectory
    steps = trajectory.steps
    for number, (step, after) in enumerate(pairwise(steps), 1):
        if step.next_observation != after.observation:
            raise ValueError(
                f"trajectory {trajectory.id}: step {number} does not see what the step before it "
                "led to; an observation is kept once"
            )
    observations = [step.observation for step in steps]
    observations += [step.next_observation for step in steps[-1:]]
    texts = [
        observations,
        [step.completion.text for step in steps],
        [[each.completion.text for each in judgements] for judgements in judged.judgements],
    ]
    completions = list(_in_order(judged))
    token_ids = chain(
        (len(each.token_ids) for each in completions),
        chain.from_iterable(each.token_ids for each in completions),
    )
    logprobs = chain.from_iterable(each.logprobs for each in completions)
    return EncodedEpisode(
        # A model may write half a surrogate pair, which must not cost an iteration.
        _deflate(json.dumps(texts, ensure_ascii=False).encode("utf-8", "surrogatepass")),
        _deflate(np.fromiter(token_ids, "<i4").tobytes()),
        encode_numbers(np.fromiter(logprobs, "<f4")),
        _deflate(b"".join(_prompt_hashes(completions))),
    )


def decode_episode(encoded: EncodedEpisode) -> EpisodeText:
    """Returns the episode that `encode_episode` compressed. Raises `UnreadableEpisodeError`."""
    observations, responses, judgements = decode_texts(encoded.texts)
    texts = [
        text
        for response, row in zip(responses, judgements, strict=True)
        for text in (response, *row)
    ]
    try:
        written = list(_written(encoded, texts))
    except ValueError as error:
        raise UnreadableEpisodeError(str(error)) from None
    if len(written) != len(texts):
        raise UnreadableEpisodeError("its texts and tokens do not agree")
    completions = iter(written)
    completed = [(next(completions), tuple(next(completions) for _ in row)) for row in judgements]
    return EpisodeText(
        tuple(observations),
        tuple(response for response, _ in completed),
        tuple(row for _, row in completed),
    )


def decode_texts(texts: bytes) -> Texts:
    """Returns the texts of an encoded episode without their tokens. Raises
    `UnreadableEpisodeError`."""
    try:
        read = json.loads(_inflate(texts).decode("utf-8", "surrogatepass"))
        observations, responses, judgements = read
        steps = len(responses)
        whole = len(observations) == (steps + 1 if steps else 0) and len(judgements) == steps
        strings = [*observations, *responses, *(text for row in judgements for text in row)]
    except (ValueError, TypeError, RecursionError) as error:
        raise UnreadableEpisodeError(str(error)) from None
    if not whole or not all(isinstance(text, str) for text in strings):
        raise UnreadableEpisodeError("its steps, texts and judgements do not agree")
    return observations, responses, judgements


def to_json(trajectory: Trajectory) -> str:
    """Returns texts, actions, names of screenshots and outcome as JSON; no tokens, since these
    never train."""
    task = trajectory.task
    return json.dumps(
        {
            "id": trajectory.id,
            "task": {
                "id": task.id,
                "instruction": task.instruction,
                "kind": task.kind,
                "data": task.data,
            },
            "steps": [
                [s.observation, s.response, s.action, s.valid, s.next_observation, *_seen(s)]
                for s in trajectory.steps
            ],
            "outcome": trajectory.outcome,
            "reward": trajectory.reward,
        }
    )


def from_json(text: str) -> Trajectory:
    """Returns the episode of a JSON text: the inverse of `to_json`, but for the tokens."""
    saved = json.loads(text)
    steps = tuple(
        Step(observation, Completion.unsampled(response), action, valid, after, *seen)
        for observation, response, action, valid, after, *seen in saved["steps"]
    )
    return Trajectory(saved["id"], Task(**saved["task"]), steps, saved["outcome"], saved["reward"])


def _seen(step: Step) -> list[str | None]:
    """Returns the names of a step's screenshots, before and after it; empty without any."""
    names = [step.image, step.next_image]
    return names if any(names) else []


def encode_numbers(numbers: np.ndarray) -> bytes:
    """Compresses floating-point numbers without loss: first the lowest bytes of all numbers, then
    the next, so that the similar high bytes are contiguous.

    Within a byte layer only the frequencies of values can be exploited, so each layer gets a
    Huffman code."""
    layers = np.ascontiguousarray(numbers).view(np.uint8).reshape(-1, numbers.itemsize).T
    compressor = zlib.compressobj(strategy=zlib.Z_HUFFMAN_ONLY)
    parts = [
        part
        for layer in layers
        # A flush ends the block, so the next one has its own code.
        for part in (compressor.compress(layer.tobytes()), compressor.flush(zlib.Z_SYNC_FLUSH))
    ]
    return b"".join([*parts, compressor.flush()])


def decode_numbers(data: bytes, dtype: str) -> np.ndarray:
    """Returns the numbers [n] that `encode_numbers` compressed."""
    size = np.dtype(dtype).itemsize
    layers = np.frombuffer(_inflate(data), np.uint8).reshape(size, -1)
    return np.ascontiguousarray(layers.T).view(dtype).reshape(-1)


def prompt_hash(ids: Iterable[int]) -> bytes:
    """Returns a 16-byte hash of a prompt."""
    try:
        numbers = np.array(list(ids), "<i4")
    except OverflowError:  # image ids have 64 bits
        numbers = np.array(list(ids), "<i8")
    return hashlib.sha256(numbers.tobytes()).digest()[:HASH_BYTES]


def _deflate(data: bytes) -> bytes:
    # Level 4 takes half the time of zlib's default, for a twelfth more space.
    return zlib.compress(data, 4)


def _inflate(data: bytes) -> bytes:
    """Returns the data that `_deflate` compressed. Raises `UnreadableEpisodeError`."""
    inflating = zlib.decompressobj()
    try:
        inflated = inflating.decompress(data, MOST_BYTES)
    except (zlib.error, TypeError) as error:
        raise UnreadableEpisodeError(str(error)) from None
    if not inflating.eof:
        raise UnreadableEpisodeError(f"it is cut off, or larger than {MOST_BYTES >> 20} MiB")
    return inflated


def _in_order(judged: JudgedTrajectory) -> Iterator[Completion]:
    for step, judgements in zip(judged.trajectory.steps, judged.judgements, strict=True):
        yield step.completion
        yield from (each.completion for each in judgements)


def _prompt_hashes(completions: Sequence[Completion]) -> Iterator[bytes]:
    """Yields the hash of each completion's prompt. Judgements of a step share a prompt, which is
    hashed once."""
    before: tuple[int, ...] | None = None
    hashed = b""
    for completion in completions:
        if completion.prompt_ids is not before:
            before, hashed = completion.prompt_ids, prompt_hash(completion.prompt_ids)
        yield hashed


def _written(encoded: EncodedEpisode, texts: Sequence[str]) -> Iterator[StoredCompletion]:
    numbers = np.frombuffer(_inflate(encoded.token_ids), "<i4")
    ends = np.cumsum(numbers[: len(texts)]).tolist()
    token_ids = numbers[len(texts) :].tolist()
    logprobs = decode_numbers(encoded.logprobs, "<f4").tolist()
    hashes = _inflate(encoded.prompts)
    for i, (text, start, end) in enumerate(zip(texts, [0, *ends], ends, strict=False)):
        hashed = hashes[i * HASH_BYTES : (i + 1) * HASH_BYTES]
        yield StoredCompletion(
            text, tuple(token_ids[start:end]), tuple(logprobs[start:end]), hashed
        )
