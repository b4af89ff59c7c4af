"""A judge on stored trajectories, whoever trained it and whoever acted: the paper's Tables 3, 4."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from rlanything.cluster.open import Here
from rlanything.config.recipe import Recipe, RecipeError, load_recipe
from rlanything.config.roles import LabellerConfig
from rlanything.domains.base import Domain
from rlanything.domains.registry import load_domain
from rlanything.evaluation.counts import Counts, level
from rlanything.evaluation.intervals import Interval
from rlanything.evaluation.judge_eval import AGREEING, BAD, GOOD, JudgeEvaluation, evaluation_of
from rlanything.evaluation.labels import oracle_labels
from rlanything.progress import Progress
from rlanything.records import Trajectory
from rlanything.roles.judges.unit_test import DETECT, UT
from rlanything.runs.build import build_chat_model, build_judge, build_labeller
from rlanything.runs.directory import check_run, day_begun
from rlanything.runs.eval_target import is_run, refuse_mistyped
from rlanything.runs.inside import IMAGES, RECIPE, STORE
from rlanything.runs.judge_source import JudgeSource, recorded_recipe
from rlanything.runs.store.records import recorded_labels, recorded_trajectories
from rlanything.runs.store.store import Store
from rlanything.runs.summary import percent
from rlanything.seeds import derive

RECORDED, ORACLE = "recorded", "oracle"
"""Label sources that are no model: what the run kept (its oracle's or its labeller's), and the
domain's oracle asked anew."""
PROCESS, BALANCED = "Process Acc", "Process Acc, balanced"
OF_LABELLER = "evaluation.labeller."
"""What an override of a labeller begins with."""


@dataclass(frozen=True, slots=True)
class JudgeEvalRequest:
    """A judge, the trajectories it is to judge, and what says which of their steps are good."""

    judge: str
    """A run directory, a recipe, a checkpoint folder, or a model (folder, id or nano)."""
    run: Path
    """The run whose trajectories are read."""
    overrides: Sequence[str] = ()
    """`section.key=value` of the judge's recipe; `evaluation.labeller.key=value` of labellers."""
    iteration: int | None = None
    """Rollouts of this iteration; None: the held-out episodes that the run keeps for its judge."""
    split: str | None = None
    """Held-out episodes of this split only."""
    episodes: int = 96
    """At most so many, drawn with the seed."""
    labellers: Sequence[str] = ()
    """`recorded`, `oracle` or models; none: what is recorded, if anything is."""
    seed: int = 0
    allow_code: bool = False
    """Whether code that the recipes name may be imported."""


@dataclass(frozen=True, slots=True)
class JudgeMeasure:
    """A measure of the judge against one source of labels."""

    measure: str
    source: str
    """What said what is right: a label source, `outcome`, or `programs` for tests."""
    count: int
    """Steps, or tests, that were counted."""
    share: Interval
    """With its 95% interval over tasks."""


@dataclass(frozen=True, slots=True)
class JudgeEvalResult:
    """The measures of a judge on stored trajectories."""

    request: JudgeEvalRequest
    episodes: int
    steps: int
    rows: tuple[JudgeMeasure, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "judge": self.request.judge,
            "run": str(self.request.run),
            "iteration": self.request.iteration,
            "episodes": self.episodes,
            "steps": self.steps,
            "rows": [
                {"measure": r.measure, "source": r.source, "count": r.count, **asdict(r.share)}
                for r in self.rows
            ],
        }

    def table(self) -> Table:
        where = "held-out episodes"
        if self.request.iteration is not None:
            where = f"episodes of iteration {self.request.iteration}"
        table = Table(
            title=f"{self.request.judge} on {self.episodes} {where} of {self.request.run}",
            caption="95% intervals, over tasks.",
        )
        table.add_column("measure")
        table.add_column("labels")
        table.add_column("steps or tests", justify="right")
        table.add_column("right", justify="right")
        for row in self.rows:
            table.add_row(row.measure, row.source, str(row.count), percent(row.share))
        return table


def run_judge_eval(request: JudgeEvalRequest, progress: Progress) -> JudgeEvalResult:
    """Has the judge judge the stored trajectories; nothing in the run is changed.

    Raises `RecipeError`, `StoreError` or `ModelError` where judge, run or labels cannot be used."""
    if not is_run(str(request.run)):
        raise RecipeError(
            f"{request.run} is not a run directory: name the run whose trajectories are to be "
            "judged with --trajectories RUN"
        )
    check_run(request.run)
    for override in request.overrides:
        if override.startswith(OF_LABELLER) and {*request.labellers} <= {RECORDED, ORACLE}:
            raise RecipeError(f"{override}: no model labels anything; name one with --labeller")
    # Its own judge is not asked unless it is the one named, whose overrides say how.
    same = Path(request.judge).resolve() == request.run.resolve()
    of_judge = [text for text in request.overrides if not text.startswith(OF_LABELLER)]
    own = of_judge if same else ["judge={}"]
    recipe = load_recipe(request.run / RECIPE, own, allow_code=request.allow_code)
    domain = load_domain(recipe.domain.name, recipe.domain.options)
    writes_tests = domain.capabilities.judge == "tests"
    if writes_tests and request.labellers:
        raise RecipeError(
            "--labeller: judges of this domain write tests, which programs label; leave it out"
        )
    judging = _judge_recipe(request, progress)
    played, recorded = _trajectories(request, writes_tests)
    day, models = day_begun(request.run), Here(judging.threads)
    config, images = judging.judge, (request.run / IMAGES,)
    judge = build_judge(
        config, domain, lambda: build_chat_model(config, "judge", models, day, images)
    )
    seed = derive(request.seed, "judge eval")
    steps = sum(len(trajectory.steps) for trajectory in played)
    with progress.live():
        with progress.phase("judgements", steps * judge.samples, "judgements") as advance:
            judged = judge.judge(played, seed, advance)
        labels = _labels(request, recipe.evaluation.labeller, domain, played, recorded, progress)
    weight = judging.feedback.judge_lambda
    measured = {name: evaluation_of(judge, judged, known, weight) for name, known in labels.items()}
    plain = evaluation_of(judge, judged, {}, weight)
    return JudgeEvalResult(request, len(played), steps, tuple(_rows(plain, measured)))


def _judge_recipe(request: JudgeEvalRequest, progress: Progress) -> Recipe:
    """Returns the recipe whose section `judge` is the judge that was asked for: its own, or that of
    the run with trajectories where it is a bare model."""
    overrides = [text for text in request.overrides if not text.startswith(OF_LABELLER)]
    JudgeSource(request.judge, overrides).refuse_unread()
    recorded = recorded_recipe(request.judge, overrides, request.allow_code, progress)
    if recorded is not None:
        return recorded
    target = Path(request.judge)
    refuse_mistyped(request.judge)
    model = str(target / "judge") if (target / "judge").is_dir() else request.judge
    own = [f"judge.model={json.dumps(model)}", "judge.name=llm", "judge.options={}"]
    return load_recipe(request.run / RECIPE, [*own, *overrides], allow_code=request.allow_code)


def _trajectories(
    request: JudgeEvalRequest, whole_tasks: bool
) -> tuple[list[Trajectory], dict[str, list[int]]]:
    """Returns the trajectories that are to be judged, and the labels that the run has of them;
    `whole_tasks`: all of a task or none.

    Raises `RecipeError` where there are none."""
    with closing(Store(request.run / STORE)) as store:
        store.check_values()
        if request.iteration is None:
            there = store.judge_eval_episodes()
            labels = store.judge_eval_labels()
        else:
            there = recorded_trajectories(store, request.iteration)
            labels = recorded_labels(store, request.iteration)
    there = [trajectory for trajectory in there if trajectory.steps]
    if request.split is not None:
        if request.iteration is not None:
            raise RecipeError("--split: rollouts of an iteration have none; leave --iteration out")
        there = [each for each in there if each.id.startswith(f"{request.split}/")]
    if not there:
        raise RecipeError(
            f"{request.run} has no such trajectories: give another --split or --iteration, those "
            "of another run (--trajectories RUN), or train with evaluation.judged_episodes and "
            "store.keep_iterations that keep some"
        )
    return drawn(there, request.episodes, request.seed, whole_tasks), labels


def drawn(
    there: Sequence[Trajectory], count: int, seed: int, whole_tasks: bool
) -> list[Trajectory]:
    """Returns `count` trajectories at most, in their order, the same for the same seed.
    `whole_tasks`: all of a task or none, and of one task at least; tests are counted by what all
    programs of a task do."""
    units: dict[str, list[int]] = {}
    for i, trajectory in enumerate(there):
        units.setdefault(trajectory.task.id if whole_tasks else str(i), []).append(i)
    order = list(units.values())
    random.Random(derive(seed, "trajectories")).shuffle(order)
    taken: list[int] = []
    for unit in order:
        if not taken or len(taken) + len(unit) <= count:
            taken += unit
    return [there[i] for i in sorted(taken)]


def _labels(
    request: JudgeEvalRequest,
    own_labeller: LabellerConfig | None,
    domain: Domain,
    played: Sequence[Trajectory],
    recorded: Mapping[str, list[int]],
    progress: Progress,
) -> dict[str, dict[str, list[int]]]:
    """Returns the labels of each source by trajectory. Raises `RecipeError` for one that is named
    and has none."""
    own = {each.id: recorded[each.id] for each in played if each.id in recorded}
    if not request.labellers:
        return {RECORDED: own} if own else {}
    labels: dict[str, dict[str, list[int]]] = {}
    for source in dict.fromkeys(request.labellers):
        if source == RECORDED:
            labels[source] = own
        elif source == ORACLE:
            labels[source] = oracle_labels(domain, played)
        else:
            labels[source] = _labelled(request, source, own_labeller, domain, played, progress)
        if not any(map(any, labels[source].values())):
            raise RecipeError(
                f"--labeller {source}: no step of these trajectories has a label of it; name a "
                "model, or another one"
            )
    return labels


def _labelled(
    request: JudgeEvalRequest,
    model: str,
    there: LabellerConfig | None,
    domain: Domain,
    played: Sequence[Trajectory],
    progress: Progress,
) -> dict[str, list[int]]:
    """Returns the majority labels of a model, which judges as the run's own labeller would; `there`
    is that one."""
    refuse_mistyped(model)
    own = [text for text in request.overrides if text.startswith(OF_LABELLER)]
    # What the run itself evaluates is of no matter here, and may be nothing.
    free = ("evaluation.episodes=1", "evaluation.judged_episodes=1", "evaluation.baseline=null")
    named = json.dumps(model)
    chosen = f"evaluation.labeller={{model: {named}}}"
    if there is not None:  # else as the run's own is asked: none of it is a word of the user's
        chosen = f"evaluation.labeller.model={named}"
    recipe = load_recipe(request.run / RECIPE, [*free, chosen, *own], allow_code=request.allow_code)
    models = Here(recipe.threads)
    images = (request.run / IMAGES,)
    labeller = build_labeller(recipe, domain, day_begun(request.run), models, images)
    assert labeller is not None  # it has just been named
    return labeller.label(played, derive(request.seed, "labels", model), progress)


def _rows(plain: JudgeEvaluation, measured: Mapping[str, JudgeEvaluation]) -> list[JudgeMeasure]:
    rows: list[JudgeMeasure] = []
    for source, evaluation in measured.items():
        whole = {
            item: {PROCESS: _added(counts.get(GOOD, (0, 0)), counts.get(BAD, (0, 0)))}
            for item, counts in evaluation.counts.items()
        }
        rows += _row(PROCESS, source, whole, (PROCESS,))
        rows += _row(BALANCED, source, evaluation.counts, (GOOD, BAD))
    rows += _row("Outcome Acc", "outcome", plain.counts, (AGREEING,))
    for measure in (UT, DETECT):
        rows += _row(measure, "programs", plain.counts, (measure,))
    return rows


def _row(
    measure: str, source: str, items: Mapping[str, Counts], names: Sequence[str]
) -> list[JudgeMeasure]:
    """Returns the row of a measure; none where there is nothing to count."""
    share = level(items, names)
    count = sum(counts[name][1] for counts in items.values() for name in names if name in counts)
    return [JudgeMeasure(measure, source, count, share)] if share is not None and count else []


def _added(one: tuple[int, int], two: tuple[int, int]) -> tuple[int, int]:
    return one[0] + two[0], one[1] + two[1]
