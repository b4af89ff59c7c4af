"""The rules of warnings: signs of trouble in a run's metrics, and what to try.

Pure functions of the metrics by iteration, as the store has them; `docs/metrics.md` explains the
names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from rlanything.evaluation.trends import fitted_change, trend
from rlanything.runs.metrics.measuring import read
from rlanything.runs.results import Numbers

Past: TypeAlias = Sequence[Numbers]
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
"""Rise of the mean score (-1 to 1) over those iterations; less is no reason to stop a run."""
SUCCESS_FLAT = 0.02
"""Success that rises by less than this over them does not explain a higher score."""
ACCURACY_FALL = 0.05
"""Fall of the judge's accuracy over those iterations."""
ONE_ANSWER = 0.95
"""Share of the judge's answers: with so few others it tells hardly anything apart."""
MIXED = (0.1, 0.9)
"""Success between these: episodes end both ways, so that one answer to all cannot be right."""
UNREADABLE = 0.3
"""Share of the judgements; each of them trains the judge as a wrong one."""
FOREIGN = 0.9
"""Share of the judgements: the model was not made for such prompts, which one iteration shows."""
FOREIGN_ASKED = 4
"""Slots asked in one iteration, several tries each, without a single valid answer."""
LOPSIDED = 4.0
"""|f+| / |f-| or its inverse: what the judge learns of one kind of episode then has at most a
quarter of the other's weight."""
LOPSIDED_ITERATIONS = 5
"""It moves with the tasks that were drawn."""
WEIGHT_RATIO = "judge/weight_ratio"
MISMATCH_KL = 0.01
"""Per token; float32 gives 1e-12, bfloat16 in another engine some 1e-3."""
MISMATCH_OUTSIDE = 0.05
"""Share of the tokens with a ratio outside [0.9, 1.1] before anything was learned."""
CLIPPED = 0.2
"""Share of the tokens: so many gradients are thrown away."""
LEAP = 0.3
"""Nats a token that one iteration moves a role: above it a few tokens, which it has all but given
up, weigh more in its loss than all others. Policies of short text games keep below 0.14."""
FUNNEL_ITERATIONS = 5
FUNNEL_ASKED = 16
"""Slots asked (or candidates settled) in those iterations before a blocked funnel is called so."""
DRIFT = 0.8
"""Cosine distance. Another object and another place in a household task give 0.2 to 0.7, a task of
another kind altogether 1.0."""
ENTROPY_LEFT = 0.1
"""Share of the first iterations' entropy: what is sampled is then nearly always the same."""


def _lately(past: Past, name: str, count: int) -> list[float] | None:
    """Returns the values of the latest iterations; None unless all are known."""
    values = [value for row in past[-count:] if (value := read(row, name)) is not None]
    return values if len(values) == count else None


def _trend_values(past: Past, *names: str) -> list[tuple[float, ...]]:
    """Returns [names][iterations], of the latest iterations those in which all are known; nothing
    where they are too few for a trend."""
    rows = [tuple(read(row, name) for name in names) for row in past[-TREND_ITERATIONS:]]
    known = [tuple(value for value in row if value is not None) for row in rows]
    known = [row for row in known if len(row) == len(names)]
    return list(zip(*known, strict=True)) if len(known) >= LEAST_ITERATIONS else []


def _judge_collapse(past: Past) -> str | None:
    shares = _lately(past, "judge/commonest_share", PATIENCE)
    success = _lately(past, "rollouts/success", PATIENCE)
    if shares is None or success is None or min(shares) < ONE_ANSWER:
        return None
    if not all(MIXED[0] <= share <= MIXED[1] for share in success):
        return None
    if (read(past[-1], "judge/unparsable_rate") or 0) >= UNREADABLE:
        return None  # what they have in common is that they cannot be read: another warning
    entropy = read(past[-1], "judge/answer_entropy") or 0.0
    return (
        f"{shares[-1]:.0%} of the judge's answers are one and the same (entropy {entropy:.2f} "
        f"nats) while {success[-1]:.0%} of the episodes are won"
    )


def _judge_unreadable(past: Past) -> str | None:
    shares = _lately(past, "judge/unparsable_rate", PATIENCE)
    if shares is None or min(shares) < UNREADABLE or shares[-1] >= FOREIGN:
        return None
    return f"{shares[-1]:.0%} of the judgements hold no score"


def _foreign_judge(past: Past) -> str | None:
    share = read(past[-1], "judge/unparsable_rate")
    if share is None or share < FOREIGN:
        return None
    return f"{share:.0%} of the judgements hold no score: this model does not know this domain"


def _foreign_adapter(past: Past) -> str | None:
    asked = read(past[-1], "tasks/asked") or 0
    if asked < FOREIGN_ASKED or read(past[-1], "tasks/valid"):
        return None
    return (
        f"the adapter was asked for {asked:.0f} tasks and gave no valid answer: this model does "
        "not know this domain, or the domain rewrites no tasks"
    )


def _judge_worse(past: Past) -> str | None:
    for name, said in JUDGE_ACCURACIES.items():
        if not (known := _trend_values(past, name)):
            continue
        [values] = known
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
"""In order of preference: the first that a run measures is watched."""


def _mu(past: Past) -> str | None:
    values = _lately(past, "judge/mu", PATIENCE)
    if values is None or max(values) > 1:
        return None
    return f"mu = p+ + p- is {values[-1]:.2f}, at most 1 for {PATIENCE} iterations (Theorem 1)"


def _weights(past: Past) -> str | None:
    rows = past[-LOPSIDED_ITERATIONS:]
    # None: |f-| is 0, nothing was lost. Where nothing was judged, or could be read, no ratio says
    # anything of the tasks.
    ratios = [
        read(row, WEIGHT_RATIO)
        for row in rows
        if WEIGHT_RATIO in row
        and read(row, "judge/commonest_share") is not None
        and (read(row, "judge/unparsable_rate") or 0.0) < UNREADABLE
    ]
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
    known = _trend_values(past, "judge/mean_score", "rollouts/success")
    if not known:
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
        kl = read(past[-1], f"{role}/mismatch_kl") or 0.0
        outside = read(past[-1], f"{role}/mismatch_outside") or 0.0
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


def _leap(past: Past) -> str | None:
    for role in ("policy", "judge"):
        if (kl := read(past[-1], f"{role}/kl") or 0.0) > LEAP:
            return f"an iteration moved the {role} by a KL of {kl:.2g} nats a token"
    return None


def _skipped(past: Past) -> str | None:
    for role in ("policy", "judge"):
        if skipped := read(past[-1], f"{role}/skipped_updates"):
            return f"{skipped:.0f} updates of the {role} were not finite and were skipped"
    return None


def _too_long(past: Past) -> str | None:
    for role in ("policy", "judge", "adapter"):
        if count := read(past[-1], f"{role}/too_long"):
            return (
                f"{count:.0f} prompts of the {role} did not fit into its context, and were "
                "answered with nothing"
            )
    return None


def _nothing_trains(past: Past) -> str | None:
    for role in ("policy", "judge"):
        # The first iteration is said at once: whoever begins should not wait for nothing.
        count = 1 if len(past) == 1 else PATIENCE
        shares = _lately(past, f"{role}/window_share", count)
        if shares is not None and max(shares) == 0:
            lasted = "in the first iteration" if count == 1 else f"for {count} iterations"
            return f"no task lay in the {role}'s window {lasted}: it does not train"
    return None


def _funnel(past: Past) -> str | None:
    asked, parsed, valid, proposed, accepted, rejected = (
        sum(read(row, f"tasks/{stage}") or 0 for row in past[-FUNNEL_ITERATIONS:])
        for stage in ("asked", "parsed", "valid", "proposed", "accepted", "rejected")
    )
    count = min(len(past), FUNNEL_ITERATIONS)
    lasted = "the first iteration" if count == 1 else f"{count} iterations"
    if asked >= FUNNEL_ASKED and not proposed:
        return (
            f"the adapter was asked for {asked:.0f} tasks in {lasted}: "
            f"{parsed:.0f} could be read, {valid:.0f} were valid, none became a candidate"
        )
    if accepted + rejected >= FUNNEL_ASKED and not accepted:
        return f"{rejected:.0f} candidates in {lasted} and none was accepted"
    return None


def _drift(past: Past) -> str | None:
    distance = read(past[-1], "tasks/drift")
    if distance is None or distance <= DRIFT:
        return None
    return f"rewritten tasks lie at a mean cosine distance of {distance:.2f} from their roots"


def _entropy(past: Past) -> str | None:
    reference = [value for row in past[:PATIENCE] if (value := read(row, "policy/entropy"))]
    lately = _lately(past, "policy/entropy", PATIENCE)
    if len(reference) < PATIENCE or lately is None:
        return None
    before = sum(reference) / PATIENCE
    if max(lately) > ENTROPY_LEFT * before:
        return None
    return f"the policy's entropy fell from {before:.3g} to {lately[-1]:.3g} nats a token"


@dataclass(frozen=True, slots=True)
class Rule:
    """A warning that may be given."""

    check: Callable[[Past], str | None]
    """Returns what was measured where the rule holds, else None."""
    holds_when: str
    """In words."""
    remedy: str


RULES: Mapping[str, Rule] = {
    "judge collapse": Rule(
        _judge_collapse,
        "nearly all its answers are one and the same while episodes end both ways",
        "try judge.learning_rate lower, feedback.judge_balance=outcome, or a higher "
        "judge.temperature; `rlanything judge-check` asks it more",
    ),
    "judge unreadable": Rule(
        _judge_unreadable,
        "many judgements hold no score",
        "raise judge.max_tokens, or have the judge's prompt end with the form of the answer",
    ),
    "foreign judge": Rule(
        _foreign_judge,
        "nearly no judgement of an iteration holds a score",
        "name a judge.model that knows it (`rlanything nano build --domain module:Class` makes one "
        "from the domain's own oracle), or raise judge.max_tokens if its answers are cut off",
    ),
    "judge accuracy": Rule(
        _judge_worse,
        "balanced Process Acc (or UT, or Outcome Acc) falls, significantly",
        "try judge.learning_rate lower, or go back to a checkpoint before the fall",
    ),
    "mu": Rule(
        _mu,
        "mu is at most 1 for several iterations",
        "more judgements cannot help such a judge: try a stronger judge.model, or "
        "feedback.policy_reward=outcome until it is better than chance",
    ),
    "weight ratio": Rule(
        _weights,
        "the weight ratio is far from 1 for several iterations",
        "see that curriculum.adapt_tasks is on and its candidates are accepted, or choose other "
        "tasks; feedback.judge_balance=outcome evens it out",
    ),
    "reward hacking": Rule(
        _hacking,
        "the mean score rises, significantly, and success does not",
        "run `rlanything judge-check`, try feedback.policy_lambda lower, and train the judge "
        "(judge.learning_rate) if it is frozen",
    ),
    "mismatch": Rule(
        _mismatch,
        "sampler and learner disagree on what was sampled",
        "set old_logprobs: recomputed with an importance_cap in the role's section, or give "
        "sampler and learner one dtype (float32 where bfloat16 on both still differs)",
    ),
    "clipping": Rule(
        _clipping,
        "much of what should train leaves the clip range",
        "try the role's learning_rate lower, or fewer minibatches or epochs",
    ),
    "large updates": Rule(
        _leap,
        "before a later step of an iteration, a role's KL to what sampled is large",
        "try the role's learning_rate lower, or fewer minibatches or epochs",
    ),
    "skipped updates": Rule(
        _skipped,
        "an update was not finite",
        "try the role's learning_rate lower; with max_skipped_updates in a row the run stops",
    ),
    "prompts too long": Rule(
        _too_long,
        "a prompt of an iteration does not fit into the model's context",
        "raise the role's engine.max_context, or what its endpoint allows, or lower its max_tokens "
        "or loop.max_steps",
    ),
    "nothing trains": Rule(
        _nothing_trains,
        "no task lies in a window in the first iteration, or for several",
        "choose tasks that are solved sometimes, raise loop.rollouts_per_task, or widen "
        "feedback.policy_window and feedback.judge_window",
    ),
    "foreign adapter": Rule(
        _foreign_adapter,
        "several slots were asked for in an iteration and none got a valid answer",
        "name an adapter.model that knows it (`rlanything nano build --domain module:Class` makes "
        "one from the domain's own rewrites), or set curriculum.adapt_tasks=false",
    ),
    "proposal funnel": Rule(
        _funnel,
        "many slots were asked for and none got a candidate, or no candidate is accepted",
        "see what was refused and why (table `proposals` of run.sqlite), then try a stronger "
        "adapter.model, more adapter.tries, or another adapter prompt",
    ),
    "task drift": Rule(
        _drift,
        "rewritten tasks are far from their roots",
        "see `rlanything tasks`; make the adapter's prompt keep closer to the root task",
    ),
    "entropy": Rule(
        _entropy,
        "the policy's entropy is nearly gone",
        "try policy.learning_rate lower, policy.kl_weight or policy.temperature higher",
    ),
}
