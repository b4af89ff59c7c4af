"""Compares signals that could train the policy with the measured advantage of steps: writes a page.

    python benchmarks/replays.py RUN [RUN ...] --out PAGE [--tasks 32] [--steps 300] [--replays 16]
        [--role judge]

RUN: finished runs of one recipe with different seeds. The policy plays training tasks, before and
after training. From random steps it then continues several times, before the step and
after it: the difference of success is the step's measured advantage A. Every signal that could
train the policy is compared with A. Changes no run.
"""

from __future__ import annotations

import argparse
import random
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from signals import centred, correlation, plain_table

from rlanything.algorithm.feedback import AdvantageConfig, FeedbackSettings, mean_score
from rlanything.cluster.models import RoleSource, load_served
from rlanything.cluster.open import InProcessModels
from rlanything.config.recipe import Recipe
from rlanything.domains.base import Domain
from rlanything.domains.registry import checked_tasks, load_domain
from rlanything.engines.hf.choices import restricted_logprobs
from rlanything.engines.hf.model import LanguageModel
from rlanything.evaluation.labels import oracle_labels
from rlanything.progress import Progress
from rlanything.records import Completion, JudgedTrajectory, Trajectory
from rlanything.roles.chat_model import ChatModel
from rlanything.roles.judges.base import Judge, group_signals
from rlanything.roles.judges.llm import ValueJudge
from rlanything.roles.judges.oracle import OracleJudge
from rlanything.rollout.episodes import RolloutRequest, rollout
from rlanything.rollout.replays import Replayer, advantage
from rlanything.rollout.workers import EnvironmentPool
from rlanything.runs.build import build_chat_model, build_judge, build_policy
from rlanything.runs.target import RunTarget, with_weights
from rlanything.seeds import derive
from rlanything.terminal import Terminal

PHASES = ("before training", "after training")
OPEN = FeedbackSettings(policy_window=(0.0, 1.0), judge_window=(0.0, 1.0))
"""All tasks give signals: the policy's advantages are compared, whether or not they would train."""
OUTCOME = OPEN.model_copy(update={"policy_reward": "outcome"})
CHANGE = OPEN.model_copy(
    update={"advantage": AdvantageConfig(name="gae", options={"gae_lambda": 0.0})}
)
"""How much a step changes the judge's value; for the last step, how far the outcome is from it."""
GRADES = (11, 3, 2)
"""Numbers of grades that the answers of a judge of value are rounded to."""
FINEST, COARSEST = (f", GAE, {grades} grades" for grades in (GRADES[0], GRADES[-1]))
Rows = dict[str, dict[str, float]]
"""Measures by signal."""
Known = dict[tuple[int, int], float]
"""A signal by trajectory and step."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The command's options."""

    tasks: int
    steps: int
    replays: int
    role: str


@dataclass(frozen=True, slots=True)
class MeasuredStep:
    """A step with its advantage, measured by replays."""

    trajectory: int
    index: int
    value: float
    """V before the step."""
    gain: float
    """A."""
    error: float
    """Standard error of A."""


def measure(
    run: Path, phase: str, asked: Asked, progress: Progress
) -> tuple[Rows, dict[str, float]]:
    """Returns what each signal knows of A, and the facts about the steps, in one run."""
    before = RunTarget(str(run)).recipe((), False)
    after = with_weights(before, RunTarget(str(run)).checkpoint(progress))
    recipe = before if phase == PHASES[0] else after
    models = InProcessModels(1)
    domain = load_domain(recipe.domain.name, recipe.domain.options)
    seed = derive(recipe.seed, "measured", phase)
    chat_model = partial(build_chat_model, models=models)
    acting = chat_model(recipe.policy, recipe.acting)
    policy = build_policy(acting, domain, recipe.policy, recipe.policy.temperature)
    settings = recipe.environment
    with EnvironmentPool(domain, {}, settings.workers, settings.timeout_seconds) as environments:
        tasks = checked_tasks(domain, "train", asked.tasks, seed)
        requests = [
            RolloutRequest(f"{t.id}/{g}", t, derive(seed, t.id, g))
            for t in tasks
            for g in range(recipe.loop.rollouts_per_task)
        ]
        length = recipe.loop.max_steps
        with progress.phase("rollouts", len(requests), "episodes") as advance:
            played = rollout(policy, environments, requests, length, 128, advance).trajectories
        chosen = _random_steps(played, asked.steps, seed)
        replayer = Replayer(policy, environments, asked.replays, length)
        states = [(played[t], i + after) for t, i in chosen for after in (0, 1)]
        with progress.phase("replays", 2 * asked.replays * len(chosen), "episodes") as advance:
            values = replayer.values(states, seed, advance)
    steps: list[MeasuredStep] = []
    for (t, i), at, then in zip(chosen, values[::2], values[1::2], strict=True):
        if at is not None and then is not None:
            steps.append(MeasuredStep(t, i, at.won, *advantage(at, then)))
    signals = _signals(domain, played, chat_model, (before, after), asked.role, seed, progress)
    if phase == PHASES[1]:
        both = [load_served(RoleSource(r.acting, r.policy)).model for r in (after, before)]
        temperature = recipe.policy.temperature
        signals["trained against untrained policy"] = {
            (s.trajectory, s.index): _log_ratio(
                both, played[s.trajectory].steps[s.index].completion, temperature
            )
            for s in steps
        }
    groups = [trajectory.task.id for trajectory in played]
    rows = {name: _agreement(steps, groups, known) for name, known in signals.items()}
    return _with_differences(rows), _facts(steps, played, groups)


def _random_steps(played: Sequence[Trajectory], count: int, seed: int) -> list[tuple[int, int]]:
    every = [(t, i) for t, one in enumerate(played) for i in range(len(one.steps))]
    return random.Random(seed).sample(every, min(count, len(every)))


def _signals(
    domain: Domain,
    played: Sequence[Trajectory],
    chat_model: Callable[..., ChatModel],
    recipes: tuple[Recipe, Recipe],
    role: str,
    seed: int,
    progress: Progress,
) -> dict[str, Known]:
    """Returns what could train the policy, for every step. `recipes`: before and after training."""
    unjudged = [JudgedTrajectory(one, ((),) * len(one.steps)) for one in played]
    state = OUTCOME.model_copy(update={"advantage": AdvantageConfig(name="state")})
    found = {
        "outcome": _advantages(unjudged, OUTCOME),
        "outcome, same state (GiGPO)": _advantages(unjudged, state),
    }
    judges: dict[str, Judge] = {}
    if len(oracle_labels(domain, played[:1])):
        judges["oracle's labels"] = OracleJudge(domain, 1)
    for name, source in zip(("untrained judge", "trained judge"), recipes, strict=True):
        config = source.judges[role]
        judges[name] = build_judge(config, domain, partial(chat_model, config, role), role)
    for name, judge in judges.items():
        count = judge.samples * sum(len(one.steps) for one in played)
        with progress.phase(name, count, "judgements") as advance:
            judged = judge.judge(played, seed, advance)
        if isinstance(judge, ValueJudge):
            gae = OPEN.model_copy(update={"advantage": recipes[0].feedback.advantage})
            found[f"{name}, change of value"] = _advantages(judged, CHANGE)
            for grades in GRADES:
                found[f"{name}, GAE, {grades} grades"] = _advantages(rounded(judged, grades), gae)
            continue
        found[name] = {
            (t, i): mean_score(step)
            for t, one in enumerate(judged)
            for i, step in enumerate(one.scores)
        }
        found[f"{name}, Eq. 1"] = _advantages(judged, OPEN)
    return found


def rounded(judged: Sequence[JudgedTrajectory], grades: int) -> list[JudgedTrajectory]:
    """Returns what a judge of value says, if it could say one of `grades` evenly spaced chances
    alone."""

    def nearest(grade: int | None) -> int | None:
        if grade is None or grade < 0:
            return grade
        return int(grade * (grades - 1) / 10 + 0.5) * 10 // (grades - 1)

    return [
        replace(
            one,
            judgements=tuple(
                tuple(replace(each, grade=nearest(each.grade)) for each in step)
                for step in one.judgements
            ),
        )
        for one in judged
    ]


def _advantages(judged: Sequence[JudgedTrajectory], settings: FeedbackSettings) -> Known:
    by_task: dict[str, list[int]] = {}
    for t, one in enumerate(judged):
        by_task.setdefault(one.trajectory.task.id, []).append(t)
    known: Known = {}
    for members in by_task.values():
        group = [judged[t] for t in members]
        signals = group_signals(group, {"judge": group}, settings)
        for t, of_steps in zip(members, signals.policy, strict=True):
            known |= {(t, i): float(np.mean(given)) for i, given in enumerate(of_steps)}
    return known


def _log_ratio(
    models: Sequence[LanguageModel], completion: Completion, temperature: float
) -> float:
    """Returns log p_trained / p_untrained of a response, summed over its tokens."""
    ids = torch.tensor([completion.tokens])
    first, count = len(completion.prompt_ids) - 1, len(completion.token_ids)
    sums: list[float] = []
    for model in models:
        with torch.inference_mode():
            logits = model.network(input_ids=ids).logits[0, first : first + count].float()
        logprobs = restricted_logprobs(logits, completion.allowed or [()] * count, temperature)
        sums.append(float(logprobs[torch.arange(count), torch.tensor(completion.token_ids)].sum()))
    return sums[0] - sums[1]


def _agreement(
    steps: Sequence[MeasuredStep], groups: Sequence[str], known: Known
) -> dict[str, float]:
    """Returns how a signal agrees with A over the measured steps, both less their task's mean."""
    at = [groups[step.trajectory] for step in steps]
    gain = centred(np.array([step.gain for step in steps]), at)
    signal = centred(np.array([known[step.trajectory, step.index] for step in steps]), at)
    noise = float(np.mean([step.error**2 for step in steps]))
    reliable = max(0.0, 1 - noise / float(gain.var())) if gain.var() else 0.0
    pairs = [*zip(gain.tolist(), signal.tolist(), strict=True)]
    found = float(np.nan_to_num(correlation(pairs)))
    sure = [n for n, step in enumerate(steps) if abs(step.gain) > 2 * step.error]
    agree = [gain[n] * signal[n] > 0 for n in sure if signal[n]]
    return {
        "correlation with A": found,
        "... without the replays' noise": found / reliable**0.5 if reliable else 0.0,
        "right sign where A is clear": float(np.mean(agree)) if agree else 0.0,
    }


def _with_differences(rows: Rows) -> Rows:
    """Returns the rows, and how much better each knows A than outcomes do, and eleven grades than
    two."""
    known = rows["outcome"]["correlation with A"]
    compared = {
        name: row | {"less that of outcomes": row["correlation with A"] - known}
        for name, row in rows.items()
    }
    for name in [each for each in rows if each.endswith(FINEST)]:
        coarse = compared[name.removesuffix(FINEST) + COARSEST]
        compared[f"{name} less 2"] = {
            measure: value - coarse[measure] for measure, value in compared[name].items()
        }
    return compared


def _facts(
    steps: Sequence[MeasuredStep], played: Sequence[Trajectory], groups: Sequence[str]
) -> dict[str, float]:
    """Returns what the measured steps are like."""
    won = np.array([played[step.trajectory].outcome == 1 for step in steps])
    gain = np.array([step.gain for step in steps])
    error = np.array([step.error for step in steps])
    differing = centred(gain, [groups[step.trajectory] for step in steps])
    clear = np.abs(gain) > 2 * error
    return {
        "success": float(np.mean([one.outcome == 1 for one in played])),
        "steps in lost episodes that gain": float((clear & (gain > 0))[~won].mean()),
        "steps in won episodes that cost": float((clear & (gain < 0))[won].mean()),
        "standard deviation of A": max(0.0, float(differing.var() - np.mean(error**2))) ** 0.5,
        "share of its variance that is not noise": max(
            0.0, 1 - float(np.mean(error**2)) / max(float(differing.var()), 1e-12)
        ),
    }


PAGE = """# What signals know of a step's worth: {ground}

`{command}` writes this page.

A step is worth what it changes: its measured advantage A is the policy's success after it less that
before it, each over {replays} episodes that the policy plays on from there. {steps} random steps of
{tasks} training tasks, {runs} run{plural}. Signals and A are taken less their task's mean. Replays
are few, so A is noisy: the second column divides by the root of the share of its variance that is
not noise. A is clear where it is more than two standard errors from 0. Student's 95% intervals over
runs.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tasks", type=int, default=32)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--replays", type=int, default=16)
    parser.add_argument("--role", default="judge")
    given = parser.parse_args()
    asked = Asked(given.tasks, given.steps, given.replays, given.role)
    progress = Progress(Terminal(stderr=True))
    recipe = RunTarget(str(given.runs[0])).recipe((), False)
    lines = [
        PAGE.format(
            ground=recipe.name,
            command=shlex.join(["python", *sys.argv]),
            replays=asked.replays,
            steps=asked.steps,
            tasks=asked.tasks,
            runs=len(given.runs),
            plural="s" * (len(given.runs) > 1),
        )
    ]
    for phase in PHASES:
        measured = [measure(run, phase, asked, progress) for run in given.runs]
        facts = [{"": each[1]} for each in measured]
        lines += [f"## {phase.capitalize()}", "", *plain_table([each[0] for each in measured]), ""]
        lines += [*plain_table(facts), ""]
    given.out.write_text("\n".join(lines), encoding="utf-8")
    print(f"wrote {given.out}")


if __name__ == "__main__":
    main()
