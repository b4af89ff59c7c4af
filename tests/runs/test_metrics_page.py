"""The code writes every registered metric, and no other."""

from __future__ import annotations

import ast
import re

from helpers.metrics_page import DECLARED, unlisted
from helpers.paths import SOURCE
from rlanything.algorithm.curriculum import Pool, WorldSettings
from rlanything.domains.base import EpisodeError
from rlanything.evaluation.counts import Counts
from rlanything.evaluation.diagnostics import diagnose
from rlanything.evaluation.judge_eval import AGREEING, BAD, GOOD, JudgeEvaluation
from rlanything.evaluation.success import Evaluation
from rlanything.learning.statistics import Totals
from rlanything.loop import IterationResult
from rlanything.records import Task, Trajectory
from rlanything.roles.judges.scores import QUADRATIC, WON_AT
from rlanything.roles.judges.unit_test import DETECT, UT
from rlanything.runs.metrics.measuring import Meter, find_metric
from rlanything.runs.results import EvaluationRecord, IterationRecord

CODE = SOURCE / "rlanything"
QUANTITIES = ("requests", "retries", "prompt_tokens", "completion_tokens", "too_long")
QUANTITIES += ("cut", "refused", "empty")


def phases(*files: str) -> set[str]:
    """The names that the source gives to phases; of those with a part that depends, one."""
    names: set[str] = set()
    for name in files:
        for node in ast.walk(ast.parse((CODE / name).read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "phase":
                first = node.args[0]
                if isinstance(first, ast.Constant):
                    names.add(str(first.value))
                elif isinstance(first, ast.JoinedStr):
                    parts = [getattr(part, "value", "") for part in first.values]
                    names.add("".join(p if isinstance(p, str) else "ood" for p in parts))
    return names - {"iterations"}  # which lasts as long as the run


def refuse(line: str) -> None:
    raise AssertionError(line)


def writable() -> set[str]:
    """Every name that the code can write, as far as it can be told without running it."""
    statistics = Totals(reference_kl=0.0).statistics()
    usage = {f"{role}/{q}": 1 for role in ("policy", "judge", "adapter") for q in QUANTITIES}
    shares = dict.fromkeys((UT, DETECT, QUADRATIC, *WON_AT), (1, 2))
    files = [f"evaluation/{name}.py" for name in ("success", "judge_eval", "labels")]
    pool = Pool([Task("w/t", "do")], 0.2, 0.8, {"w": WorldSettings(1.0, 0.2, 0.8, (0, 1))})
    pool.under_way["w/t"] = 1
    iteration = IterationRecord(
        result=IterationResult(
            1,
            failures=(EpisodeError("t", "the machine is full", masked=True),),
            crashes=(EpisodeError("t", "it died", lost=True),),
            lambdas={"judge": 0.5},
            replays={"steps": 9, "measured": 2, "changed": 1},
            statistics={"policy": statistics, "judge": statistics},
        ),
        pool=pool,
        judge_counts={"judge": {"t": shares}},
        usage=usage,
        seconds=dict.fromkeys(phases("experience.py", "loop.py", "runs/session.py", *files), 1.0),
        distance=lambda one, other: 0.0,
    )
    counts: dict[str, Counts] = {"t": {GOOD: (1, 1), BAD: (1, 1), AGREEING: (1, 1), **shares}}
    evaluation = EvaluationRecord(
        number=0,
        evaluations=[
            Evaluation("ood", (Trajectory("t", Task("t", "do"), (), 1),), (Task("u", "do"),), 1.0)
        ],
        judges={"judge": JudgeEvaluation(diagnose([], [], [], 1.0), counts)},
        usage=usage,
    )
    meter = Meter(refuse)
    return {*meter.measure(iteration).metrics, *meter.measure(evaluation).metrics}


def test_every_metric_that_can_be_written_is_declared() -> None:
    assert unlisted(writable()) == set()


def test_every_metric_that_is_declared_can_be_written() -> None:
    names = writable()
    assert [m.name for m in DECLARED if not any(map(m.matches, names))] == []


def test_an_undeclared_metric_is_noticed() -> None:
    assert unlisted({"judge/mu", "judge/charm", "seconds/eval_ood"}) == {"judge/charm"}


def test_the_report_plots_metrics_that_there_are() -> None:
    scripts = sorted((CODE / "runs" / "report" / "page").glob("*.js"))
    rooms = {metric.name.split("/")[0] for metric in DECLARED}
    pattern = re.compile(rf'"((?:{"|".join(sorted(rooms))})/[a-z_]+)"')
    named = {name for script in scripts for name in pattern.findall(script.read_text())}
    assert len(named) >= 15
    for name in named:
        find_metric(name)
