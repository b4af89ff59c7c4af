"""The savings of the embedded engine by what it does not compute: writes benchmarks/generation.md.

    python benchmarks/generation.py [--tasks 4] [--repeats 3]

Engines that spare one thing more each play the same episodes with the quickstart's policy and judge
the same recorded trajectories with its judge, in turns, so that a busy machine slows them all.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import transformers
from rich.progress import track

from rlanything.config.recipe import Recipe, load_recipe
from rlanything.config.shipped import shipped_files
from rlanything.domains.base import Domain
from rlanything.domains.registry import load_domain
from rlanything.engines.base import Request, Sampling
from rlanything.engines.hf.cache import RaggedCache
from rlanything.engines.hf.engine import HFEngine
from rlanything.engines.hf.model import LanguageModel
from rlanything.engines.hf.partial_completion import PartialCompletion
from rlanything.records import Completion, Trajectory
from rlanything.roles.chat_model import LocalChatModel
from rlanything.roles.judges.llm import LLMJudge
from rlanything.rollout.episodes import RolloutRequest, rollout
from rlanything.rollout.workers import EnvironmentPool
from rlanything.runs.build import RunComponents, build_components, build_policy
from rlanything.seeds import derive

HERE = Path(__file__).parent
RECIPE = shipped_files()["quickstart"]
REPORT = HERE / "generation.md"
ITERATION = 1

Responses = list[list[tuple[int, ...]]]
"""Token ids, [trajectories][responses]."""


class AllSpared(HFEngine):
    """The engine as it is, but it counts tokens, passes and seconds."""

    def __init__(self, model: LanguageModel) -> None:
        super().__init__(model)
        self.prompt_tokens = 0
        """Prompt tokens of every sample: the number to prefill without any reuse."""
        self.prefilled = 0
        self.passes = 0
        """Decoding passes; each adds one token to every unfinished response."""
        self.seconds = 0.0

    def generate(
        self, requests: Sequence[Request], sampling: Sampling, on_samples: Any = None
    ) -> list[list[Completion]]:
        self.prompt_tokens += sum(len(each.prompt_ids) * len(each.seeds) for each in requests)
        begin_branches = RaggedCache.begin_branches

        def counted(cache: RaggedCache, *arguments: Any) -> tuple[torch.Tensor, torch.Tensor]:
            self.passes += 1
            return begin_branches(cache, *arguments)

        begun = time.perf_counter()
        with patch.object(RaggedCache, "begin_branches", counted):
            completions = super().generate(requests, sampling, on_samples)
        self.seconds += time.perf_counter() - begun
        return completions

    def _prefill(self, rows: Sequence[int], requests: Sequence[Request]) -> torch.Tensor:
        for row, request in zip(rows, requests, strict=True):
            self.prefilled += len(request.prompt_ids) - len(self._cache.tokens[row])
        return super()._prefill(rows, requests)


class EndsDrawn(AllSpared):
    """A response's last tokens take a pass each, also where only one is possible."""

    def generate(
        self, requests: Sequence[Request], sampling: Sampling, on_samples: Any = None
    ) -> list[list[Completion]]:
        with patch.object(PartialCompletion, "_take_forced_end", lambda partial: None):
            return super().generate(requests, sampling, on_samples)


class OwnOpenings(EndsDrawn):
    """No prompt takes its beginning from another one of its call."""

    def _waves(
        self, rows: Sequence[int], requests: Sequence[Request]
    ) -> list[dict[int, tuple[int, int]]]:
        return [{i: (i, 0) for i in range(len(requests))}]


class OwnSteps(OwnOpenings):
    """Reuses nothing from the last call of a conversation either."""

    def generate(
        self, requests: Sequence[Request], sampling: Sampling, on_samples: Any = None
    ) -> list[list[Completion]]:
        # A new cache, not an emptied one: its rows lie in the order of the requests.
        self.sync_weights()
        return super().generate(requests, sampling, on_samples)


class NothingReused(OwnSteps):
    """Reuses nothing from the other samples of a request either: they are decoded in turn."""

    def generate(
        self, requests: Sequence[Request], sampling: Sampling, on_samples: Any = None
    ) -> list[list[Completion]]:
        completions: list[list[Completion]] = [[] for _ in requests]
        for seeds in zip(*(request.seeds for request in requests), strict=True):
            alone = [replace(r, seeds=(seed,)) for r, seed in zip(requests, seeds, strict=True)]
            for i, (completion,) in enumerate(super().generate(alone, sampling)):
                completions[i].append(completion)
        return completions


ARMS: dict[str, type[AllSpared]] = {
    "nothing reused": NothingReused,
    "+ samples of a request": OwnSteps,
    "+ from step to step": OwnOpenings,
    "+ openings shared": EndsDrawn,
    "+ forced ends (the engine as it is)": AllSpared,
}


def model_of(components: RunComponents, role: str) -> LanguageModel:
    """Returns the model in this process that a role trains."""
    model = components.trained_models[role].model
    assert isinstance(model, LanguageModel)
    return model


@dataclass(frozen=True, slots=True)
class Setting:
    """The first iteration of a recipe, without its training."""

    recipe: Recipe
    domain: Domain
    components: RunComponents
    environments: EnvironmentPool
    attempts: Sequence[RolloutRequest]

    def play(self, engine: HFEngine) -> tuple[Trajectory, ...]:
        settings = self.recipe.policy
        chat_model = LocalChatModel(model_of(self.components, "policy"), engine)
        policy = build_policy(chat_model, self.domain, settings, settings.temperature)
        return rollout(
            policy,
            self.environments,
            self.attempts,
            self.recipe.loop.max_steps,
            self.recipe.environment.parallel_episodes,
        ).trajectories

    def judge(self, engine: HFEngine, trajectories: Sequence[Trajectory]) -> Responses:
        settings = self.recipe.judges["judge"]
        judge = LLMJudge(
            LocalChatModel(model_of(self.components, "judge"), engine),
            self.domain,
            Sampling(settings.temperature, settings.max_tokens),
            settings.samples_per_step,
        )
        judged = judge.judge(trajectories, derive(self.recipe.seed, ITERATION, "judge"))
        return [
            [judgement.completion.token_ids for step in episode.judgements for judgement in step]
            for episode in judged
        ]


@dataclass(frozen=True, slots=True)
class Figures:
    """The measurements of one engine in one repeat."""

    prompt_tokens: int
    prefilled: int
    passes: int
    seconds: float
    responses: int
    differing: int
    """Trajectories in which a response has other tokens than the reference."""


def responses(trajectories: Sequence[Trajectory]) -> Responses:
    return [[step.completion.token_ids for step in each.steps] for each in trajectories]


def measured(
    arm: type[AllSpared],
    model: LanguageModel,
    work: Callable[[HFEngine], Responses],
    reference: Responses,
) -> Figures:
    engine = arm(model)
    responses = work(engine)
    return Figures(
        prompt_tokens=engine.prompt_tokens,
        prefilled=engine.prefilled,
        passes=engine.passes,
        seconds=engine.seconds,
        responses=sum(map(len, responses)),
        differing=sum(a != b for a, b in zip(responses, reference, strict=True)),
    )


def compare(
    model: LanguageModel,
    work: Callable[[HFEngine], Responses],
    reference: Responses,
    repeats: int,
    title: str,
) -> dict[str, list[Figures]]:
    """The figures of every arm, one a repeat."""
    figures: dict[str, list[Figures]] = {name: [] for name in ARMS}
    # Every repeat begins with another arm.
    order = [(n + repeat) % len(ARMS) for repeat in range(repeats) for n in range(len(ARMS))]
    for name in track([list(ARMS)[n] for n in order], description=title):
        figures[name].append(measured(ARMS[name], model, work, reference))
    return figures


def table(figures: dict[str, list[Figures]], unit: str) -> list[str]:
    lines = [
        f"| | {unit} | prompt tokens | prefilled | fewer | passes | seconds | "
        "faster than nothing reused | than the row above | trajectories that differ |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    first = above = None
    for name, mine in figures.items():
        once = mine[0]
        cells = [
            name,
            f"{once.responses:,}",
            f"{once.prompt_tokens:,}",
            f"{once.prefilled:,}",
            f"{once.prompt_tokens / once.prefilled:.1f}x",
            f"{once.passes:,}",
            f"{statistics.median(f.seconds for f in mine):.2f}",
            faster(mine, first) if first else "",
            faster(mine, above) if above else "",
            f"{max(f.differing for f in mine)}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
        first, above = first or mine, mine
    return lines


def faster(mine: Sequence[Figures], others: Sequence[Figures]) -> str:
    """The median over the repeats, and the range."""
    ratios = [other.seconds / own.seconds for own, other in zip(mine, others, strict=True)]
    return f"{statistics.median(ratios):.2f}x ({min(ratios):.2f}-{max(ratios):.2f})"


def report(tasks: int, repeats: int) -> str:
    load = os.getloadavg()[0]
    recipe = load_recipe(RECIPE, ["cluster.seats=1"])
    domain = load_domain(recipe.domain.name, recipe.domain.options)
    components = build_components(recipe, domain)
    rollouts = recipe.loop.rollouts_per_task
    attempts = [
        RolloutRequest(
            f"{ITERATION}/{task.id}/{g}", task, derive(recipe.seed, ITERATION, task.id, g)
        )
        for task in domain.tasks("train", tasks, derive(recipe.seed, "roots"))
        for g in range(rollouts)
    ]
    environment = recipe.environment
    with EnvironmentPool(
        recipe.domain.name, recipe.domain.options, environment.workers, environment.timeout_seconds
    ) as environments:
        setting = Setting(recipe, domain, components, environments, attempts)
        # The reference, and a warm-up of models and workers.
        recorded = setting.play(HFEngine(model_of(components, "policy")))
        policy = compare(
            model_of(components, "policy"),
            lambda engine: responses(setting.play(engine)),
            responses(recorded),
            repeats,
            "rollouts",
        )
    judged = setting.judge(HFEngine(model_of(components, "judge")), recorded)
    judge = compare(
        model_of(components, "judge"),
        lambda engine: setting.judge(engine, recorded),
        judged,
        repeats,
        "judgements",
    )
    return "\n".join(
        [
            "# Generation: what is not computed",
            "",
            f"`python benchmarks/generation.py --tasks {tasks} --repeats {repeats}` wrote this "
            f"page. Python {platform.python_version()}, torch {torch.__version__}, transformers "
            f"{transformers.__version__}, {torch.get_num_threads()} thread(s) on "
            f"{len(os.sched_getaffinity(0))} core(s) ({platform.machine()}). Load average at the "
            f"start {load:.1f}.",
            "",
            f"The quickstart's models as shipped; training tasks: {tasks}, rollouts of each: "
            f"{rollouts}, alternations: {repeats}. Every row spares what the row above does, and "
            "one thing more. Prompt tokens: of every sample, what would be computed without reuse; "
            "prefilled: what was computed; fewer: the first over the second. Passes: of "
            "decoding; tokens forced at the end of a response need none. Seconds: inside "
            "`generate`, decoding included, the median. Faster: the median of the alternations' "
            "ratios, and their range. Trajectories that differ: in any token from what the engine "
            "as it is generated before; rounding is all that may do it.",
            "",
            "## Policy",
            "",
            f"{len(recorded)} rollouts. One sample a prompt: the first two rows do the same work.",
            "",
            *table(policy, "steps"),
            "",
            "## Judge",
            "",
            f"{recipe.judges['judge'].samples_per_step} judgements a step, of the same "
            f"{len(recorded)} recorded trajectories for every row.",
            "",
            *table(judge, "judgements"),
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tasks", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    REPORT.write_text(report(arguments.tasks, arguments.repeats), encoding="utf-8")
    print(REPORT.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
