"""Token ids in, token ids and their log-probs out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from rlanything.records import Completion


class ModelError(ValueError):
    """A model cannot be used as asked; the message is one line that ends with the remedy."""


class DivergedError(ModelError):
    """A model, or an update of one, computes no numbers: to go on with it would be no use."""

    def __init__(
        self,
        what: str = "the model's logits are not numbers: its weights are damaged, or it diverged",
    ) -> None:
        super().__init__(what)

    def __str__(self) -> str:
        # Not in what it is made from, or it would say so twice where it comes from another process.
        return (
            f"{self.args[0]}. Begin a new run with its learning_rate lower; models may be those of "
            "an earlier checkpoint (policy.model=RUN/checkpoints/iter-00001/policy)"
        )


class PromptsTooLong(ModelError):
    """Some prompts are longer than the engine takes; others could be answered."""

    def __init__(self, message: str, places: Sequence[int]) -> None:
        """`places`: theirs among the requests."""
        super().__init__(message, places)
        self.places = tuple(places)

    def __str__(self) -> str:
        return str(self.args[0])


@dataclass(frozen=True, slots=True)
class Choices:
    """Restricts a response to `free text <marker> one of the options`.

    Token ids throughout. The marker is one token. Once it appears, what follows must be one of
    `options` (at least one), each of which includes its end-of-turn token; after `free_tokens`
    tokens without a marker the marker is forced. The log-probs are renormalised over the tokens
    that were possible. The free text may be anything: a model may end its turn in it.
    """

    marker: int
    options: tuple[tuple[int, ...], ...]
    free_tokens: int


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt and the seeds of the samples wanted for it (n = len(seeds))."""

    prompt_ids: tuple[int, ...]
    seeds: tuple[int, ...]
    choices: Choices | None = None
    conversation: str = ""
    """Requests of one conversation may well begin alike. A hint for caches, never for results."""

    def __post_init__(self) -> None:
        if not self.prompt_ids:
            raise ValueError("a request without prompt tokens has nothing to predict from")


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to draw tokens. There is no top-k or top-p: both bias the ratio the learner computes."""

    temperature: float
    """0 takes the most likely token."""
    max_tokens: int
    """Limit of a response; longer ones stop with `stop_reason` "length"."""


class Engine(Protocol):
    """Generates text with one language model.

    The tokens of a sample depend on its prompt, its seed and the weights, not on what else is in
    the batch (up to the rounding of the arithmetic).
    """

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[list[Completion]]:
        """Returns completions [requests][n]. Raises `PromptsTooLong` where some are."""
        ...

    def sync_weights(self) -> None:
        """Forgets everything computed with the old weights."""
        ...

    def release_cache(self) -> None:
        """Gives memory back that others may need: nothing is asked for a while."""
        ...
