"""Evaluation of any judge on stored trajectories of any policy: the paper's Tables 3 and 4."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rich.table import Table

from rlanything.cluster.open import InProcessModels
from rlanything.config.recipe import Recipe, RecipeError, load_recipe
from rlanything.config.roles import LabellerConfig, role_key
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
from rlanything.runs.paths import IMAGES, RECIPE, STORE
from rlanything.runs.store.store import Store
from rlanything.runs.summary import percent
from rlanything.runs.target import RecipeTarget, RunTarget, is_run, reject_mistyped
from rlanything.seeds import derive
from rlanything_judge.recorded import recorded_labels, recorded_trajectories
from rlanything_judge.source import JudgeSource

RECORDED, ORACLE = "recorded", "oracle"
"""Label sources that are not models: the labels that the run kept (its oracle's or its
labeller's), and the domain's oracle, asked again."""
PROCESS, BALANCED = "Process Acc", "Process Acc, balanced"
OF_LABELLER = "evaluation.labeller."
"""Prefix of an override for labellers."""


@dataclass(frozen=True, slots=True)
class JudgeEvalArgs:
    """A judge, the trajectories that it judges, and the sources of their labels."""

    judge: str
    """A run directory, a recipe, a checkpoint folder, or a model (folder, id or nano)."""
    run: Path
    """Run whose trajectories are read."""
    overrides: Sequence[str] = ()
    """`section.key=value` of the judge's recipe; `evaluation.labeller.key=value` of labellers."""
    iteration: int | None = None
    """Rollouts of this iteration; None: the held-out episodes that the run keeps for its judge."""
    split: str | None = None
    """Held-out episodes of this split only."""
    episodes: int = 96
    """Largest number of episodes, drawn with the seed."""
    labellers: Sequence[str] = ()
    """`recorded`, `oracle` or models; empty: the recorded labels, if there are any."""
    seed: int = 0
    allow_code: bool = False
    """Whether code that the recipes name may be imported."""
    role: str | None = None
    """The judge's name in a recipe with several; None: the only one."""


@dataclass(frozen=True, slots=True)
class JudgeMeasure:
    """A measure of the judge against one source of labels."""

    measure: str
    source: str
    """Source of the truth: a label source, `outcome`, or `programs` for tests."""
    count: int
    """Number of steps or tests."""
    share: Interval
    """Share that was right, with its 95% interval over tasks."""


@dataclass(frozen=True, slots=True)
class JudgeEvalResult:
    """The measures of a judge on stored trajectories."""

    args: JudgeEvalArgs
    episodes: int
    steps: int
    rows: tuple[JudgeMeasure, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "judge": self.args.judge,
            "run": str(self.args.run),
            "iteration": self.args.iteration,
            "episodes": self.episodes,
            "steps": self.steps,
            "rows": [
                {"measure": r.measure, "source": r.source, "count": r.count, **asdict(r.share)}
                for r in self.rows
            ],
        }

    def table(self) -> Table:
        where = "held-out episodes"
        if self.args.iteration is not None:
            where = f"episodes of iteration {self.args.iteration}"
        table = Table(
            title=f"{self.args.judge} on {self.episodes} {where} of {self.args.run}",
            caption="95% intervals, over tasks.",
        )
        table.add_column("measure")
        table.add_column("labels")
        table.add_column("steps or tests", justify="right")
        table.add_column("right", justify="right")
        for row in self.rows:
            table.add_row(row.measure, row.source, str(row.count), percent(row.share))
        return table


def run_judge_eval(args: JudgeEvalArgs, progress: Progress) -> JudgeEvalResult:
    """Lets the judge score the stored trajectories; changes nothing in the run.

    Raises `RecipeError`, `StoreError` or `ModelError` if judge, run or labels cannot be used."""
    if not is_run(str(args.run)):
        raise RecipeError(
            f"{args.run} is not a run directory: name the run whose trajectories are to be "
            "judged with --trajectories RUN"
        )
    check_run(args.run)
    for override in args.overrides:
        if override.startswith(OF_LABELLER) and {*args.labellers} <= {RECORDED, ORACLE}:
            raise RecipeError(f"{override}: no model labels anything; name one with --labeller")
    # The run's own roles matter only if its judge is the one named; then overrides are for it.
    same = Path(args.judge).resolve() == args.run.resolve()
    of_judge = [text for text in args.overrides if not text.startswith(OF_LABELLER)]
    own = of_judge if same else ["roles={}", "judge={}"]
    recipe = load_recipe(args.run / RECIPE, own, allow_code=args.allow_code)
    domain = load_domain(recipe.domain.name, recipe.domain.options)
    writes_tests = domain.capabilities.judge == "tests"
    if writes_tests and args.labellers:
        raise RecipeError(
            "--labeller: judges of this domain write tests, which programs label; leave it out"
        )
    judging = _judge_recipe(args, of_judge, progress)
    played, recorded = _trajectories(args, writes_tests)
    day, models = day_begun(args.run), InProcessModels(judging.threads)
    name = judging.one_judge(args.role)
    config = judging.judges[name]
    chat_model = partial(build_chat_model, config, name, models, day, (args.run / IMAGES,))
    judge = build_judge(config, domain, chat_model, role_key(name))
    seed = derive(args.seed, "judge eval")
    steps = sum(len(trajectory.steps) for trajectory in played)
    with progress.live():
        with progress.phase("judgements", steps * judge.samples, "judgements") as advance:
            judged = judge.judge(played, seed, advance)
        labels = _labels(args, recipe.evaluation.labeller, domain, played, recorded, progress)
    weight = judging.feedback.judge_lambda
    measured = {name: evaluation_of(judge, judged, known, weight) for name, known in labels.items()}
    plain = evaluation_of(judge, judged, {}, weight)
    return JudgeEvalResult(args, len(played), steps, tuple(_rows(plain, measured)))


def _judge_recipe(args: JudgeEvalArgs, overrides: Sequence[str], progress: Progress) -> Recipe:
    """Returns the recipe with the judge to evaluate: its own, or for a bare model that of the run
    with the trajectories."""
    source = JudgeSource(args.judge, overrides, None, args.allow_code, args.role)
    source.refuse_unread()
    if isinstance(source.target, RunTarget | RecipeTarget):
        return source.trained_recipe(progress)
    there = load_recipe(args.run / RECIPE, allow_code=args.allow_code)
    name = there.one_judge(args.role)
    folder = Path(args.judge) / name
    model = str(folder) if folder.is_dir() else args.judge
    own = {"model": json.dumps(model), "name": "llm", "options": "{}"}
    lines = [f"roles.{name}.{key}={value}" for key, value in own.items()]
    return load_recipe(args.run / RECIPE, [*lines, *overrides], allow_code=args.allow_code)


def _trajectories(
    args: JudgeEvalArgs, whole_tasks: bool
) -> tuple[list[Trajectory], dict[str, list[int]]]:
    """Returns the trajectories to judge, and the labels that the run has of them; `whole_tasks`:
    all of a task or none.

    Raises `RecipeError` if there are none."""
    with closing(Store(args.run / STORE)) as store:
        store.check_values()
        if args.iteration is None:
            there = store.judge_eval_episodes()
            labels = store.judge_eval_labels()
        else:
            there = recorded_trajectories(store, args.iteration)
            labels = recorded_labels(store, args.iteration)
    there = [trajectory for trajectory in there if trajectory.steps]
    if args.split is not None:
        if args.iteration is not None:
            raise RecipeError("--split: rollouts of an iteration have none; leave --iteration out")
        there = [each for each in there if each.id.startswith(f"{args.split}/")]
    if not there:
        raise RecipeError(
            f"{args.run} has no such trajectories: give another --split or --iteration, those "
            "of another run (--trajectories RUN), or train with evaluation.judged_episodes and "
            "store.keep_iterations that keep some"
        )
    return drawn(there, args.episodes, args.seed, whole_tasks), labels


def drawn(
    there: Sequence[Trajectory], count: int, seed: int, whole_tasks: bool
) -> list[Trajectory]:
    """Returns at most `count` trajectories, in their order, the same for the same seed.
    `whole_tasks`: all of a task or none, and at least one task; a test counts by what all programs
    of its task do."""
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
    args: JudgeEvalArgs,
    own_labeller: LabellerConfig | None,
    domain: Domain,
    played: Sequence[Trajectory],
    recorded: Mapping[str, list[int]],
    progress: Progress,
) -> dict[str, dict[str, list[int]]]:
    """Returns the labels of each source by trajectory. Raises `RecipeError` for a named source that
    has none."""
    own = {each.id: recorded[each.id] for each in played if each.id in recorded}
    if not args.labellers:
        return {RECORDED: own} if own else {}
    labels: dict[str, dict[str, list[int]]] = {}
    for source in dict.fromkeys(args.labellers):
        if source == RECORDED:
            labels[source] = own
        elif source == ORACLE:
            labels[source] = oracle_labels(domain, played)
        else:
            labels[source] = _labelled(args, source, own_labeller, domain, played, progress)
        if not any(map(any, labels[source].values())):
            raise RecipeError(
                f"--labeller {source}: no step of these trajectories has a label of it; name a "
                "model, or another one"
            )
    return labels


def _labelled(
    args: JudgeEvalArgs,
    model: str,
    there: LabellerConfig | None,
    domain: Domain,
    played: Sequence[Trajectory],
    progress: Progress,
) -> dict[str, list[int]]:
    """Returns the majority labels of a model, asked like the run's own labeller; `there`: the
    settings of that labeller."""
    reject_mistyped(model)
    own = [text for text in args.overrides if text.startswith(OF_LABELLER)]
    # The run's own evaluation does not matter here, and may be switched off.
    free = ("evaluation.episodes=1", "evaluation.judged_episodes=1", "evaluation.baseline=null")
    named = json.dumps(model)
    chosen = f"evaluation.labeller={{model: {named}}}"
    if there is not None:  # keep the settings of the run's own labeller
        chosen = f"evaluation.labeller.model={named}"
    recipe = load_recipe(args.run / RECIPE, [*free, chosen, *own], allow_code=args.allow_code)
    models = InProcessModels(recipe.threads)
    images = (args.run / IMAGES,)
    labeller = build_labeller(recipe, domain, day_begun(args.run), models, images)
    assert labeller is not None  # it has just been named
    return labeller.label(played, derive(args.seed, "labels", model), progress)


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
    """Returns the row of a measure; empty if there is nothing to count."""
    share = level(items, names)
    count = sum(counts[name][1] for counts in items.values() for name in names if name in counts)
    return [JudgeMeasure(measure, source, count, share)] if share is not None and count else []


def _added(one: tuple[int, int], two: tuple[int, int]) -> tuple[int, int]:
    return one[0] + two[0], one[1] + two[1]
