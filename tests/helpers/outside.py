"""A package of somebody else's, `toys`, that brings one plug-in of every kind: a file each."""

from __future__ import annotations

import os
from pathlib import Path

MODULES = {
    "__init__": """
from collections import Counter

CALLS = Counter()
""",
    "loss": """
from pydantic import BaseModel

from rlanything.algorithm.losses import ClipOptions, clipped
from toys import CALLS


class Factor(BaseModel):
    factor: float = 1.0


def scaled(inputs, options: Factor):
    CALLS["loss"] += 1
    CALLS["factor"] = options.factor
    outputs = clipped(inputs, ClipOptions())
    outputs.loss.mul_(options.factor)
    return outputs
""",
    "advantage": """
from rlanything.algorithm.advantages import AdvantageInputs
from rlanything.algorithm.options import Options
from toys import CALLS


class Fading(Options):
    fading: float = 1.0


def first_tokens(inputs: AdvantageInputs, options: Fading):
    "The outcome, less of it for each later token of a response."
    CALLS["advantage"] += 1
    return [
        [[outcome * options.fading**token for token in range(length)] for length in steps]
        for outcome, steps in zip(inputs.outcomes, inputs.lengths)
    ]
""",
    "domain": """
from rlanything.domains.base import InvalidTask, Observation, StepResult
from rlanything.domains.text import TextDomain
from rlanything.records import Task

SIDES = ("heads", "tails")


class CoinEnvironment:
    def reset(self, task):
        self.side = task.data["side"]
        return Observation("A coin is in the air.", SIDES)

    def step(self, response):
        action = TextDomain.action_in(response)
        won = 1 if action == self.side else -1
        return StepResult(Observation("It fell."), action, action in SIDES, won)


class Coin(TextDomain):
    def __init__(self, bias=0):
        self.bias = bias

    def tasks(self, split, count, seed):
        return [
            Task(f"{split}-{i}", "Call the coin.", data={"side": SIDES[(i + self.bias) % 2]})
            for i in range(count)
        ]

    def environment(self):
        return CoinEnvironment()

    def parse_candidate(self, root, task_id, completion):
        raise InvalidTask("a coin has two sides")
""",
    "engine": """
from rlanything.config.engines import EngineConfig
from rlanything.engines.hf.engine import embedded_engine
from toys import CALLS


class CountingEngine:
    def __init__(self, engine):
        self._engine = engine
        self.sync_weights = engine.sync_weights
        self.release_cache = engine.release_cache

    def generate(self, requests, sampling, on_samples=None):
        answers = self._engine.generate(requests, sampling, on_samples)
        CALLS["tokens"] += sum(len(one.token_ids) for each in answers for one in each)
        return answers


class CountingConfig(EngineConfig):
    loud: bool = False

    def build(self, model, setting):
        CALLS["loud"] += self.loud
        return CountingEngine(embedded_engine(model))
""",
    "judge": """
from rlanything.records import Completion, JudgedTrajectory, Judgement
from rlanything.roles.judges.base import StepJudge
from toys import CALLS


class Admirer(StepJudge):
    def __init__(self, side, samples):
        self.side, self.samples = side, samples

    def judge(self, trajectories, seed, on_judgements=None):
        CALLS["judged"] += len(trajectories)
        return [JudgedTrajectory(one, tuple(map(self.scores, one.steps))) for one in trajectories]

    def scores(self, step):
        score = 1 if step.action == self.side else -1
        return (Judgement(Completion.unsampled("I like it"), score),) * self.samples
""",
    "metric": """
from rlanything.runs.metrics.registry import metrics
from rlanything.runs.results import IterationRecord


@metrics(IterationRecord, "Toys", {"toys/heads": ("share", "episodes in which heads was called")})
def heads(record):
    called = [one.trajectory.steps[0].action == "heads" for one in record.judged]
    return {"toys/heads": sum(called) / len(called) if called else None}
""",
    "command": """
import typer


def toss(times: int = 1):
    "Toss a coin."
    typer.echo("heads " * times)
""",
    "broken": """
raise RuntimeError("the toy box is locked")
""",
}

ENTRY_POINTS = """
[rlanything.losses]
scaled = toys.loss:scaled
[rlanything.advantages]
first_tokens = toys.advantage:first_tokens
[rlanything.domains]
coin = toys.domain:Coin
[rlanything.engines]
counting = toys.engine:CountingConfig
[rlanything.judges]
admirer = toys.judge:Admirer
[rlanything.metrics]
heads = toys.metric:heads
[rlanything.commands]
toss = toys.command:toss
"""

KINDS = ("losses", "advantages", "rewards", "domains", "engines", "judges", "adapters")
KINDS += ("metrics", "commands")
BROKEN = "".join(f"[rlanything.{kind}]\nbroken = toys.broken:toy\n" for kind in KINDS)


def install_toys(folder: Path, entry_points: str = ENTRY_POINTS) -> None:
    """Writes the package into a folder, with the metadata that pip would leave beside it."""
    for name, source in MODULES.items():
        (folder / "toys").mkdir(parents=True, exist_ok=True)
        (folder / "toys" / f"{name}.py").write_text(source.lstrip())
    metadata = folder / "toys-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: toys\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(entry_points.lstrip())


def python_path(folder: Path) -> str:
    """Returns PYTHONPATH as it is, with the folder before everything else."""
    return os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
