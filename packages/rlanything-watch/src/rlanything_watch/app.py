"""The screen of `rlanything watch`: keys, panes, and a look at the runs every few seconds."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar

from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.events import Resize
from textual.widgets import Footer, Static

from rlanything.terminal import one_line
from rlanything_watch import panes
from rlanything_watch.source import RunSource, RunView

EVERY_SECONDS = 2.0
"""Time between two looks at the files of the runs; they are read only after a change."""
PANES = ("Curves", "Episode", "Pool", "Warnings", "Throughput")


@dataclass(slots=True)
class Watched:
    """A run on the screen."""

    source: RunSource
    view: RunView | None = None
    """The latest that could be read; None before."""
    problem: str = ""
    """One line if the run cannot be read now."""
    episode: str | None = None
    """Id of the episode that was chosen; None: the newest, whichever that is."""
    step: int = 0


class WatchApp(App[None]):
    """Shows runs in panes, one run at a time or their curves together. Changes nothing."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Static { height: auto; }
    #head, #menu { height: 1; }
    #head { background: $panel; }
    #problem { background: $error; color: $text; display: none; }
    #pane { overflow-y: scroll; scrollbar-size-vertical: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            Binding(f"{number}", f"pane({number - 1})", name, show=False)
            for number, name in enumerate(PANES, 1)
        ),
        Binding("tab", "turn(1)", "Pane", priority=True),
        Binding("shift+tab", "turn(-1)", "Pane before", show=False, priority=True),
        Binding("right", "step(1)", "Step", key_display="←/→", priority=True),
        Binding("left", "step(-1)", "Step before", show=False, priority=True),
        Binding("left_square_bracket", "episode(-1)", "Older", key_display="["),
        Binding("right_square_bracket", "episode(1)", "Newer", key_display="]"),
        Binding("n", "newest", "Newest"),
        Binding("r", "run", "Run"),
        Binding("o", "overlay", "Overlay"),
        Binding("down", "scroll(1)", "Scroll", key_display="↑/↓", priority=True),
        Binding("up", "scroll(-1)", "Scroll up", show=False, priority=True),
        Binding("q", "quit", "Quit"),
    ]

    def __init__(self, sources: Sequence[RunSource]) -> None:
        super().__init__()
        self.runs = [Watched(source) for source in sources]
        self.current = 0
        self.pane = 0
        self.overlay = False
        """Whether the curves of all runs are in the same charts."""
        self._wake = asyncio.Event()

    def compose(self) -> ComposeResult:
        yield Static(id="head", markup=False)
        yield Static(id="problem", markup=False)
        yield Static(id="menu", markup=False)
        with VerticalScroll(id="pane"):
            yield Static("Reading the run ...", id="content", markup=False)
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        self.query_one("#pane").focus()
        self._show()
        self.follow()

    def on_resize(self, event: Resize) -> None:
        self.call_after_refresh(self._show)

    @work
    async def follow(self) -> None:
        """Looks at the runs again and again, in a thread that reads one after the other."""
        while True:
            self._wake.clear()
            for run in self.runs:
                await self._look(run)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), EVERY_SECONDS)

    async def _look(self, run: Watched) -> None:
        try:
            view = await asyncio.to_thread(run.source.read, run.episode)
        except (ValueError, OSError, sqlite3.Error) as error:
            problem = f"cannot be read: {one_line(str(error))}"
            changed, run.problem = problem != run.problem, problem
        else:
            changed = view is not None or run.problem != ""
            run.problem = ""
            if view is not None:
                if _chosen(view) != _chosen(run.view):
                    run.step = 0
                run.view = view
        if changed:
            self._show()

    # --- keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Hides the keys that do nothing in this pane or with one run."""
        if action in ("step", "episode", "newest"):
            return PANES[self.pane] == "Episode"
        if action == "overlay":
            return len(self.runs) > 1 and PANES[self.pane] == "Curves"
        return action != "run" or len(self.runs) > 1

    def action_pane(self, number: int) -> None:
        self.pane = number
        self.query_one("#pane").scroll_home(animate=False)
        self._show()
        self.refresh_bindings()

    def action_turn(self, by: int) -> None:
        self.action_pane((self.pane + by) % len(PANES))

    def action_run(self) -> None:
        self.current = (self.current + 1) % len(self.runs)
        self.overlay = False
        self.action_pane(self.pane)

    def action_overlay(self) -> None:
        self.overlay = not self.overlay
        self.action_pane(self.pane)

    def action_step(self, by: int) -> None:
        run = self.runs[self.current]
        count = len(run.view.played.steps) if run.view and run.view.played else 0
        run.step = max(0, min(run.step + by, count - 1))
        self.action_pane(self.pane)

    def action_episode(self, by: int) -> None:
        run = self.runs[self.current]
        if run.view is None or run.view.chosen is None:
            return
        last = len(run.view.episodes) - 1
        place = max(0, min(run.view.chosen + by, last))
        run.episode = None if place == last else run.view.episodes[place].id
        self._wake.set()

    def action_newest(self) -> None:
        self.runs[self.current].episode = None
        self._wake.set()

    def action_scroll(self, by: int) -> None:
        self.query_one("#pane").scroll_relative(y=by, animate=False)

    # --- drawing

    def _show(self) -> None:
        if not self.is_running:  # a look can end after the screen has closed
            return
        run = self.runs[self.current]
        place = f"{self.current + 1}/{len(self.runs)} " if len(self.runs) > 1 else ""
        name = one_line(str(run.source.directory))
        problem = self.query_one("#problem", Static)
        problem.display = run.problem != ""
        problem.update(Content(f"{name} {run.problem}"))
        heading = Content.styled(f"{place}{name}", "bold")
        if run.view is not None:
            heading = panes.head(run.view.facts, place, self.size.width)
        self.query_one("#head", Static).update(heading)
        self.query_one("#menu", Static).update(self._menu())
        if run.view is not None:
            content = self.query_one("#content", Static)
            try:
                content.update(self._content(run, run.view, content.size.width))
            except (ArithmeticError, ValueError):  # infinite or huge numbers in the store
                content.update(Content("This page has numbers that no run writes."))

    def _menu(self) -> Content:
        return Content(" ").join(
            Content.styled(f" {number} {name} ", "reverse" if number - 1 == self.pane else "")
            for number, name in enumerate(PANES, 1)
        )

    def _content(self, run: Watched, view: RunView, width: int) -> Content:
        match PANES[self.pane]:
            case "Curves":
                shown = {"": view}
                if self.overlay:
                    shown = self._labelled()
                return panes.curves(shown, width, self.query_one("#pane").size.height)
            case "Episode":
                return panes.episode(view, run.step)
            case "Pool":
                return panes.pool(view)
            case "Warnings":
                return panes.warned(view.facts)
            case _:
                return panes.throughput(view.facts)

    def _labelled(self) -> dict[str, RunView]:
        """Returns the runs that could be read by name, or by directory if names are not unique."""
        views = {str(run.source.directory): run.view for run in self.runs if run.view is not None}
        names = [view.facts.name for view in views.values()]
        unique = len(set(names)) == len(names)
        return dict(zip(names, views.values(), strict=True)) if unique else views


def _chosen(view: RunView | None) -> str | None:
    return None if view is None or view.chosen is None else view.episodes[view.chosen].id
