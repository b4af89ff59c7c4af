"""Token ids in, token ids and their log-probs out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from rlanything.records import Completion

OnSamples: TypeAlias = Callable[[int], None]
"""Called with each number of samples that are done."""


class ModelError(ValueError):
    """A model cannot be used as asked; the message is one line that ends with the remedy."""


class DivergedError(ModelError):
    """A model, or an update of one, gives NaN or infinity, so continuing is pointless."""

    def __init__(
        self,
        what: str = "the model's logits are not numbers: its weights are damaged, or it diverged",
    ) -> None:
        super().__init__(what)

    def __str__(self) -> str:
        # Added here, not to `args`: unpickling would otherwise repeat it.
        return (
            f"{self.args[0]}. Begin a new run with a lower learning_rate; its models may come from "
            "an earlier checkpoint (policy.model=RUN/checkpoints/iter-00001/policy)"
        )


class PromptsTooLong(ModelError):
    """Some prompts are longer than the engine's limit; the others could be answered."""

    def __init__(self, message: str, places: Sequence[int]) -> None:
        """`places`: indices of their requests."""
        super().__init__(message, places)
        self.places = tuple(places)

    def __str__(self) -> str:
        return str(self.args[0])


@dataclass(frozen=True, slots=True)
class Choices:
    """Restricts a response to `free text <marker> one of the options`.

    All values are token ids. The marker is one token. It must be followed by one of `options` (at
    least one), each of which includes its end-of-turn token; after `free_tokens` tokens without a
    marker the marker is forced. Log-probs are renormalised over the possible tokens. The free text
    is unrestricted: a model may end its turn in it.
    """

    marker: int
    options: tuple[tuple[int, ...], ...]
    free_tokens: int


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt and the seeds of its samples (n = len(seeds))."""

    prompt_ids: tuple[int, ...]
    seeds: tuple[int, ...]
    choices: Choices | None = None
    conversation: str = ""
    """Conversation id; its requests are likely to share a prefix. A hint for caches that never
    affects results."""

    def __post_init__(self) -> None:
        if not self.prompt_ids:
            raise ValueError("a request without prompt tokens has nothing to predict from")


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling settings. There is no top-k or top-p: both bias the learner's probability ratio."""

    temperature: float
    """0 takes the most likely token."""
    max_tokens: int
    """Token limit of a response; longer ones stop with `stop_reason` "length"."""


class Engine(Protocol):
    """Generates text with one language model.

    A sample depends on its prompt, its seed and the weights, but not on the rest of the batch (up
    to rounding).
    """

    def generate(
        self,
        requests: Sequence[Request],
        sampling: Sampling,
        on_samples: OnSamples | None = None,
    ) -> list[list[Completion]]:
        """Returns completions [requests][n]. Raises `PromptsTooLong`."""
        ...

    def sync_weights(self) -> None:
        """Takes over the model's current weights and drops everything computed with old ones."""
        ...

    def release_cache(self) -> None:
        """Frees memory for other models, before a while without requests."""
        ...
