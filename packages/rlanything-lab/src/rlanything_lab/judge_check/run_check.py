"""The check of a run's judge on corrupted steps, before and after training."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from rlanything.cluster.open import InProcessModels
from rlanything.config.recipe import RecipeError, load_recipe
from rlanything.config.roles import JudgeConfig, role_key
from rlanything.domains.base import Domain
from rlanything.domains.registry import load_domain
from rlanything.evaluation.counts import Counts, gain, level
from rlanything.evaluation.intervals import Interval
from rlanything.progress import Progress
from rlanything.roles.judges.llm import LLMJudge
from rlanything.runs.build import build_chat_model, build_judge
from rlanything.runs.directory import day_begun
from rlanything.runs.paths import IMAGES, RECIPE, STORE, reject_links
from rlanything.runs.recovery import last_position
from rlanything.runs.store.store import Store
from rlanything.runs.summary import percent, points
from rlanything.seeds import derive
from rlanything_lab.judge_check.judge_check import MEASURES, draw, evaluate

STEPS_PER_EPISODE = 4
"""Largest number of steps per episode. Steps of one episode are similar: more episodes are more
informative than more steps."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The corruptions that the judge noticed. All intervals are 95%, over episodes."""

    run: str
    episodes: int
    steps: int
    """Number of steps drawn from them."""
    applies: Mapping[str, int]
    """Number of good steps to which each corruption applies."""
    before: Mapping[str, Counts]
    after: Mapping[str, Counts] | None
    """None if the judge does not train, or no iteration is finished."""

    def to_json(self) -> dict[str, Any]:
        return {
            "run": self.run,
            "episodes": self.episodes,
            "steps": self.steps,
            "applies": dict(self.applies),
            "measures": {
                measure: {
                    "before": _json(self.before, measure),
                    "after": None if self.after is None else _json(self.after, measure),
                    "change": asdict(change) if (change := self.change(measure)) else None,
                }
                for measure in MEASURES
            },
        }

    def change(self, measure: str) -> Interval | None:
        return None if self.after is None else gain(self.before, self.after, (measure,))

    def table(self) -> Table:
        table = Table(
            title=f"{self.run}: {self.steps} steps of {self.episodes} episodes",
            caption="How often the judge calls a good step bad that it had approved; the last "
            "four: how often a verdict turns to the opposite score, asked for or not. The "
            "difference to the control is the effect of the corruption. 95% intervals.",
        )
        table.add_column("corruption")
        table.add_column("applies to", justify="right")
        table.add_column("before", justify="right")
        if self.after is not None:
            table.add_column("after", justify="right")
            table.add_column("change", justify="right")
        for measure in MEASURES:
            row = [measure, str(self.applies.get(measure, "")), _shown(self.before, measure)]
            if self.after is not None:
                change = self.change(measure)
                row += [_shown(self.after, measure), points(change) if change else "-"]
            table.add_row(*row)
        return table


def check_judge(
    run: Path,
    episodes: int,
    progress: Progress,
    *,
    allow_code: bool = False,
    role: str | None = None,
) -> CheckResult:
    """Corrupts steps of a run's recorded judge evaluation and has its judge judge them again.
    `allow_code`: import code that its recipe names.

    Raises `RecipeError` for a directory without a run, or a run whose judge does not read steps.
    Raises `StoreError` or `ModelError` if its files cannot be used."""
    if not (run / RECIPE).is_file():
        raise RecipeError(f"{run} is not a run directory: it has no {RECIPE}")
    reject_links(run)
    recipe = load_recipe(run / RECIPE, allow_code=allow_code)
    domain = load_domain(recipe.domain.name, recipe.domain.options)
    name = recipe.one_judge(role)
    own = recipe.judges[name]
    _check_that_it_reads_steps(run, own, domain)
    with closing(Store(run / STORE)) as store:
        recorded = [episode for episode in store.judge_eval_episodes() if episode.steps][:episodes]
        labels = store.judge_eval_labels()
    if not recorded:
        raise RecipeError(
            f"{run} has no recorded evaluation of its judge: train with evaluation.episodes and "
            "evaluation.judged_episodes above 0"
        )
    models = InProcessModels(recipe.threads)
    seed = derive(recipe.seed, "judge check")
    drawn = draw(domain.action_marker, recorded, labels, STEPS_PER_EPISODE, seed)

    def counts(config: JudgeConfig, phase: str) -> dict[str, Counts]:
        chat_model = build_chat_model(config, name, models, day_begun(run), (run / IMAGES,))
        judge = build_judge(config, domain, lambda: chat_model, role_key(name))
        assert isinstance(judge, LLMJudge)  # it reads steps
        return evaluate(judge, drawn, seed, phase, progress)

    with progress.live():
        before, after = counts(own, "before training"), None
        latest = last_position(run, progress.log).checkpoint if own.trains else None
        if latest is not None:
            trained = own.model_copy(update={"model": str(latest / name)})
            after = counts(trained, "after training")
    if after is None:
        progress.log("this judge does not train, or no iteration is finished: there is no `after`")
    applies = {name: len(steps) for name, steps in drawn.corrupted.items()}
    return CheckResult(str(run), len(recorded), len(drawn.places), applies, before, after)


def _check_that_it_reads_steps(run: Path, judge: JudgeConfig, domain: Domain) -> None:
    if judge.name != "llm":
        raise RecipeError(
            f"{run}: its judge ({judge.name}) is no language model, and reads no words to "
            "be misled by"
        )
    if domain.capabilities.judge == "tests":
        raise RecipeError(
            f"{run}: its judge writes tests and reads no steps, so there are none to corrupt; UT "
            "and Detect say how good its tests are"
        )


def _json(items: Mapping[str, Counts], measure: str) -> dict[str, Any] | None:
    share = level(items, (measure,))
    if share is None:
        return None
    counts = [counts[measure] for counts in items.values() if measure in counts]
    hits, totals = zip(*counts, strict=True)
    return {"hits": sum(hits), "of": sum(totals), **asdict(share)}


def _shown(items: Mapping[str, Counts], measure: str) -> str:
    share = _json(items, measure)
    return f"{percent(level(items, (measure,)))} of {share['of']}" if share else "-"
