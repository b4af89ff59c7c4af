"""The five panes as text, from what was read of a run. Text of models and tasks is shown literally.

`docs/metrics.md` explains the metrics behind them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from textual.content import Content

from rlanything.evaluation.intervals import Interval
from rlanything.runs.report.curves import Curve, Point
from rlanything.runs.report.facts import Facts, Verdict
from rlanything.runs.store.stored import StoredJudgement, StoredStep, StoredTrajectory
from rlanything.runs.summary import percent, share
from rlanything.terminal import one_line, visible
from rlanything_watch.chart import ChartLine, draw
from rlanything_watch.source import RunView

COLORS = ("#5fd7ff", "#ffd75f", "#d787ff", "#87d787", "#ff8787", "#d7d7af")
"""Colours of curves, all in the palette of a terminal with 256."""
GOOD, BAD, LABEL = "#87d787", "#ff8787", "bold #5fd7ff"
LEGEND = 32
"""Columns of a chart's legend."""
CHART_ROWS = (8, 16)
"""Fewest and most rows of a chart."""
LONGEST_TEXT = 4_000
"""Characters of an observation, a response or a judgement that are shown."""
MOST_EVENTS = 200
"""Latest events of the pool that are shown."""
LATEST = 10
"""Number of latest iterations that the throughput is averaged over."""


def lines(parts: Iterable[Content | str]) -> Content:
    """Returns one line for each part."""
    return Content("\n").join(parts)


def head(facts: Facts, place: str, width: int) -> Content:
    """Returns the line about a run; `place`: `1/3 ` among several runs."""
    of = "" if facts.planned is None else f" of {facts.planned}"
    parts = [f"iteration {facts.iterations}{of}", f"{facts.episodes:,} episodes"]
    parts += [facts.domain] if facts.domain else []
    parts += [f"kept {facts.updated[:16].replace('T', ' ')} UTC"] if facts.updated else []
    state = {"running": GOOD, "stopped": BAD}.get(facts.state, "")
    text = Content.assemble(
        (f"{place}{one_line(facts.name)}", "bold"),
        " ",
        (facts.state, f"{state} bold"),
        one_line("".join(f" · {part}" for part in parts)),
    )
    return text.truncate(width, ellipsis=True)


# --- curves


def curves(views: Mapping[str, RunView], width: int, height: int) -> Content:
    """Returns the curves of one run, or of several in the same charts; `views`: runs by label."""
    if len(views) == 1:
        [view] = views.values()
        charts = _charts(view.facts)
    else:
        charts = _overlaid({label: view.facts for label, view in views.items()})
    if not charts:
        return Content("Nothing was measured yet.")
    fewest, most = CHART_ROWS
    rows = min(max(height // len(charts) - 1, fewest), most)
    return lines(row for title, of in charts for row in _chart(title, of, width, rows))


def _charts(facts: Facts) -> list[tuple[str, list[ChartLine]]]:
    charts = [(_title("success", facts.policy.verdicts, ""), _lines(facts.policy.curves))]
    for judge in facts.judges:
        title = _title(judge.name, judge.verdicts, judge.fault)
        charts.append((title, _lines(judge.curves)))
    return [(title, of) for title, of in charts if of]


def _overlaid(runs: Mapping[str, Facts]) -> list[tuple[str, list[ChartLine]]]:
    """Returns a chart for each curve that a run has, with a line for each run that has it."""
    charts: dict[str, list[ChartLine]] = {}
    for color, (label, facts) in zip(_colors(len(runs)), runs.items(), strict=True):
        roles = {"success": facts.policy.curves} | {j.name: j.curves for j in facts.judges}
        for role, of_role in roles.items():
            for curve in of_role:
                title = f"{role}: {curve.name}"
                charts.setdefault(title, []).append(ChartLine(label, curve.points, color))
    return list(charts.items())


def _lines(measured: Sequence[Curve]) -> list[ChartLine]:
    pairs = zip(measured, _colors(len(measured)), strict=True)
    return [ChartLine(curve.name, curve.points, color) for curve, color in pairs]


def _colors(count: int) -> list[str]:
    return [COLORS[i % len(COLORS)] for i in range(count)]


def _title(name: str, verdicts: Sequence[Verdict], fault: str) -> str:
    """Returns `success: in_domain improved, ood not clearly improved`."""
    judged = [f"{each.gain.name} {each.verdict.partition(' (')[0]}" for each in verdicts]
    return f"{name}: {', '.join([*judged, *filter(None, [fault])])}".removesuffix(": ")


def _chart(title: str, of: Sequence[ChartLine], width: int, height: int) -> list[Content]:
    legend = [
        row
        for number, line in enumerate(of, 1)
        for row in (
            Content.styled(f"{number} {one_line(line.name)}", line.color),
            Content(f"  {_level(line.points[-1])}"),
        )
    ]
    left = width - min(LEGEND, width // 2) - 1
    plot = draw(of, left, height)
    rows = [
        Content.assemble(
            drawn.truncate(left, pad=True), " ", said.truncate(width - left - 1, ellipsis=True)
        )
        for drawn, said in zip_longest(plot, legend, fillvalue=Content(""))
    ]
    return [Content.styled(one_line(title), "bold").truncate(width, ellipsis=True), *rows]


def _level(point: Point) -> str:
    """Returns `41.2% [36.0, 46.6]`."""
    if point.low is None or point.high is None:
        return share(point.estimate)
    return percent(Interval(point.estimate, point.low, point.high))


# --- the episode


def episode(view: RunView, step: int) -> Content:
    """Returns a step of the chosen episode with the judge's words; `step`: from 0."""
    if view.chosen is None:
        return Content("No episode is kept yet: a run keeps them after each iteration.")
    chosen = view.episodes[view.chosen]
    instruction = view.instructions.get(chosen.task, chosen.task)
    group, count = chosen.id.rpartition("/")[2], len(view.episodes)
    newest = ", the newest" if view.chosen == count - 1 else ""
    facts = f" · iteration {chosen.iteration} · attempt {group} · {chosen.task}"
    reward = "" if chosen.reward is None else f" · reward {chosen.reward:g}"
    top = [
        Content.styled(visible(instruction), "bold"),
        Content.assemble(_outcome(chosen.outcome), one_line(facts + reward)),
        Content.styled(f"episode {view.chosen + 1:,} of {count:,}{newest}", "dim"),
        Content(""),
    ]
    if view.played is None:
        note = "Its texts were forgotten, as the recipe asks (store.keep_iterations)."
        return lines([*top, Content(note)])
    if not view.played.steps:
        return lines([*top, Content("No step was taken.")])
    return lines([*top, *_step(view.played, min(step, len(view.played.steps) - 1))])


def _step(played: StoredTrajectory, place: int) -> list[Content]:
    step, count = played.steps[place], len(played.steps)
    says = sum(each.score for each in step.judgements)
    marks = [
        _advantage(step.advantage),
        "" if step.valid else "no valid action",
        f"oracle: {'good' if step.label > 0 else 'bad'} step" if step.label else "",
        "the judge contradicts the outcome" if says * played.outcome < 0 else "",
    ]
    title = f"step {place + 1} of {count}"
    rows = [Content.styled(" · ".join(filter(None, [title, *marks])), "bold reverse")]
    rows += _text("observation", step.observation)
    rows += [Content.styled(f"screenshot {one_line(step.image)}", "dim")] if step.image else []
    rows += _text("response", step.response)
    rows += _text("action", "none was found" if step.action is None else step.action)
    rows += _judgements(step)
    if place == count - 1:
        rows += _text("in the end", step.next_observation)
    return rows


def _judgements(step: StoredStep) -> list[Content]:
    if not step.judgements:
        return []
    scores = [_score(each) for each in step.judgements]
    rows = [Content(""), Content.assemble(("judgements ", LABEL), Content(" ").join(scores))]
    for judgement in step.judgements:
        text = _cut(visible(judgement.completion.text)) or "(no words were kept)"
        facts = filter(None, [one_line(judgement.by), _advantage(judgement.advantage)])
        rows.append(Content.assemble(_score(judgement), (f" {', '.join(facts)}: ", "dim"), text))
    return rows


def _score(judgement: StoredJudgement) -> Content:
    text = f"{judgement.score:+d}" if judgement.score else "?"
    return Content.styled(text, {1: GOOD, -1: BAD}.get(judgement.score, ""))


def _text(label: str, text: str) -> list[Content]:
    return [Content(""), Content.styled(label, LABEL), Content(_cut(visible(text)))]


def _cut(text: str) -> str:
    rest = len(text) - LONGEST_TEXT
    return text if rest <= 0 else f"{text[:LONGEST_TEXT]}… ({rest:,} more characters)"


def _outcome(outcome: int) -> tuple[str, str]:
    return ("✓ won", GOOD) if outcome == 1 else ("✗ lost", BAD)


def _advantage(advantage: float | None) -> str:
    return "" if advantage is None else f"advantage {advantage:+.2f}"


# --- the pool


def pool(view: RunView) -> Content:
    """Returns the tasks by state, the candidates that wait for rollouts, and what became of the
    others, newest first."""
    counts = view.facts.tasks
    top = [
        Content.styled(f"{counts.slots} slots, {counts.rewritten} rewritten", "bold"),
        Content(
            f"{counts.proposed} candidates: {counts.accepted} accepted, {counts.rejected} "
            f"rejected, {counts.pending} pending; {counts.quarantined} tasks quarantined"
        ),
    ]
    events = [(slot, event) for slot in view.slots for event in slot["history"]]
    if not events:
        return lines([*top, "", "No task has been rewritten so far."])
    events.sort(key=lambda pair: (-pair[1]["iteration"], pair[1]["event"] == "proposed"))
    shown = events[:MOST_EVENTS]
    rows = [row for slot, event in shown for row in _event(slot, event)]
    more = [f"… {len(events) - len(shown):,} older ones"] if len(events) > len(shown) else []
    return lines([*top, *rows, *more])


def _event(slot: Mapping[str, Any], event: Mapping[str, Any]) -> list[Content]:
    kind, before, after = event["event"], event["parent_accuracy"], event["candidate_accuracy"]
    if kind == "proposed":
        waits = ", pending" if slot["pending"] == event["task"] else ""
        said = f"{event['direction']} than {share(before)} won{waits}"
    else:
        said = f"won {share(before)} → {share(after)}: {event['reason']}"
    style = {"accepted": GOOD, "rejected": BAD}.get(kind, LABEL)
    where = f"iteration {event['iteration']} · {one_line(slot['slot'])} · "
    rows = [
        Content(""),
        Content.assemble((where, "dim"), (one_line(kind), style), f" · {one_line(said)}"),
    ]
    if kind == "proposed":
        rows += [Content(_cut(visible(f"→ {event['instruction']}")))]
        critics = [_cut(visible(f"critic: {text}")) for text in event["critics"]]
        rows += [Content.styled(text, "dim") for text in critics]
    return rows


# --- warnings


def warned(facts: Facts) -> Content:
    """Returns the warnings with what to try, newest first."""
    if not facts.warnings:
        return Content("No warnings.")
    rows: list[Content] = []
    for warning in sorted(facts.warnings, key=lambda warning: -warning.iteration):
        rows += [
            Content.assemble((warning.name, f"bold {BAD}"), f" from iteration {warning.iteration}"),
            Content(visible(warning.message)),
            Content.styled(visible(warning.remedy), "dim"),
            Content(""),
        ]
    return lines(rows[:-1])


# --- throughput


def throughput(facts: Facts) -> Content:
    """Returns the speed of the latest iterations, and where their time went."""
    phases = [name for name in facts.metrics if name.startswith("seconds/")]
    trained = [i for i, t in enumerate(facts.metric_iterations) if t > 0]
    latest = [i for i in trained[-LATEST:] if any(_at(facts, name, i) for name in phases)]
    if not latest:
        return Content("No iteration is kept yet.")
    mean = {name: _sum(facts, name, latest) / len(latest) for name in phases}
    whole = sum(mean.values())
    last = sum(_at(facts, name, latest[-1]) for name in phases)
    left = max(0, (facts.planned or 0) - facts.iterations)
    ends = f"; {left} left: about {duration(left * whole)}" if left else ""
    return lines(
        [
            Content.assemble(
                (f"iteration {facts.metric_iterations[latest[-1]]} took {duration(last)}", "bold"),
                f", the latest {len(latest)} on average {duration(whole)}{ends}",
            ),
            *_rates(facts, latest),
            Content(""),
            Content.styled(f"{'where the time went':<24}{'last':>9}{'average':>10}", LABEL),
            *(
                _phase(name, _at(facts, name, latest[-1]), mean[name], whole)
                for name in sorted(phases, key=lambda name: -mean[name])
            ),
        ]
    )


def _rates(facts: Facts, latest: Sequence[int]) -> list[Content]:
    """Returns episodes and tokens per second of the phases in which roles speak."""
    playing = _sum(facts, "seconds/rollouts", latest)
    rows: list[Content] = []
    if playing and (played := _sum(facts, "rollouts/episodes", latest)):
        steps = _sum(facts, "rollouts/steps", latest)
        rate = f"{played / playing:.2f} episodes/s, {steps / playing:.1f} steps/s"
        rows.append(Content(f"playing: {rate}"))
    phases = {facts.policy.name: "rollouts"} | {j.name: "judgements" for j in facts.judges}
    for role in facts.roles:
        phase = phases.get(role, "proposals")
        seconds = _sum(facts, f"seconds/{phase}", latest)
        written = _sum(facts, f"{role}/completion_tokens", latest)
        if seconds and written:
            read = _sum(facts, f"{role}/prompt_tokens", latest)
            rate = f"{written / seconds:,.0f} tokens/s written, {read / seconds:,.0f} read"
            rows.append(Content(one_line(f"{role}: {rate} ({phase})")))
    return rows


def _phase(name: str, last: float, mean: float, whole: float) -> Content:
    part = min(mean / whole, 1.0) if whole else 0.0
    label = one_line(name.removeprefix("seconds/"))
    return Content.assemble(
        f"{label:<24.24}{duration(last):>9}{duration(mean):>10}{part:>5.0%} ",
        ("█" * round(24 * part), COLORS[0]),
    )


def _at(facts: Facts, name: str, place: int) -> float:
    return facts.metrics[name][place] or 0.0 if name in facts.metrics else 0.0


def _sum(facts: Facts, name: str, places: Sequence[int]) -> float:
    return sum(_at(facts, name, place) for place in places)


def duration(seconds: float) -> str:
    """Returns `12.3 s`, `4.5 min` or `1.2 h`."""
    if seconds < 100:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
