"""The page of metrics lists what the code writes, and nothing else."""

from __future__ import annotations

from helpers.paths import SOURCE
import ast
from pathlib import Path

from helpers.metrics_page import PAGE, page_patterns, unlisted
from rlanything.algorithm.curriculum import Pool
from rlanything.evaluation.diagnostics import diagnose
from rlanything.evaluation.intervals import Interval
from rlanything.evaluation.judge_eval import AGREEING, BAD, GOOD, JudgeEvaluation
from rlanything.evaluation.success import Evaluation
from rlanything.algorithm.feedback import FeedbackSettings
from rlanything.learning.statistics import Totals
from rlanything.loop import IterationResult
from rlanything.records import Task, Trajectory
from rlanything.roles.judges.unit_test import DETECT, UT
from rlanything.runs.checks import RULES
from rlanything.runs.metrics import drift_metrics, evaluation_metrics, iteration_metrics

SOURCE = SOURCE / "rlanything"
QUANTITIES = ("requests", "retries", "prompt_tokens", "completion_tokens")


def phases(*files: str) -> set[str]:
    """The names that the source gives to phases; those that depend on a split, for one of them."""
    found: set[str] = set()
    for name in files:
        for node in ast.walk(ast.parse((SOURCE / name).read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "phase":
                first = node.args[0]
                if isinstance(first, ast.Constant):
                    found.add(str(first.value))
                elif isinstance(first, ast.JoinedStr):
                    found.add("eval ood")
    return found - {"iterations"}  # which lasts as long as the run


def writable() -> set[str]:
    """Every name that the code can write, as far as it can be told without running it."""
    nothing = diagnose([], [], [], 1.0)
    statistics = Totals(reference_kl=0.0).statistics()
    usage = {f"{role}/{q}": 1 for role in ("policy", "judge", "adapter") for q in QUANTITIES}
    shares = {UT: (1, 2), DETECT: (1, 2)}
    turn = IterationResult(1, policy_statistics=statistics, judge_statistics=statistics)
    seconds = dict.fromkeys(
        phases(
            *("loop.py", "runs/trainer.py"),
            *(f"evaluation/{name}.py" for name in ("success", "judge_eval", "labels")),
        ),
        1.0,
    )
    counted = dict.fromkeys(shares, 0.5)
    settings = FeedbackSettings()
    names = set(iteration_metrics(turn, nothing, settings, counted, usage, seconds))
    won = Evaluation("ood", (Trajectory("t", Task("t", "do"), (), 1),), 0, 1.0)
    assert isinstance(won.success, Interval)
    examined = JudgeEvaluation(nothing, {"t": {GOOD: (1, 1), BAD: (1, 1), AGREEING: (1, 1), **shares}})
    pool = Pool([Task("t", "do")], 0.2, 0.8)
    names |= set(drift_metrics(pool, lambda one, other: 0.0))
    return names | set(evaluation_metrics([won], examined, usage))


def test_the_page_lists_every_metric_that_can_be_written() -> None:
    assert unlisted(writable()) == set()


def test_every_metric_on_the_page_can_be_written() -> None:
    names = writable()
    missing = {
        name
        for name, pattern in page_patterns().items()
        if not any(pattern.fullmatch(each) for each in names)
    }
    assert missing == set()


def test_an_unlisted_metric_is_found() -> None:
    assert unlisted({"judge/mu", "judge/charm", "seconds/eval_ood"}) == {"judge/charm"}


def test_the_page_lists_every_warning() -> None:
    page = PAGE.read_text().split("## Warnings")[1]
    listed = [line.split("|")[1].strip() for line in page.splitlines() if line.startswith("| ")]
    assert set(listed[1:]) == set(RULES)
