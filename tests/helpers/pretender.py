"""Takes the place of `rlanything train` and `resume`: a run directory without any training.

In a recipe called `hangs` one run waits to be stopped in its first life; where a file `broken` lies
beside the recipe, the runs of seed 1 end with an error.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import yaml

from rlanything.config.recipe import load_recipe
from rlanything.evaluation.counts import Counts
from rlanything.evaluation.diagnostics import diagnose
from rlanything.evaluation.judge_eval import JudgeEvaluation
from rlanything.evaluation.success import Evaluation
from rlanything.records import Task, Trajectory
from rlanything.runs.results import EvaluationRecord
from rlanything.runs.store.store import Store


def won(arm: str, seed: int, task: int) -> int:
    """An arm's name ends in how many of ten tasks it wins; a seed shifts which."""
    return 1 if (task + seed) % 10 < int(arm[-1]) else -1


def evaluate(store: Store, iteration: int, arm: str, seed: int) -> None:
    played = tuple(Trajectory(f"t{i}", Task(f"t{i}", ""), (), won(arm, seed, i)) for i in range(10))
    counts: dict[str, Counts] = {
        f"in_domain/t{i}": {"good steps": (int(arm[-1]), 10), "bad steps": (5, 10)} for i in (0, 1)
    }
    store.record_evaluation(
        EvaluationRecord(
            number=iteration,
            evaluations=[Evaluation("in_domain", played, (), 0.0)],
            judges={"judge": JudgeEvaluation(diagnose([], [], [], 1.0), counts)},
            metrics={"evaluation/in_domain/success": 0.5},
        )
    )


def main(command: str, what: str, *overrides: str) -> None:
    if command == "train":
        recipe = load_recipe(Path(what), overrides)
        folder = recipe.directory
        if (Path(what).parent / "broken").exists() and recipe.seed == 1:
            sys.exit("error: it is broken")
        folder.mkdir(parents=True)
        path = folder / "recipe.yaml"
        path.write_text(yaml.safe_dump(recipe.model_dump(mode="json")))
        store = Store.create(folder / "run.sqlite")
        evaluate(store, 0, "start2", recipe.seed)
        if recipe.name == "hangs" and (folder.parent.name, recipe.seed) == ("seven7", 1):
            print("waiting", flush=True)
            time.sleep(60)
        if recipe.name == "killed" and (folder.parent.name, recipe.seed) == ("seven7", 1):
            os.kill(os.getpid(), signal.SIGKILL)
    else:
        folder = Path(what)
        recipe = load_recipe(folder / "recipe.yaml")
        store = Store(folder / "run.sqlite")
    evaluate(store, 1, folder.parent.name, recipe.seed)
    (folder / "checkpoints" / "iter-00001" / "judge").mkdir(parents=True, exist_ok=True)
    store.describe({"closing": json.dumps([]), "finished": "now"})
    store.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
