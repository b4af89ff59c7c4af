"""The loop keeps its contract with engines: what it samples comes from the newest weights, also
where an engine has a copy of them that it renews only when it is told to."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from rich.console import Console

from helpers.tiny import plain_logprobs
from rlanything.algorithm.curriculum import Pool
from rlanything.config.recipe import Recipe, load_recipe
from rlanything.domains.base import Domain
from rlanything.domains.registry import load_domain
from rlanything.engines import shipped
from rlanything.engines.base import Engine, Request, Sampling
from rlanything.engines.hf.engine import embedded_engine
from rlanything.engines.hf.model import LanguageModel, load_model
from rlanything.experience import Experience
from rlanything.learning.learner import Learner
from rlanything.loop import IterationResult, Loop
from rlanything.progress import Progress
from rlanything.records import Completion, Sample
from rlanything.roles.adapter import Proposal, RewriteRequest
from rlanything.roles.chat_model import LocalChatModel
from rlanything.roles.judges.llm import LLMJudge
from rlanything.roles.judges.panel import JudgePanel
from rlanything.roles.policy import LanguagePolicy
from rlanything.rollout.workers import EnvironmentPool

ROUNDING = 1e-3
"""Log-probs of one token from the same weights differ by less, whatever computes them."""

OVERRIDES = (
    *("loop.tasks=4", "loop.tasks_per_iteration=4", "loop.rollouts_per_task=8", "loop.max_steps=4"),
    "feedback.policy_window=[0, 1]",
    *("policy.learning_rate=0.01", "curriculum.adapt_tasks=false"),
)


class CopyingEngine:
    """An engine with its own copy of the weights, as one in another process has."""

    def __init__(self, model: LanguageModel) -> None:
        self._learners = model
        self._own = copy_of(model)
        self._inner = embedded_engine(self._own)

    def generate(
        self, requests: Sequence[Request], sampling: Sampling, on_samples: Any = None
    ) -> list[list[Completion]]:
        return self._inner.generate(requests, sampling, on_samples)

    def sync_weights(self) -> None:
        self._own.network.load_state_dict(self._learners.network.state_dict())
        self._inner.sync_weights()

    def release_cache(self) -> None:
        self._inner.release_cache()


class DeafEngine(CopyingEngine):
    """The same engine, to which nobody says that the weights have changed."""

    def sync_weights(self) -> None: ...


class NoAdapter:
    """Is never asked for anything."""

    def propose(
        self, requests: Sequence[RewriteRequest], iteration: int, seed: int
    ) -> list[Proposal]:
        assert not requests
        return []


def copy_of(model: LanguageModel) -> LanguageModel:
    return LanguageModel(copy.deepcopy(model.network), model.tokenizer, model.autocast)


class Nudge:
    """A learner that moves weights whatever the samples: the judge of this game has no signal."""

    def __init__(self, model: LanguageModel) -> None:
        self._model = model

    def update(
        self,
        samples: Sequence[tuple[str, Sample]],
        seed: int,
        on_samples: Callable[[int], None] | None = None,
    ) -> dict[str, float]:
        with torch.no_grad():
            for weights in self._model.network.parameters():
                weights.mul_(1.02)
        return {}


@dataclass
class Role:
    """A model that learns, and what samples from it."""

    model: LanguageModel
    engine: Engine

    @property
    def chat_model(self) -> LocalChatModel:
        return LocalChatModel(self.model, self.engine)


def role(name: str, engine: type[CopyingEngine]) -> Role:
    model = load_model(shipped.resolve("nano-guess", name), "float32")
    return Role(model, engine(model))


@contextmanager
def a_loop(policy: Role, judge: Role) -> Iterator[Loop]:
    """A loop made by hand, over the game of the examples."""
    recipe: Recipe = load_recipe("guess", OVERRIDES)
    domain: Domain = load_domain(recipe.domain.name, {})
    acting = Sampling(recipe.policy.temperature, recipe.policy.max_tokens)
    judging = Sampling(recipe.judges["judge"].temperature, recipe.judges["judge"].max_tokens)
    with EnvironmentPool(domain, {}, 0, 10.0) as environments:
        pool = Pool(domain.tasks("train", recipe.loop.tasks, 0), 0.2, 0.8)
        player = LanguagePolicy(policy.chat_model, domain, acting, "choices", 4)
        quiet = Progress(Console(quiet=True))
        yield Loop(
            recipe=recipe,
            domain=domain,
            pool=pool,
            experience=Experience(recipe, pool, player, environments, quiet),
            judges=JudgePanel({"judge": LLMJudge(judge.chat_model, domain, judging, 3)}),
            adapter=NoAdapter(),
            learners={"policy": Learner(policy.model, recipe.policy), "judge": Nudge(judge.model)},
            engines=(policy.engine, judge.engine),
            progress=quiet,
        )


def said(result: IterationResult) -> dict[str, list[Completion]]:
    """What each role wrote in an iteration."""
    judged = [judged for group in result.groups for judged in group.judged]
    return {
        "policy": [step.completion for one in judged for step in one.trajectory.steps],
        "judge": [
            judgement.completion for one in judged for step in one.judgements for judgement in step
        ],
    }


TEMPERATURES = {"policy": 1.0, "judge": 0.8}


def farthest(model: LanguageModel, completions: Sequence[Completion], temperature: float) -> float:
    """Returns how far recorded log-probs are at most from those of a model's weights, computed
    anew by a plain forward."""
    distances = [
        (plain_logprobs(model, completion, temperature) - torch.tensor(completion.logprobs))
        .abs()
        .max()
        for completion in completions[:40]
    ]
    return float(max(distances))


def distances(engine: type[CopyingEngine]) -> dict[str, list[float]]:
    """By role and iteration, how far its samples are from the weights that the learner had when
    they were drawn; last, of samples that are drawn after the last update."""
    torch.manual_seed(0)
    roles = {name: role(name, engine) for name in ("policy", "judge")}
    apart: dict[str, list[float]] = {name: [] for name in roles}
    with torch.no_grad(), a_loop(roles["policy"], roles["judge"]) as loop:
        for iteration in (1, 2):
            then = {name: copy_of(role.model) for name, role in roles.items()}
            with torch.enable_grad():
                result = loop.iterate(iteration)
            for name, completions in said(result).items():
                assert completions, f"the {name} wrote nothing"
                apart[name].append(farthest(then[name], completions, TEMPERATURES[name]))
                moved = farthest(roles[name].model, completions, TEMPERATURES[name])
                assert moved > 10 * ROUNDING, f"the {name} learned too little to tell"
    for name, one in roles.items():
        request = Request(tuple(one.model.encode("Guess a number.")), (1, 2, 3))
        [drawn] = one.engine.generate([request], Sampling(1.0, 8))
        with torch.no_grad():
            apart[name].append(farthest(one.model, drawn, 1.0))
    return apart


def test_every_sample_comes_from_the_weights_that_the_learner_has_then() -> None:
    for name, apart in distances(CopyingEngine).items():
        assert max(apart) < ROUNDING, name


def test_without_the_sync_samples_would_come_from_old_weights() -> None:
    for name, (first, second, after) in distances(DeafEngine).items():
        assert first < ROUNDING, name
        assert min(second, after) > 10 * ROUNDING, name
