"""Counts what rollouts and an update compute where there are images, and times the update."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from learner_steps.contenders import comparable
from torch import Tensor

from rlanything.config.roles import PolicyConfig
from rlanything.engines.base import Request, Sampling
from rlanything.engines.hf.engine import HFEngine
from rlanything.engines.hf.model import LanguageModel
from rlanything.learning.learner import Learner
from rlanything.learning.packing import pack
from rlanything.learning.padding import Rows, pad
from rlanything.learning.scorer import TokenScorer
from rlanything.learning.shares import Pass
from rlanything.learning.trained_tokens import Batch, trained_tokens
from rlanything.records import Sample, Trajectory
from rlanything.roles.chat_model import LocalChatModel
from rlanything.roles.judges.llm import LLMJudge
from rlanything.roles.policy import LanguagePolicy
from rlanything_miniwob.domain import MiniWob
from vision_steps.episodes import answered, judged
from vision_steps.model import tiny_vision_model

ROLE = PolicyConfig(max_tokens=16)
"""The defaults: packs of 4,096 tokens among them."""
ROW_TOKENS = 2048
"""Padded tokens computed together; benchmarks/learner.py finds this or its double fastest."""


JUDGEMENTS = 3
"""Judgements of a step, as in the recipes."""


@dataclass(frozen=True, slots=True)
class View:
    """A role that is asked about the episodes, and its number of screenshots; a judge sees two."""

    name: str
    judges: bool
    screenshots: int


VIEWS = (View("policy", False, 3), View("policy, text", False, 0), View("judge", True, 2))


@dataclass(frozen=True, slots=True)
class FromPixels:
    """A sequence as transformers computes it by itself: alone, its images encoded with it."""

    rows: Rows

    @property
    def samples(self) -> tuple[Sample, ...]:
        return self.rows.samples

    @property
    def paths(self) -> Sequence[np.ndarray]:
        return self.rows.paths

    @property
    def computed_tokens(self) -> int:
        return self.rows.computed_tokens

    def hidden_states(self, model: LanguageModel) -> Tensor:
        """Returns the last layer's states [tokens, hidden]."""
        ids, more = model.plain_inputs(self.samples[0].completion.tokens)
        network: Any = model.network
        return network.base_model(input_ids=ids, use_cache=False, **more).last_hidden_state[0]


def alone(samples: Sequence[Sample]) -> list[FromPixels]:
    return [FromPixels(pad([sample], 1)[0]) for sample in samples]


WAYS: dict[str, Callable[[Sequence[Sample]], Sequence[Batch]]] = {
    "packed": partial(pack, max_pack_tokens=ROLE.max_pack_tokens),
    "padded": partial(pad, max_tokens=ROW_TOKENS),
    "alone": alone,
}


class Counter:
    """The tokens that a network computes, padding included, and the images that its tower does."""

    def __init__(self, network: Any) -> None:
        self.tokens = self.images = 0
        self.tower_seconds = 0.0
        body = network.base_model
        body.register_forward_pre_hook(self._computed, with_kwargs=True)
        body.visual.register_forward_pre_hook(self._encodes, with_kwargs=True)
        body.visual.register_forward_hook(self._encoded)

    def _computed(self, body: Any, arguments: Any, named: dict[str, Any]) -> None:
        self.tokens += named["input_ids"].numel()

    def _encodes(self, tower: Any, arguments: Any, named: dict[str, Any]) -> None:
        self.images += len(named["grid_thw"])
        self.tower_seconds -= time.process_time()

    def _encoded(self, *_: Any) -> None:
        self.tower_seconds += time.process_time()


class CountingEngine(HFEngine):
    """The embedded engine; it counts the tokens of prompts that it computes, without padding."""

    prefilled = 0

    def _prefill(self, rows: Sequence[int], requests: Sequence[Request]) -> Tensor:
        for row, request in zip(rows, requests, strict=True):
            self.prefilled += len(request.prompt_ids) - len(self._cache.tokens[row])
        return super()._prefill(rows, requests)


@dataclass(slots=True)
class Way:
    """A way to make the update, with a model of its own."""

    learner: Learner
    model: LanguageModel
    counter: Counter
    batches: Sequence[Batch]
    samples: int
    seconds: list[float] = field(default_factory=list)
    """CPU seconds of this process, so that other programs on the machine count little."""
    tower_seconds: list[float] = field(default_factory=list)
    """CPU seconds of encoding images, a part of `seconds`."""
    images: int = 0
    """Encoded in an update."""

    def step(self) -> None:
        """Takes a step from the same weights, with all images to be encoded again."""
        self.model.forget_images()
        self.counter.images, self.counter.tower_seconds = 0, 0.0
        begun = time.process_time()
        self.learner.learn([[Pass(batch, self.samples) for batch in self.batches]])
        self.seconds.append(time.process_time() - begun)
        self.tower_seconds.append(self.counter.tower_seconds)
        self.images = self.counter.images

    def gradient(self) -> Tensor:
        """Returns the gradient [weights] that the last step left."""
        weights = self.model.network.parameters()
        return torch.cat([each.grad.flatten() for each in weights if each.grad is not None])

    @torch.no_grad()
    def logprobs(self) -> dict[str, Tensor]:
        """Returns the log-probs of the answers' tokens, by sample."""
        scorer, found = TokenScorer(self.model, ROLE.temperature), dict[str, Tensor]()
        for batch in self.batches:
            tokens = trained_tokens(batch, self.samples, self.model.device)
            scored, _ = scorer(batch, tokens)
            for number, sample in enumerate(batch.samples):
                found[sample.source] = scored[tokens.samples == number]
        return found


@dataclass(frozen=True, slots=True)
class Played:
    """The answers of one view of the episodes, and what they took."""

    samples: list[Sample]
    given: int
    """Images in all prompts."""
    images: int
    """Different ones among them."""
    encoded: int
    computed: int
    """Tokens, padding left out."""
    padded: int
    distinct: int
    """Nodes of one trie of all that an engine must compute."""


@dataclass(frozen=True, slots=True)
class Row:
    """A view of the episodes, and what `packed` differs in from the other ways."""

    name: str
    played: Played
    distinct: int
    """Nodes of one trie of all samples."""
    ways: dict[str, Way]
    logprobs: dict[str, float]
    """The largest difference, by way; `sampled`: to what the engine drew from."""
    gradients: dict[str, float]
    """The norm of the difference, relative to that of the gradient."""

    @property
    def sample_tokens(self) -> int:
        return sum(len(sample.completion.tokens) for sample in self.played.samples)

    def computed(self, way: str) -> int:
        return sum(batch.computed_tokens for batch in self.ways[way].batches)

    def ratio(self, way: str) -> str:
        """Returns its median seconds over those of `packed`, and the range by round."""
        theirs, ours = self.ways[way].seconds, self.ways["packed"].seconds
        rounds = [a / b for a, b in zip(theirs, ours, strict=True)]
        median = statistics.median(theirs) / statistics.median(ours)
        return f"{median:.1f}x [{min(rounds):.1f}, {max(rounds):.1f}]"


def play(view: View, trajectories: Sequence[Trajectory], images: Path, seed: int) -> Played:
    """Answers at every step of the episodes, as one view has it."""
    model = tiny_vision_model(images, seed)
    assert model.vision is not None
    counter, engine = Counter(model.network), CountingEngine(model)
    sampling, chat = Sampling(ROLE.temperature, ROLE.max_tokens), LocalChatModel(model, engine)
    if view.judges:
        judge = LLMJudge(chat, MiniWob(), sampling, JUDGEMENTS, view.screenshots > 0)
        samples = judged(judge, trajectories)
    else:
        policy = LanguagePolicy(chat, MiniWob(), sampling, "free", 0, view.screenshots)
        samples = answered(policy, trajectories, images)
    prompts = [np.array(sample.completion.prompt_ids) for sample in samples]
    seen = [shown for ids in prompts for _, shown in model.vision.images_of(ids)]
    # The last token of an answer is drawn, and nothing follows from it.
    walked = [
        replace(each, completion=replace(each.completion, token_ids=each.completion.token_ids[:-1]))
        for each in samples
    ]
    drawn = sum(len(each.completion.token_ids) for each in walked)
    return Played(
        samples,
        given=len(seen),
        images=len(set(seen)),
        encoded=counter.images,
        computed=engine.prefilled + drawn,
        padded=counter.tokens,
        distinct=distinct(walked),
    )


def distinct(samples: Sequence[Sample]) -> int:
    [trie] = pack(samples, 1 << 62)
    return trie.computed_tokens


def way_of(samples: Sequence[Sample], images: Path, seed: int, name: str) -> Way:
    model = tiny_vision_model(images, seed)
    learner = Learner(model, comparable(ROLE))
    return Way(learner, model, Counter(model.network), WAYS[name](samples), len(samples))


def measure(
    view: View, trajectories: Sequence[Trajectory], images: Path, rounds: int, seed: int
) -> Row:
    """Answers as one view of the episodes, and takes updates on the answers, the ways in turns."""
    played = play(view, trajectories, images, seed)
    ways = {way: way_of(played.samples, images, seed, way) for way in WAYS}
    # Also what warms up, and makes pixels of files.
    logprobs = {way: made.logprobs() for way, made in ways.items()}
    sampled = {each.source: each.completion.logprobs for each in played.samples}
    logprobs["sampled"] = {source: torch.tensor(drawn) for source, drawn in sampled.items()}
    for _ in range(rounds):
        for way in ways.values():
            way.step()
    ours, gradient = logprobs.pop("packed"), ways["packed"].gradient()
    apart = {
        way: torch.cat([(found[key] - own).abs() for key, own in ours.items()]).max()
        for way, found in logprobs.items()
    }
    gradients = {
        way: (made.gradient() - gradient).norm() / gradient.norm() for way, made in ways.items()
    }
    del gradients["packed"]
    return Row(
        view.name,
        played,
        distinct(played.samples),
        ways,
        {way: float(most) for way, most in apart.items()},
        {way: float(most) for way, most in gradients.items()},
    )
