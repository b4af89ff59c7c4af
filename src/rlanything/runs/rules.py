"""The rules of warnings: signs of trouble in a run's metrics, and what to try.

Pure functions of the metrics by iteration, as the store has them; `docs/metrics.md` explains the
names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rlanything.runs.judge_rules import (
    UNREADABLE,
    foreign_judge,
    judge_collapse,
    judge_unreadable,
    judge_worse,
    lopsided_weights,
    low_mu,
    reward_hacking,
)
from rlanything.runs.metrics.measuring import read
from rlanything.runs.past import PATIENCE, Past, lately
from rlanything.runs.results import Numbers

FOREIGN_ASKED = 4
"""Slots asked in one iteration, several tries each, without a single valid answer."""
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


def _foreign_adapter(past: Past) -> str | None:
    asked = read(past[-1], "tasks/asked") or 0
    if asked < FOREIGN_ASKED or read(past[-1], "tasks/valid"):
        return None
    return (
        f"the adapter was asked for {asked:.0f} tasks and gave no valid answer: this model does "
        "not know this domain, or the domain rewrites no tasks"
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
        shares = lately(past, f"{role}/clip_share", PATIENCE)
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


def _cut(past: Past) -> str | None:
    for role in ("judge", "adapter"):
        share = _share_of_answers(past[-1], role, "cut")
        if share >= UNREADABLE:
            return f"{share:.0%} of the {role}'s answers were cut off by {role}.max_tokens"
    return None


def _withheld(past: Past) -> str | None:
    for role in ("judge", "adapter", "policy"):
        if refused := read(past[-1], f"{role}/refused"):
            return f"the endpoint withheld {refused:.0f} answers of the {role} (a content filter)"
        if (share := _share_of_answers(past[-1], role, "empty")) >= UNREADABLE:
            return f"{share:.0%} of the {role}'s answers came back empty"
    return None


def _share_of_answers(row: Numbers, role: str, kind: str) -> float:
    asked = read(row, f"{role}/requests") or 0
    return (read(row, f"{role}/{kind}") or 0) / asked if asked else 0.0


def _nothing_trains(past: Past) -> str | None:
    for role in ("policy", "judge"):
        # The first iteration is said at once: whoever begins should not wait for nothing.
        count = 1 if len(past) == 1 else PATIENCE
        shares = lately(past, f"{role}/window_share", count)
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
    latest = lately(past, "policy/entropy", PATIENCE)
    if len(reference) < PATIENCE or latest is None:
        return None
    before = sum(reference) / PATIENCE
    if max(latest) > ENTROPY_LEFT * before:
        return None
    return f"the policy's entropy fell from {before:.3g} to {latest[-1]:.3g} nats a token"


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
        judge_collapse,
        "nearly all its answers are one and the same while episodes end both ways",
        "try judge.learning_rate lower, feedback.judge_reward.options.balance=outcome, or a higher "
        "judge.temperature; `rlanything judge-check` asks it more",
    ),
    "judge unreadable": Rule(
        judge_unreadable,
        "many judgements hold no score",
        "have the judge's prompt end with the form of the answer, or take a judge.model that keeps "
        "to it; of answers that were cut off or withheld another warning speaks",
    ),
    "foreign judge": Rule(
        foreign_judge,
        "nearly no judgement of an iteration holds a score",
        "name a judge.model that knows it (`rlanything nano build --domain module:Class` makes one "
        "from the domain's own oracle), or raise judge.max_tokens if its answers are cut off",
    ),
    "judge accuracy": Rule(
        judge_worse,
        "balanced Process Acc (or UT, or Outcome Acc) falls, significantly",
        "try judge.learning_rate lower, or go back to a checkpoint before the fall",
    ),
    "mu": Rule(
        low_mu,
        "mu is at most 1 for several iterations",
        "more judgements cannot help such a judge: try a stronger judge.model, or "
        "feedback.policy_reward=outcome until it is better than chance",
    ),
    "weight ratio": Rule(
        lopsided_weights,
        "the weight ratio is far from 1 for several iterations",
        "if it is the tasks, see that curriculum.adapt_tasks is on and its candidates are "
        "accepted, or choose others; feedback.judge_reward.options.balance=outcome evens it out; if it is the "
        "judge, try a stronger judge.model",
    ),
    "reward hacking": Rule(
        reward_hacking,
        "the mean score of lost episodes rises, significantly or by a leap, and success does not",
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
    "answers cut off": Rule(
        _cut,
        "many answers of judge or adapter are cut off by their limit",
        "raise max_tokens of that role; where the score comes first, say judge.score_first=true",
    ),
    "answers withheld": Rule(
        _withheld,
        "an endpoint refuses answers, or many of them are empty",
        "see what its own policy or log says of these prompts, or take another model; more tokens "
        "do not help, unless they were spent on thoughts that the endpoint keeps to itself",
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
