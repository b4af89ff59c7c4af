"""Does what an update teaches on some tasks help on others? Writes a section of carry-over.md.

    python benchmarks/carry_over.py RECIPE [section.key=value ...] [--title RECIPE] [--tasks 48]
        [--play]

Plays training tasks with the policy before training, in three parts. On two parts it makes one
update as the recipe has it, and asks what the new policy would win on the third: by weighing the
episodes that were played there by how much likelier they have become, E[w x won], which costs no
episode; and with `--play` by playing them as well, which says whether the weights can be trusted.
Answers at lower temperatures are weighed and played in the same way.
"""

from __future__ import annotations

import argparse
import math
import platform
import shlex
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from few import mean_of_few
from torch import no_grad

from rlanything.cluster.models import TrainedModel
from rlanything.cluster.open import InProcessModels
from rlanything.config.recipe import Recipe, load_recipe
from rlanything.domains.base import Domain
from rlanything.domains.registry import load_domain
from rlanything.evaluation.success import evaluate, won_shares
from rlanything.learning.scorer import TokenScorer
from rlanything.learning.shares import arrange
from rlanything.learning.trained_tokens import trained_tokens
from rlanything.progress import Progress
from rlanything.records import Sample, Task, Trajectory
from rlanything.roles.chat_model import LocalChatModel
from rlanything.roles.judges.oracle import OracleJudge
from rlanything.roles.judges.panel import JudgePanel
from rlanything.rollout.groups import RolloutGroup, ScheduledTask, grouped
from rlanything.rollout.workers import EnvironmentPool
from rlanything.runs.build import build_policy, trained_source
from rlanything.runs.summary import points
from rlanything.seeds import derive
from rlanything.terminal import Terminal

PAGE = Path(__file__).with_name("carry-over.md")
PARTS = 3
LARGEST = 3.0
"""Log-ratios are cut here, so that no single episode decides; estimates of gains err downward."""
TEMPERATURES = (0.9, 0.8, 0.65)
SECTION = "\n## "


@dataclass(frozen=True, slots=True)
class Lesson:
    """Settings of an update."""

    name: str
    policy_reward: str
    rate: float = 1.0
    """Times the recipe's learning rate."""


LESSONS = (
    Lesson("outcomes", "outcome"),
    Lesson("outcomes, half the learning rate", "outcome", 0.5),
    Lesson("outcomes, twice the learning rate", "outcome", 2.0),
    Lesson("outcomes and the oracle's labels (Eq. 1)", "integrated"),
    Lesson("the oracle's labels alone", "judge"),
)


@dataclass(frozen=True, slots=True)
class Weighed:
    """An episode that was played before the update."""

    task: str
    won: bool
    change: float
    """Change by the update of the summed log-prob of the episode's answers."""


class Study:
    """The policy of a recipe on tasks that it trains on."""

    def __init__(
        self, recipe: Recipe, domain: Domain, environments: EnvironmentPool, progress: Progress
    ) -> None:
        self.recipe, self.domain, self.progress = recipe, domain, progress
        self._environments = environments

    def policy(self, rate: float = 1.0) -> TrainedModel:
        """Returns the policy as it is before training."""
        learning_rate = rate * self.recipe.policy.learning_rate
        role = self.recipe.policy.model_copy(update={"learning_rate": learning_rate})
        return InProcessModels(self.recipe.threads).trained(
            trained_source(self.recipe, None, (), "policy", role)
        )

    def play(
        self, model: TrainedModel, tasks: Sequence[Task], temperature: float
    ) -> list[Trajectory]:
        """Plays every task as often as a rollout group has members; the seeds are the same
        whatever plays."""
        recipe, settings = self.recipe, self.recipe.environment
        chat_model = LocalChatModel(model.model, model.engine)
        model.engine.sync_weights()
        played = evaluate(
            build_policy(chat_model, self.domain, recipe.policy, temperature),
            self._environments,
            tasks,
            "train",
            max_steps=recipe.loop.max_steps,
            parallel_episodes=settings.parallel_episodes,
            seed=derive(recipe.seed, "carry over"),
            progress=self.progress,
            rollouts=recipe.loop.rollouts_per_task,
            lockstep=settings.lockstep,
        )
        return list(played.trajectories)

    def groups(self, played: Sequence[Trajectory], lesson: Lesson) -> list[RolloutGroup]:
        """Returns what the episodes teach."""
        settings = self.recipe.feedback.model_copy(update={"policy_reward": lesson.policy_reward})
        outcomes_alone = lesson.policy_reward == "outcome"
        judge = JudgePanel({} if outcomes_alone else {"judge": OracleJudge(self.domain, 1)})
        judged = judge.judge(played, {"judge": 0})
        tasks = {each.task.id: each.task for each in played}
        scheduled = [ScheduledTask(name, task, False) for name, task in tasks.items()]
        return grouped(scheduled, judged, lambda group: judge.signals(group, settings))

    def taught(self, lesson: Lesson, played: Sequence[Trajectory]) -> TrainedModel:
        """Returns the policy after one update on these episodes."""
        model = self.policy(lesson.rate)
        groups = self.groups(played, lesson)
        samples = [(g.scheduled.task.id, sample) for g in groups for sample in g.samples("policy")]
        with self.progress.phase("policy update", len(samples), "samples") as advance:
            model.learner.update(samples, derive(self.recipe.seed, "minibatches"), advance)
        return model

    @no_grad()
    def weighed(
        self, model: TrainedModel, played: Sequence[Trajectory], temperature: float
    ) -> list[Weighed]:
        """Returns how much likelier the episodes have become."""
        scorer = TokenScorer(model.model, temperature)
        changes = [0.0] * len(played)
        samples = [
            (each.task.id, Sample(str(number), step.completion, 1.0))
            for number, each in enumerate(played)
            for step in each.steps
        ]
        for work in arrange(samples, self.recipe.policy, 0):
            for batch in (each.batch for each in work):
                tokens = trained_tokens(batch, math.inf, model.model.device)
                differences = scorer(batch, tokens)[0] - tokens.old_logprobs
                for sample, change in zip(
                    tokens.samples.tolist(), differences.tolist(), strict=True
                ):
                    changes[int(batch.samples[sample].source)] += change
        return [
            Weighed(each.task.id, each.outcome == 1, change)
            for each, change in zip(played, changes, strict=True)
        ]


def estimated(episodes: Sequence[Weighed]) -> list[float]:
    """Returns what would be won more, by task."""
    gains: defaultdict[str, list[float]] = defaultdict(list)
    for each in episodes:
        gains[each.task].append((math.exp(min(each.change, LARGEST)) - 1) * each.won)
    return [statistics.fmean(of_task) for of_task in gains.values()]


def won(played: Sequence[Trajectory]) -> dict[str, float]:
    return won_shares([each.task.id for each in played], [each.outcome for each in played])


def row(
    name: str, episodes: Sequence[Weighed], before: dict[str, float], after: dict[str, float]
) -> str:
    """`after`: what was won by playing; empty: it was not played."""

    def change(outcome: bool) -> str:
        changes = [each.change for each in episodes if each.won == outcome]
        return f"{statistics.fmean(changes):+.2f}" if changes else "-"

    both = [after[task] - before[task] for task in before if task in after]
    cells = [
        name,
        said(estimated(episodes)),
        said(both) if both else "-",
        change(True),
        change(False),
    ]
    return f"| {' | '.join(cells)} |"


def said(gains: Sequence[float]) -> str:
    interval = mean_of_few(gains)
    return points(interval) if interval else f"{100 * statistics.fmean(gains):+.1f} points"


def section(study: Study, title: str, count: int, plays: bool, command: str) -> str:
    recipe = study.recipe
    tasks = study.domain.tasks("train", count, derive(recipe.seed, "roots"))
    temperature = recipe.policy.temperature
    untaught = study.policy()
    before = study.play(untaught, tasks, temperature)
    share = won(before)
    lines = [
        title,
        "",
        f"`{command}`, python {platform.python_version()}, torch {version('torch')}. {len(before)} "
        f"episodes of {len(share)} training tasks, of which the policy before training wins "
        f"{statistics.fmean(each.outcome == 1 for each in before):.1%}; an update is on "
        f"two thirds of the tasks, {recipe.policy.minibatches} minibatches at "
        f"{recipe.policy.learning_rate:g}.",
        "",
        "| | would be won more, by weights | won more, played | log-prob of a won episode "
        "| of a lost one |",
        "|---|---|---|---|---|",
    ]
    for lower in TEMPERATURES:
        again = study.play(untaught, tasks, lower) if plays else []
        episodes = study.weighed(untaught, before, lower)
        lines.append(row(f"no update, temperature {lower:g}", episodes, share, won(again)))
    for lesson in LESSONS:
        study.progress.log(lesson.name)
        episodes, again = list[Weighed](), list[Trajectory]()
        for part in range(PARTS):
            others = {task.id for task in tasks[part::PARTS]}
            model = study.taught(lesson, [e for e in before if e.task.id not in others])
            held = [each for each in before if each.task.id in others]
            episodes += study.weighed(model, held, temperature)
            if plays:
                again += study.play(model, tasks[part::PARTS], temperature)
        lines.append(row(lesson.name, episodes, share, won(again)))
    return "\n".join(lines)


HEAD = f"""# What an update teaches about other tasks

Written by `benchmarks/carry_over.py`, which says how. Training tasks are played before training;
one update on two thirds of them, the other third weighed (E[w x won], log-ratios cut at
{LARGEST:g}) and played again with the same seeds. Intervals are of 95%, Student's over tasks.
"""


def written(page: str, title: str, text: str) -> str:
    """Returns the page with a section in the place of the one of that name."""
    head, *sections = (page or HEAD).rstrip("\n").split(SECTION)
    kept = [each for each in sections if each.splitlines()[0] != title]
    return SECTION.join([head.rstrip("\n") + "\n", *(f"{e.strip()}\n" for e in [*kept, text])])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipe")
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("--title", help="of the section; the recipe's name, unless it is given")
    parser.add_argument("--tasks", type=int, default=48)
    parser.add_argument("--play", action="store_true")
    chosen = parser.parse_args()
    recipe = load_recipe(chosen.recipe, chosen.overrides)
    domain = load_domain(recipe.domain.name, recipe.domain.options)
    environment = recipe.environment
    command = shlex.join(["python", "benchmarks/carry_over.py", *sys.argv[1:]])
    with (
        tempfile.TemporaryDirectory() as images,
        EnvironmentPool(
            recipe.domain.name,
            recipe.domain.options,
            environment.workers,
            environment.timeout_seconds,
            Path(images),
        ) as environments,
    ):
        study = Study(recipe, domain, environments, Progress(Terminal(stderr=True)))
        title = chosen.title or recipe.name
        text = section(study, title, chosen.tasks, chosen.play, command)
    there = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    PAGE.write_text(written(there, title, text), encoding="utf-8")
    print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
