"""The figure of an ablation: the gains of each arm, and the curves of its runs."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rlanything.runs.store.store import Store
from rlanything_lab.ablation.curves import mean_curve, metric
from rlanything_lab.ablation.grid import GridError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import SubFigure

    from rlanything_lab.ablation.results import Results

SHOWN = {
    "rollouts/success": "rollouts won",
    "judge/balanced_process_accuracy": "judge right,\nbalanced",
    "judge/ut": "tests right (UT)",
    "judge/detect": "faults found\n(Detect)",
    "judge/positive_rate": "judge says +1",
}
"""The curves to draw, if some run has them, with their labels."""
INK, SOFT, LINE = "#1f2328", "#8b939c", "#d9dcdf"
COLORS = ("#0067a8", "#c2540a", "#00785a", "#a54f83", "#8a6a00", "#4b4fb5")
"""One colour per arm in order; safe for colour-blind readers."""


def check_figure(path: Path) -> None:
    """Raises `GridError` if a figure cannot be drawn there."""
    if importlib.util.find_spec("matplotlib") is None:
        raise GridError(
            "--figure: matplotlib is not installed; pip install 'rlanything[figures]', or leave "
            "--figure out"
        )
    from matplotlib.backend_bases import FigureCanvasBase

    kinds = FigureCanvasBase.get_supported_filetypes()
    if path.suffix.removeprefix(".") not in kinds:
        raise GridError(f"--figure: {path} must end in one of .{', .'.join(sorted(kinds))}")


def draw(path: Path, results: Results, stores: Mapping[tuple[str, str], Store]) -> None:
    """Draws the gains of every arm with their intervals at the top, and every run's curves with
    their mean over seeds below. `stores`: by arm and seed; `path`: its suffix decides the
    format."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    arms = [row.name for row in results.rows if row.gains is not None]
    by_arm = {arm: [store for (own, _), store in stores.items() if own == arm] for arm in arms}
    curves = [name for name in SHOWN if any(metric(store, name) for store in stores.values())]
    with mpl.rc_context(
        {
            "font.size": 8.5,
            "axes.edgecolor": LINE,
            "text.color": INK,
            "xtick.color": SOFT,
            "ytick.color": SOFT,
            "svg.hashsalt": "rlanything",  # the same figure gives the same file
            "svg.fonttype": "none",
        }
    ):
        heights = (0.9 + 0.3 * len(arms), 0.6 + 1.25 * len(curves))
        whole = Figure(figsize=(10.5, sum(heights)), layout="constrained", facecolor="white")
        above, below = whole.subfigures(2, 1, squeeze=False, height_ratios=heights)[:, 0]
        _gains(above, results, arms)
        _curves(below, by_arm, curves)
        # Without a date, so that drawing the same runs again changes nothing.
        whole.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def _gains(figure: SubFigure, results: Results, arms: Sequence[str]) -> None:
    figure.suptitle("Points gained over before optimization, 95% intervals over seeds and tasks")
    rows = {row.name: row.gains or {} for row in results.rows}
    panels = figure.subplots(1, len(results.measures), sharey=True, squeeze=False)[0]
    for panel, measure in zip(panels, results.measures, strict=True):
        _plain(panel)
        panel.set_title(measure, fontsize=8.5)
        panel.axvline(0, color=SOFT, linewidth=0.8)
        for i, arm in enumerate(arms):
            if (gain := rows[arm][measure]) is None:
                continue
            low, at, high = (100 * each for each in (gain.low, gain.estimate, gain.high))
            color = COLORS[i % len(COLORS)]
            panel.plot([low, high], [i, i], color=color, linewidth=1.8)
            panel.plot([at], [i], "o", color=color, markersize=4.5)
        panel.set_yticks(range(len(arms)), arms, color=INK)
        panel.set_ylim(len(arms) - 0.5, -0.5)


def _curves(figure: SubFigure, by_arm: Mapping[str, list[Store]], curves: Sequence[str]) -> None:
    if not curves:
        return
    figure.suptitle("Iteration by iteration: every run, and the mean of its arm")
    panels = figure.subplots(len(curves), len(by_arm), sharex=True, sharey="row", squeeze=False)
    for row, name in zip(panels, curves, strict=True):
        row[0].set_ylabel(SHOWN[name], color=INK)
        for i, (panel, (arm, stores)) in enumerate(zip(row, by_arm.items(), strict=True)):
            _plain(panel)
            panel.yaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
            panel.xaxis.get_major_locator().set_params(integer=True)
            if row is panels[0]:
                panel.set_title(arm, fontsize=8.5)
            runs = [metric(store, name) for store in stores]
            if not any(runs):
                panel.text(
                    0.5, 0.5, "not measured", transform=panel.transAxes, ha="center", color=SOFT
                )
            color = COLORS[i % len(COLORS)]
            for own in runs:
                panel.plot(list(own), list(own.values()), color=color, linewidth=0.7, alpha=0.35)
            mean = mean_curve(stores, name)
            panel.plot(list(mean), list(mean.values()), color=color, linewidth=2)
    for panel in panels[-1]:
        panel.set_xlabel("iteration", color=SOFT, fontsize=7.5)


def _plain(panel: Axes) -> None:
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)
    panel.tick_params(length=2, labelsize=7.5)
    panel.grid(color=LINE, linewidth=0.4)
    panel.set_axisbelow(True)
