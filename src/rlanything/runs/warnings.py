"""Warnings about a run: signs of trouble in its metrics, and what to try.

Pure functions of the metrics by iteration; `docs/metrics.md` explains the names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import TypeAlias

from rlanything.config.roles import role_key
from rlanything.evaluation.trends import fitted_change, trend
from rlanything.runs.metrics.measuring import read
from rlanything.runs.results import Numbers

Past: TypeAlias = Sequence[Numbers]
"""Metrics of the iterations so far, the latest last."""
Check: TypeAlias = Callable[[Past, str], str | None]
"""Returns the measurement of a role if a rule holds for it, else None."""

PATIENCE = 3
"""Number of iterations that a state must last: a single one has a handful of tasks."""
TREND_ITERATIONS = 20
"""Number of latest iterations in which trends are looked for."""
LEAST_ITERATIONS = 10
"""Smallest number of iterations for a trend; fewer values are too often in order by chance."""


def lately(past: Past, name: str, count: int) -> list[float] | None:
    """Returns the values of the latest iterations; None unless all are known."""
    values = [value for row in past[-count:] if (value := read(row, name)) is not None]
    return values if len(values) == count else None


def trend_values(past: Past, *names: str) -> list[tuple[float, ...]]:
    """Returns `known_values`; empty if there are too few for a trend."""
    known = known_values(past, *names)
    return known if known and len(known[0]) >= LEAST_ITERATIONS else []


def known_values(past: Past, *names: str) -> list[tuple[float, ...]]:
    """Returns [names][iterations] for the latest iterations with all values known."""
    rows = [tuple(read(row, name) for name in names) for row in past[-TREND_ITERATIONS:]]
    known = [tuple(value for value in row if value is not None) for row in rows]
    return list(zip(*(row for row in known if len(row) == len(names)), strict=True))


TREND = 3.5
"""Standard deviations (`trends.trend`). The test is repeated after every iteration, so the
threshold must be rare: 200 iterations of noise reach it in 1% of runs."""
SCORE_RISE = 0.1
"""Rise of the mean score of lost episodes (-1 to 1) over the trend's iterations; smaller rises are
harmless."""
SUCCESS_FLAT = 0.02
"""A rise of success below this does not explain a higher score."""
SUCCESS_PER_SCORE = 0.25
"""A rise of success below this share of the score's rise does not explain it."""
LEAP_OF_SCORE = 0.3
"""Rise of that mean between two adjacent stretches of iterations that is detectable in a few
iterations."""
LEAP_ITERATIONS = 2
"""Length of the shortest such stretch."""
ACCURACY_FALL = 0.05
"""Fall of a judge's accuracy over the trend's iterations."""
ONE_ANSWER = 0.95
"""Share of one answer among a judge's answers: above it the judge hardly discriminates."""
MIXED = (0.1, 0.9)
"""Range of success in which episodes end both ways, so that one answer to all cannot be right."""
LOPSIDED = 4.0
"""|f+| / |f-| or its inverse, at which one kind of episode has at most a quarter of the other's
weight in the judge's training."""
TASKS_LOPSIDED = (0.2, 0.8)
"""Success outside this range alone doubles or halves the ratio."""
LOPSIDED_ITERATIONS = 5
"""Number of iterations to average over, because the ratio depends on the sampled tasks."""
UNREADABLE = 0.3
"""Share of unreadable judgements; each of them trains the judge as a wrong one."""
FOREIGN = 0.9
"""Share of unreadable judgements that shows, in one iteration, a model unsuited to such prompts."""
JUDGE_ACCURACIES = {
    "balanced_process_accuracy": "balanced Process Acc",
    "ut": "UT",
    "outcome_accuracy": "Outcome Acc",
}
"""Metrics in order of preference, with their names: the first one that a run measures is
watched."""


def _judge_collapse(past: Past, role: str) -> str | None:
    shares = lately(past, f"{role}/commonest_share", PATIENCE)
    success = lately(past, "rollouts/success", PATIENCE)
    if shares is None or success is None or min(shares) < ONE_ANSWER:
        return None
    if not all(MIXED[0] <= share <= MIXED[1] for share in success):
        return None
    if (read(past[-1], f"{role}/unparsable_rate") or 0) >= UNREADABLE:
        return None  # all of them are unreadable: another warning covers that
    entropy = read(past[-1], f"{role}/answer_entropy") or 0.0
    return (
        f"{shares[-1]:.0%} of the {role}'s answers are one and the same (entropy {entropy:.2f} "
        f"nats) while {success[-1]:.0%} of the episodes are won"
    )


def _judge_unreadable(past: Past, role: str) -> str | None:
    shares = lately(past, f"{role}/unparsable_rate", PATIENCE)
    if shares is None or min(shares) < UNREADABLE or shares[-1] >= FOREIGN:
        return None
    return f"{shares[-1]:.0%} of the {role}'s judgements hold no score"


def _foreign_judge(past: Past, role: str) -> str | None:
    share = read(past[-1], f"{role}/unparsable_rate")
    if share is None or share < FOREIGN:
        return None
    return f"{share:.0%} of the {role}'s judgements hold no score: it does not know this domain"


def _judge_worse(past: Past, role: str) -> str | None:
    for name, said in JUDGE_ACCURACIES.items():
        if not (known := trend_values(past, f"{role}/{name}")):
            continue
        [values] = known
        fall = -fitted_change(values)
        if trend(values) <= -TREND and fall >= ACCURACY_FALL:
            return f"the {role}'s {said} fell by {fall:.1%} over {len(values)} iterations"
        return None
    return None


def _low_mu(past: Past, role: str) -> str | None:
    values = lately(past, f"{role}/mu", PATIENCE)
    if values is None or max(values) > 1:
        return None
    return (
        f"the {role}'s mu = p+ + p- is {values[-1]:.2f}, at most 1 for {PATIENCE} iterations "
        "(Theorem 1)"
    )


def _lopsided_weights(past: Past, role: str) -> str | None:
    # None: |f-| is 0; without judged or readable steps that means nothing.
    name = f"{role}/weight_ratio"
    rows = [
        row
        for row in past[-LOPSIDED_ITERATIONS:]
        if name in row
        and read(row, f"{role}/commonest_share") is not None
        and (read(row, f"{role}/unparsable_rate") or 0) < UNREADABLE
    ]
    ratios = [read(row, name) for row in rows]
    if len(ratios) < LOPSIDED_ITERATIONS:
        return None
    heavy = all(ratio is None or ratio > LOPSIDED for ratio in ratios)
    light = all(ratio is not None and ratio < 1 / LOPSIDED for ratio in ratios)
    if not heavy and not light:
        return None
    last = "unbounded" if ratios[-1] is None else f"{ratios[-1]:.2f}"
    won = [share for row in rows if (share := read(row, "rollouts/success")) is not None]
    if won and (mean(won) > TASKS_LOPSIDED[1] if heavy else mean(won) < TASKS_LOPSIDED[0]):
        why = f"the tasks are too {'easy' if heavy else 'hard'}"
    else:  # both kinds of episodes were judged
        kind, score = ("lost", "-1") if heavy else ("won", "+1")
        why = f"the {role} hardly ever scores a step of a {kind} episode {score}"
    return (
        f"the {role}'s |f+| / |f-| is {last}, far from 1 for {LOPSIDED_ITERATIONS} iterations "
        f"(Theorem 2): {why}"
    )


def _reward_hacking(past: Past, role: str) -> str | None:
    """Detects that scores of lost episodes rise while success does not."""
    names = (f"{role}/lost_mean_score", "rollouts/success")
    if known := trend_values(past, *names):
        scores, success = known
        rise, gained = fitted_change(scores), fitted_change(success)
        if trend(scores) >= TREND and rise >= SCORE_RISE and _unexplained(rise, gained):
            return _pleased(role, rise, gained, f"over {len(scores)} iterations")
    scores, success = known_values(past, *names) or ((), ())
    for split in range(LEAP_ITERATIONS, len(scores) - LEAP_ITERATIONS + 1):
        rise, gained = (mean(v[split:]) - mean(v[:split]) for v in (scores, success))
        apart = min(scores[split:]) > max(scores[:split])
        if apart and rise >= LEAP_OF_SCORE and _unexplained(rise, gained):
            return _pleased(role, rise, gained, f"in the last {len(scores) - split} iterations")
    return None


def _unexplained(rise: float, gained: float) -> bool:
    return gained <= max(SUCCESS_FLAT, SUCCESS_PER_SCORE * rise)


def _pleased(role: str, rise: float, gained: float, when: str) -> str:
    return (
        f"the {role}'s mean step score of lost episodes rose by {rise:.2f} {when} while success "
        f"changed by {gained:+.1%}: the policy may be pleasing the {role}"
    )


FOREIGN_ASKED = 4
"""Slots asked in one iteration, several tries each, without a single valid answer."""
MISMATCH_KL = 0.01
"""KL per token; float32 gives 1e-12, bfloat16 in another engine about 1e-3."""
MISMATCH_OUTSIDE = 0.05
"""Share of tokens with a ratio outside [0.9, 1.1] before any update."""
CLIPPED = 0.2
"""Share of clipped tokens, whose gradients are lost."""
LEAP = 0.3
"""KL in nats per token that one iteration moves a role. Above it, a few nearly abandoned tokens
dominate the loss. Policies of short text games stay below 0.14."""
FUNNEL_ITERATIONS = 5
FUNNEL_ASKED = 16
"""Slots asked (or candidates settled) in those iterations before the funnel is called blocked."""
DRIFT = 0.8
"""Cosine distance. Another object and place in a household task give 0.2 to 0.7, another kind of
task 1.0."""
MASKED = 0.1
"""Share of an iteration's rollouts that were masked."""
ENTROPY_LEFT = 0.1
"""Share of the first iterations' entropy below which samples are nearly always the same."""


def _foreign_adapter(past: Past, role: str) -> str | None:
    asked = read(past[-1], "tasks/asked") or 0
    if asked < FOREIGN_ASKED or read(past[-1], "tasks/valid"):
        return None
    return (
        f"the {role} was asked for {asked:.0f} tasks and gave no valid answer: this model does "
        "not know this domain, or the domain rewrites no tasks"
    )


def _mismatch(past: Past, role: str) -> str | None:
    if read(past[-1], "rollouts/staleness_max"):  # the sampler's weights were others
        return None
    kl = read(past[-1], f"{role}/mismatch_kl") or 0.0
    outside = read(past[-1], f"{role}/mismatch_outside") or 0.0
    if kl > MISMATCH_KL or outside > MISMATCH_OUTSIDE:
        return (
            f"the {role}'s sampler and learner differ by a KL of {kl:.2g} a token, "
            f"{outside:.1%} of the tokens by more than a tenth"
        )
    return None


def _clipping(past: Past, role: str) -> str | None:
    shares = lately(past, f"{role}/clip_share", PATIENCE)
    if shares is not None and min(shares) > CLIPPED:
        return f"{shares[-1]:.0%} of the {role}'s tokens leave the clip range"
    return None


def _leap(past: Past, role: str) -> str | None:
    if (kl := read(past[-1], f"{role}/kl") or 0.0) > LEAP:
        return f"an iteration moved the {role} by a KL of {kl:.2g} nats a token"
    return None


def _skipped(past: Past, role: str) -> str | None:
    if skipped := read(past[-1], f"{role}/skipped_updates"):
        return f"{skipped:.0f} updates of the {role} were not finite and were skipped"
    return None


def _too_long(past: Past, role: str) -> str | None:
    if count := read(past[-1], f"{role}/too_long"):
        return (
            f"{count:.0f} prompts of the {role} did not fit into its context, and were "
            "answered with nothing"
        )
    return None


def _cut(past: Past, role: str) -> str | None:
    share = _share_of_answers(past[-1], role, "cut")
    if share >= UNREADABLE:
        return f"{share:.0%} of the {role}'s answers were cut off by {role_key(role)}.max_tokens"
    return None


def _withheld(past: Past, role: str) -> str | None:
    if refused := read(past[-1], f"{role}/refused"):
        return f"the endpoint withheld {refused:.0f} answers of the {role} (a content filter)"
    if (share := _share_of_answers(past[-1], role, "empty")) >= UNREADABLE:
        return f"{share:.0%} of the {role}'s answers came back empty"
    return None


def _share_of_answers(row: Numbers, role: str, kind: str) -> float:
    asked = read(row, f"{role}/requests") or 0
    return (read(row, f"{role}/{kind}") or 0) / asked if asked else 0.0


def _nothing_trains(past: Past, role: str) -> str | None:
    # Shown at the first iteration: a new user should not wait for nothing.
    count = 1 if len(past) == 1 else PATIENCE
    shares = lately(past, f"{role}/window_share", count)
    if shares is not None and max(shares) == 0:
        lasted = "in the first iteration" if count == 1 else f"for {count} iterations"
        return f"no task lay in the {role}'s window {lasted}: it does not train"
    return None


def _funnel(past: Past, role: str) -> str | None:
    asked, parsed, valid, proposed, accepted, rejected = (
        sum(read(row, f"tasks/{stage}") or 0 for row in past[-FUNNEL_ITERATIONS:])
        for stage in ("asked", "parsed", "valid", "proposed", "accepted", "rejected")
    )
    count = min(len(past), FUNNEL_ITERATIONS)
    lasted = "the first iteration" if count == 1 else f"{count} iterations"
    if asked >= FUNNEL_ASKED and not proposed:
        return (
            f"the {role} was asked for {asked:.0f} tasks in {lasted}: "
            f"{parsed:.0f} could be read, {valid:.0f} were valid, none became a candidate"
        )
    if accepted + rejected >= FUNNEL_ASKED and not accepted:
        return f"{rejected:.0f} candidates in {lasted} and none was accepted"
    return None


def _masked(past: Past, role: str) -> str | None:
    masked, failures, played = (
        read(past[-1], f"rollouts/{name}") or 0 for name in ("masked", "failures", "episodes")
    )
    if not masked or masked <= MASKED * (played + failures):
        return None
    return (
        f"{masked / (played + failures):.0%} of the {role}'s rollouts were masked: their "
        "environments failed"
    )


def _drift(past: Past, role: str) -> str | None:
    distance = read(past[-1], "tasks/drift")
    if distance is None or distance <= DRIFT:
        return None
    return f"rewritten tasks lie at a mean cosine distance of {distance:.2f} from their roots"


def _entropy(past: Past, role: str) -> str | None:
    reference = [value for row in past[:PATIENCE] if (value := read(row, f"{role}/entropy"))]
    latest = lately(past, f"{role}/entropy", PATIENCE)
    if len(reference) < PATIENCE or latest is None:
        return None
    before = sum(reference) / PATIENCE
    if max(latest) > ENTROPY_LEFT * before:
        return None
    return f"the {role}'s entropy fell from {before:.3g} to {latest[-1]:.3g} nats a token"


@dataclass(frozen=True, slots=True)
class Rule:
    """A possible warning about a role."""

    check: Check
    holds_when: str
    """The condition in words."""
    remedy: str
    """The settings to try; `{role}` and `{section}` stand for the role's name and its place in a
    recipe."""
    does: tuple[str, ...] = ()
    """Tasks of roles that the rule applies to; empty: all."""


JUDGES = ("scores",)
OF_SCORES = {"judge collapse", "judge accuracy", "mu", "weight ratio"}
"""Rules that are not for judges of value, whose scores say only on which side of 5 a grade is."""
RULES: Mapping[str, Rule] = {
    "judge collapse": Rule(
        _judge_collapse,
        "nearly all its answers are one and the same while episodes end both ways",
        "try {section}.learning_rate lower, feedback.judge_reward.options.balance=outcome, or a "
        "higher {section}.temperature; `rlanything judge-check` asks it more",
        JUDGES,
    ),
    "judge unreadable": Rule(
        _judge_unreadable,
        "many judgements hold no score",
        "have the {role}'s prompt end with the form of the answer, or take a {section}.model that "
        "keeps to it; answers that were cut off or withheld have a warning of their own",
        JUDGES,
    ),
    "foreign judge": Rule(
        _foreign_judge,
        "nearly no judgement of an iteration holds a score",
        "set {section}.model to one that knows it (`rlanything nano build --domain module:Class` "
        "makes one from the domain's own oracle), or raise {section}.max_tokens if its answers "
        "are cut off",
        JUDGES,
    ),
    "judge accuracy": Rule(
        _judge_worse,
        "balanced Process Acc (or UT, or Outcome Acc) falls, significantly",
        "try {section}.learning_rate lower, or go back to a checkpoint before the fall",
        JUDGES,
    ),
    "mu": Rule(
        _low_mu,
        "mu is at most 1 for several iterations",
        "more judgements cannot help such a judge: try a stronger {section}.model, or "
        "feedback.policy_reward=outcome until it is better than chance",
        JUDGES,
    ),
    "weight ratio": Rule(
        _lopsided_weights,
        "the weight ratio is far from 1 for several iterations",
        "if it is the tasks, see that curriculum.adapt_tasks is on and its candidates are "
        "accepted, or choose others; feedback.judge_reward.options.balance=outcome evens it out; "
        "if it is the {role}, try a stronger {section}.model",
        JUDGES,
    ),
    "reward hacking": Rule(
        _reward_hacking,
        "the mean score of lost episodes rises, significantly or by a leap, and success does not",
        "run `rlanything judge-check`, try feedback.policy_lambda lower, and train the {role} "
        "({section}.learning_rate) if it is frozen",
        JUDGES,
    ),
    "mismatch": Rule(
        _mismatch,
        "sampler and learner disagree on what was sampled",
        "set old_logprobs: recomputed with an importance_cap in the section `{section}`, or give "
        "sampler and learner one dtype (float32 where bfloat16 on both still differs)",
    ),
    "clipping": Rule(
        _clipping,
        "much of what should train leaves the clip range",
        "try {section}.learning_rate lower, or fewer minibatches or epochs",
    ),
    "large updates": Rule(
        _leap,
        "before a later step of an iteration, a role's KL to what sampled is large",
        "try {section}.learning_rate lower, or fewer minibatches or epochs",
    ),
    "skipped updates": Rule(
        _skipped,
        "an update was not finite",
        "try {section}.learning_rate lower; with max_skipped_updates in a row the run stops",
    ),
    "prompts too long": Rule(
        _too_long,
        "a prompt of an iteration does not fit into the model's context",
        "raise {section}.engine.max_context, or what its endpoint allows, or lower "
        "{section}.max_tokens or loop.max_steps",
    ),
    "answers cut off": Rule(
        _cut,
        "many answers of judge or adapter are cut off by their limit",
        "raise {section}.max_tokens; where the score comes first, say {section}.score_first=true",
        (
            "scores",
            "rewrites",
        ),
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
        "set {section}.model to one that knows it (`rlanything nano build --domain module:Class` "
        "makes one from the domain's own rewrites), or curriculum.adapt_tasks=false",
        ("rewrites",),
    ),
    "proposal funnel": Rule(
        _funnel,
        "many slots were asked for and none got a candidate, or no candidate is accepted",
        "see what was refused and why (table `proposals` of run.sqlite), then try a stronger "
        "{section}.model, more {section}.tries, or another prompt",
        ("rewrites",),
    ),
    "masked rollouts": Rule(
        _masked,
        "environments failed in the middle of many rollouts, and not by a response",
        "see the reasons (table `failures` of run.sqlite), then the servers and programs that they "
        "name, or lower environment.parallel_episodes",
        ("acts",),
    ),
    "task drift": Rule(
        _drift,
        "rewritten tasks are far from their roots",
        "see `rlanything tasks`; make the {role}'s prompt keep closer to the root task",
        ("rewrites",),
    ),
    "entropy": Rule(
        _entropy,
        "a policy's entropy is nearly gone",
        "try {section}.learning_rate lower, {section}.kl_weight or {section}.temperature higher",
        ("acts",),
    ),
}


@dataclass(frozen=True, slots=True)
class Warned:
    """A warning that was raised."""

    iteration: int
    """The iteration at which it first held."""
    name: str
    message: str
    """The measurement in words."""
    remedy: str
    """The settings to try."""

    def line(self) -> str:
        return f"warning, {self.name}: {self.message}; {self.remedy}"


def find_warnings(history: Mapping[int, Numbers], roles: Mapping[str, str]) -> list[Warned]:
    """Returns each warning once, ordered by the iteration in which its rule first held: rules about
    judges once per judge, others for the first role they hold for.

    `history`: the metrics by iteration; `roles`: task of each role, by name."""
    past: list[Numbers] = []
    given: dict[tuple[str, str], Warned] = {}
    for iteration in sorted(history):
        if read(history[iteration], "rollouts/episodes") is None:
            continue  # evaluated before training
        past.append(history[iteration])
        for name, rule in RULES.items():
            for role, does in roles.items():
                key = name, role if rule.does == JUDGES else ""
                graded = name in OF_SCORES and f"{role}/quadratic_score" in past[-1]
                if graded or key in given or (rule.does and does not in rule.does):
                    continue
                if (message := rule.check(past, role)) is not None:
                    remedy = rule.remedy.format(role=role, section=role_key(role))
                    given[key] = Warned(iteration, name, message, remedy)
    return list(given.values())
