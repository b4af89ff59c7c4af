"""What in a run's numbers should worry whoever watches it, and what to try.

Pure functions of the metrics by iteration, as the store has them; `docs/metrics.md` explains the
names. An alarm is raised once, at the iteration at which its rule first holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from rlanything.evaluation.trends import fitted_change, trend

Row: TypeAlias = Mapping[str, float | None]
"""The metrics of an iteration."""
Past: TypeAlias = Sequence[Row]
"""The iterations so far, the latest last."""

PATIENCE = 3
"""A state must last so many iterations: one has a handful of tasks, and any one can be odd."""
TREND_ITERATIONS = 20
"""Trends are looked for in so many latest iterations: long ago does not matter now."""
LEAST_ITERATIONS = 10
"""In fewer no order of the values is rare enough."""
TREND = 3.5
"""Standard deviations (`trends.trend`). A trend is looked for after every iteration, so it must be
rare: among 200 iterations of noise one in a hundred runs reaches this."""
SCORE_RISE = 0.1
"""Of the mean score (-1 to 1) over those iterations; less is no reason to stop a run."""
SUCCESS_FLAT = 0.02
"""Success that rises by less than this over them does not explain a higher score."""
ACCURACY_FALL = 0.05
"""Of the judge's accuracy over those iterations."""
ONE_ANSWER = 0.95
"""Of the judge's answers: with so few others it tells hardly anything apart."""
MIXED = (0.1, 0.9)
"""Success between these: episodes end both ways, so that one answer to all cannot be right."""
UNREADABLE = 0.3
"""Of the judgements; each of them trains the judge as a wrong one."""
LOPSIDED = 4.0
"""|f+| / |f-| or its inverse: what the judge learns of one kind of episode then has at most a
quarter of the other's weight."""
LOPSIDED_ITERATIONS = 5
"""It moves with the tasks that were drawn."""
MISMATCH_KL = 0.01
"""Per token; float32 gives 1e-12, bfloat16 in another engine some 1e-3."""
MISMATCH_OUTSIDE = 0.05
"""Of the tokens, with a ratio outside [0.9, 1.1] before anything was learned."""
CLIPPED = 0.2
"""Of the tokens: so many gradients are thrown away."""
FUNNEL_ITERATIONS = 5
FUNNEL_ASKED = 16
"""Slots asked (or candidates settled) in those iterations before a blocked funnel is called so."""
DRIFT = 0.8
"""Cosine distance. Another object and another place in a household task give 0.2 to 0.7, a task of
another kind altogether 1.0."""
ENTROPY_LEFT = 0.1
"""Of the entropy of the first iterations: what is sampled is then nearly always the same."""


@dataclass(frozen=True, slots=True)
class Check:
    """Something that should not be."""

    iteration: int
    """At which it first held."""
    name: str
    message: str
    """What was measured."""
    remedy: str
    """What to try."""

    def line(self) -> str:
        return f"warning, {self.name}: {self.message}; {self.remedy}"


def run_checks(history: Mapping[int, Row]) -> list[Check]:
    """Each alarm once, in the order in which they were first raised."""
    past: list[Row] = []
    found: dict[str, Check] = {}
    for iteration in sorted(history):
        if "rollouts/episodes" not in history[iteration]:
            continue  # evaluated before training
        past.append(history[iteration])
        for name, (rule, remedy) in RULES.items():
            if name not in found and (message := rule(past)) is not None:
                found[name] = Check(iteration, name, message, remedy)
    return list(found.values())


def _lately(past: Past, name: str, count: int) -> list[float] | None:
    """The values of the latest iterations; None unless all are known."""
    values = [value for row in past[-count:] if (value := row.get(name)) is not None]
    return values if len(values) == count else None


def _known(past: Past, *names: str) -> list[list[float]]:
    """[names][iterations]: of the latest iterations, those in which all are known."""
    rows = [[row.get(name) for name in names] for row in past[-TREND_ITERATIONS:]]
    known = [[value for value in row if value is not None] for row in rows]
    return [
        list(each) for each in zip(*(row for row in known if len(row) == len(names)), strict=True)
    ]


def _judge_collapse(past: Past) -> str | None:
    shares = _lately(past, "judge/commonest_share", PATIENCE)
    success = _lately(past, "rollouts/success", PATIENCE)
    if shares is None or success is None or min(shares) < ONE_ANSWER:
        return None
    if not all(MIXED[0] <= share <= MIXED[1] for share in success):
        return None
    entropy = past[-1].get("judge/answer_entropy") or 0.0
    return (
        f"{shares[-1]:.0%} of the judge's answers are one and the same (entropy {entropy:.2f} "
        f"nats) while {success[-1]:.0%} of the episodes are won"
    )


def _judge_unreadable(past: Past) -> str | None:
    shares = _lately(past, "judge/unparsable_rate", PATIENCE)
    if shares is None or min(shares) < UNREADABLE:
        return None
    return f"{shares[-1]:.0%} of the judgements hold no score"


def _judge_worse(past: Past) -> str | None:
    for name, said in JUDGE_ACCURACIES.items():
        values = [value for row in past[-TREND_ITERATIONS:] if (value := row.get(name)) is not None]
        if len(values) < LEAST_ITERATIONS:
            continue
        fall = -fitted_change(values)
        if trend(values) <= -TREND and fall >= ACCURACY_FALL:
            return f"{said} fell by {fall:.1%} over {len(values)} iterations"
        return None
    return None


JUDGE_ACCURACIES = {
    "judge/balanced_process_accuracy": "the judge's balanced Process Acc",
    "judge/ut": "UT",
    "judge/outcome_accuracy": "the judge's Outcome Acc",
}
"""The first that a run measures is watched."""


def _mu(past: Past) -> str | None:
    values = _lately(past, "judge/mu", PATIENCE)
    if values is None or max(values) > 1:
        return None
    return f"mu = p+ + p- is {values[-1]:.2f}, at most 1 for {PATIENCE} iterations (Theorem 1)"


def _weights(past: Past) -> str | None:
    rows = past[-LOPSIDED_ITERATIONS:]
    # None: |f-| is 0, nothing was lost.
    ratios = [row.get("judge/weight_ratio") for row in rows if "judge/weight_ratio" in row]
    if len(ratios) < LOPSIDED_ITERATIONS:
        return None
    heavy = all(ratio is None or ratio > LOPSIDED for ratio in ratios)
    light = all(ratio is not None and ratio < 1 / LOPSIDED for ratio in ratios)
    if not heavy and not light:
        return None
    last = "unbounded" if ratios[-1] is None else f"{ratios[-1]:.2f}"
    kind = "easy" if heavy else "hard"
    return (
        f"|f+| / |f-| is {last}, far from 1 for {LOPSIDED_ITERATIONS} iterations (Theorem 2): the "
        f"tasks are too {kind}"
    )


def _hacking(past: Past) -> str | None:
    known = _known(past, "judge/mean_score", "rollouts/success")
    if not known or len(known[0]) < LEAST_ITERATIONS:
        return None
    scores, success = known
    rise, gained = fitted_change(scores), fitted_change(success)
    if trend(scores) < TREND or rise < SCORE_RISE or gained > SUCCESS_FLAT:
        return None
    return (
        f"the mean step score rose by {rise:.2f} over {len(scores)} iterations while success "
        f"changed by {gained:+.1%}: the policy may be pleasing the judge"
    )


def _mismatch(past: Past) -> str | None:
    for role in ("policy", "judge"):
        kl = past[-1].get(f"{role}/mismatch_kl") or 0.0
        outside = past[-1].get(f"{role}/mismatch_outside") or 0.0
        if kl > MISMATCH_KL or outside > MISMATCH_OUTSIDE:
            return (
                f"the {role}'s sampler and learner differ by a KL of {kl:.2g} a token, "
                f"{outside:.1%} of the tokens by more than a tenth"
            )
    return None


def _clipping(past: Past) -> str | None:
    for role in ("policy", "judge"):
        shares = _lately(past, f"{role}/clip_share", PATIENCE)
        if shares is not None and min(shares) > CLIPPED:
            return f"{shares[-1]:.0%} of the {role}'s tokens leave the clip range"
    return None


def _skipped(past: Past) -> str | None:
    for role in ("policy", "judge"):
        if skipped := past[-1].get(f"{role}/skipped_updates"):
            return f"{skipped:.0f} updates of the {role} were not finite and were skipped"
    return None


def _nothing_trains(past: Past) -> str | None:
    for role in ("policy", "judge"):
        shares = _lately(past, f"{role}/window_share", PATIENCE)
        if shares is not None and max(shares) == 0:
            return f"no task lay in the {role}'s window for {PATIENCE} iterations: nothing trains"
    return None


def _funnel(past: Past) -> str | None:
    asked, parsed, valid, proposed, accepted, rejected = (
        sum(row.get(f"tasks/{stage}") or 0 for row in past[-FUNNEL_ITERATIONS:])
        for stage in ("asked", "parsed", "valid", "proposed", "accepted", "rejected")
    )
    if asked >= FUNNEL_ASKED and not proposed:
        return (
            f"the adapter was asked for {asked:.0f} tasks in {FUNNEL_ITERATIONS} iterations: "
            f"{parsed:.0f} could be read, {valid:.0f} were valid, none became a candidate"
        )
    if accepted + rejected >= FUNNEL_ASKED and not accepted:
        return f"{rejected:.0f} candidates in {FUNNEL_ITERATIONS} iterations and none was accepted"
    return None


def _drift(past: Past) -> str | None:
    distance = past[-1].get("tasks/drift")
    if distance is None or distance <= DRIFT:
        return None
    return f"rewritten tasks lie at a mean cosine distance of {distance:.2f} from their roots"


def _entropy(past: Past) -> str | None:
    reference = [v for row in past[:PATIENCE] if (v := row.get("policy/entropy"))]
    lately = _lately(past, "policy/entropy", PATIENCE)
    if len(reference) < PATIENCE or lately is None:
        return None
    before = sum(reference) / PATIENCE
    if max(lately) > ENTROPY_LEFT * before:
        return None
    return f"the policy's entropy fell from {before:.3g} to {lately[-1]:.3g} nats a token"


RULES: Mapping[str, tuple[Callable[[Past], str | None], str]] = {
    "judge collapse": (
        _judge_collapse,
        "try judge.learning_rate lower, feedback.judge_balance=outcome, or a higher "
        "judge.temperature; `rlanything judge-check` asks it more",
    ),
    "judge unreadable": (
        _judge_unreadable,
        "raise judge.max_tokens, or have the judge's prompt end with the form of the answer",
    ),
    "judge accuracy": (
        _judge_worse,
        "try judge.learning_rate lower, or go back to a checkpoint before the fall",
    ),
    "mu": (
        _mu,
        "more judgements cannot help such a judge: try a stronger judge.model, or "
        "feedback.policy_reward=outcome until it is better than chance",
    ),
    "weight ratio": (
        _weights,
        "see that curriculum.adapt_tasks is on and its candidates are accepted, or choose other "
        "tasks; feedback.judge_balance=outcome evens it out",
    ),
    "reward hacking": (
        _hacking,
        "run `rlanything judge-check`, try feedback.policy_lambda lower, and train the judge "
        "(judge.learning_rate) if it is frozen",
    ),
    "mismatch": (
        _mismatch,
        "set old_logprobs: recomputed with an importance_cap in the role's section, or the same "
        "dtype for sampler and learner",
    ),
    "clipping": (
        _clipping,
        "try the role's learning_rate lower, or fewer updates_per_iteration",
    ),
    "skipped updates": (
        _skipped,
        "try the role's learning_rate lower; with max_skipped_updates in a row the run stops",
    ),
    "nothing trains": (
        _nothing_trains,
        "choose tasks that are solved sometimes, raise loop.rollouts_per_task, or widen "
        "feedback.policy_window and feedback.judge_window",
    ),
    "proposal funnel": (
        _funnel,
        "see what was refused and why (table `proposals` of run.sqlite), then try a stronger "
        "adapter.model, more adapter.tries, or another adapter prompt",
    ),
    "task drift": (
        _drift,
        "see `rlanything tasks`; make the adapter's prompt keep closer to the root task",
    ),
    "entropy": (
        _entropy,
        "try policy.learning_rate lower, policy.kl_weight or policy.temperature higher",
    ),
}
