"""Whole iterations of this library against TRL's agent trainer, on the same AlfWorld games.

    python benchmarks/peers.py [RECIPE] [section.key=value ...] [--alternations N] [--quick]
                               [--json] [--out PAGE]

Needs TRL: pip install 'rlanything[bench]'. Without --out nothing is written; `make bench` writes
benchmarks/peers.md.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shlex
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

import torch
from peer_steps.own import OwnAgent, OwnIteration, Tagged
from peer_steps.page import Alternation, Counts, Result, Side, page
from peer_steps.trl_agent import Settings, TRLAgent, TRLIteration
from peer_steps.trl_rollouts import TRLRollouts
from rich.console import Console
from transformers import AutoModelForCausalLM, AutoTokenizer

from rlanything.config.recipe import Recipe, RecipeError, load_recipe
from rlanything.config.shipped import shipped_files
from rlanything.domains.base import DomainError
from rlanything.domains.registry import load_domain
from rlanything.engines.base import Sampling
from rlanything.engines.hf.model import ModelError
from rlanything.engines.shipped import resolve
from rlanything.progress import Progress
from rlanything.rollout.workers import EnvironmentPool
from rlanything.runs.build import build_components
from rlanything.seeds import derive

RECIPE = shipped_files()["quickstart"]
ALTERNATIONS = 8
COMPARABLE = (
    # TRL knows no restricted choices.
    "policy.decoding=free",
    # Every iteration plays with the same weights on both sides.
    "policy.learning_rate=0",
    # TRL's KL is to a reference model and takes a forward of it; ours is to the sampler.
    "policy.kl_weight=0",
    # With more TRL computes all log-probs once again.
    "policy.minibatches=1",
    # Nobody judges: no model is loaded for it.
    "judge.name=oracle",
)
QUICK_ALTERNATIONS = 3
QUICK = ("loop.tasks_per_iteration=2", "loop.rollouts_per_task=4")
QUICK_SETTINGS = Settings(keeps=True, rollout_threads=1, rows=8, update_threads=1)


def measure(recipe: Recipe, alternations: int, quick: bool, progress: Progress) -> Result:
    """Plays and trains with TRL and with this library in turns; one more, which warms both up,
    does not count. Raises `ModelError` or `DomainError` where the recipe cannot be set up."""
    domain = load_domain(recipe.domain.name, recipe.domain.options)
    load = os.getloadavg()[0]
    components = build_components(recipe, domain)
    batch = recipe.loop.tasks_per_iteration
    tasks = domain.tasks("train", batch * (alternations + 1), derive(recipe.seed, "roots"))
    folder = resolve(recipe.policy.model, "policy")
    network = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    environment = recipe.environment
    pools = [
        EnvironmentPool(
            recipe.domain.name,
            recipe.domain.options,
            environment.workers,
            environment.timeout_seconds,
        )
        for _ in range(2)
    ]
    # Each has its own: what one loaded would be there for the other.
    with pools[0], pools[1]:
        rollouts = TRLRollouts(
            network,
            tokenizer,
            domain,
            pools[0],
            {task.id: task for task in tasks},
            Sampling(recipe.policy.temperature, recipe.policy.max_tokens),
            recipe.loop.max_steps,
        )
        theirs = TRLAgent(network, tokenizer, recipe, rollouts)
        own = OwnAgent(recipe, components, pools[1])
        ids = [task.id for task in tasks]
        settings, tried = QUICK_SETTINGS, dict[str, float]()
        if not quick:
            settings, tried = theirs.tuned(ids[:batch], torch.get_num_threads())
        found: list[Alternation] = []
        with progress.phase("alternations", alternations + 1, "alternations") as advance:

            def in_turn(iteration: TRLIteration, number: int) -> None:
                ours = own.iterate(tasks[number * batch : (number + 1) * batch], number)
                if number:
                    found.append(_alternation(iteration, ours, own))
                advance(1)

            theirs.iterate(ids, settings, in_turn)
    components.models.close()
    return Result(tuple(found), recipe, settings, tried, load)


def _alternation(theirs: TRLIteration, ours: OwnIteration, own: OwnAgent) -> Alternation:
    rows = theirs.rows
    trl = Counts(
        episodes=len(rows),
        won=sum(row.outcome == 1 for row in rows),
        steps=sum(len(row.steps) for row in rows),
        written=sum(sum(row.written) for row in rows),
        rows=len(rows),
        trained=sum(sum(row.written) for row in rows),
        # It pads all rows of an iteration to the longest prompt and the longest completion.
        computed=len(rows)
        * (max(len(row.prompt_ids) for row in rows) + max(len(row.written) for row in rows)),
    )
    steps = [step for each in ours.trajectories for step in each.steps]

    def trained_on(samples: Tagged) -> Counts:
        return Counts(
            episodes=len(ours.trajectories),
            won=sum(each.outcome == 1 for each in ours.trajectories),
            steps=len(steps),
            written=sum(len(step.completion.token_ids) for step in steps),
            rows=len(samples),
            trained=sum(len(sample.completion.token_ids) for _, sample in samples),
            computed=own.computed_tokens(samples),
        )

    return Alternation(
        Side(theirs.rollout_seconds, theirs.update_seconds, trl),
        Side(theirs.again_seconds, theirs.update_seconds, trl),
        Side(ours.rollout_seconds, ours.update_seconds, trained_on(ours.trained)),
        Side(ours.rollout_seconds, ours.full_update_seconds, trained_on(ours.trained_in_full)),
    )


def arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("recipe", nargs="?", type=Path, default=RECIPE)
    parser.add_argument("overrides", nargs="*", help="section.key=value, as for rlanything train")
    parser.add_argument("--alternations", type=int, default=ALTERNATIONS)
    parser.add_argument("--quick", action="store_true", help="two tasks, nothing tuned: one minute")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")
    parser.add_argument("--out", type=Path, help="write a page of Markdown there")
    return parser.parse_intermixed_args(words)


def main(words: Sequence[str]) -> None:
    options = arguments(words)
    if importlib.util.find_spec("trl") is None:
        sys.exit("error: TRL is not installed: pip install 'rlanything[bench]'")
    warnings.filterwarnings("ignore", "torch was imported before rlanything")
    progress = Progress(Console(stderr=True))
    changes = [*COMPARABLE, *(QUICK if options.quick else ()), *options.overrides]
    alternations = QUICK_ALTERNATIONS if options.quick else options.alternations
    try:
        with progress.live():
            recipe = load_recipe(options.recipe, changes)
            result = measure(recipe, alternations, options.quick, progress)
    except (DomainError, ModelError, RecipeError) as error:
        sys.exit(f"error: {error}")
    text = page(result, shlex.join(["python", "benchmarks/peers.py", *words]))
    if options.out is not None:
        options.out.write_text(text, encoding="utf-8")
    print(json.dumps(result.to_json()) if options.json else text)


if __name__ == "__main__":
    main(sys.argv[1:])
