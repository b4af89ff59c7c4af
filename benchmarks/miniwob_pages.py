"""Which pages of MiniWoB++ work, and which their experts solve: writes benchmarks/miniwob-pages.md.

python benchmarks/miniwob_pages.py [--seeds 20]
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from playwright.sync_api import Error as PlaywrightError

from rlanything_miniwob.actions import Click, InvalidAction, parse_action
from rlanything_miniwob.browser import PACKAGE, Browser, executable
from rlanything_miniwob.environment import EpisodeSpec, PageEpisode, PageState
from rlanything_miniwob.experts import EXPERTS, Expert
from rlanything_miniwob.screen import text_of

MOST_STEPS = 60
"""Largest number of an expert's steps in an episode."""
CLICKS = 3
"""Clicks on the first elements, before a page begins for the third time."""
HEADER = (
    "# Pages of MiniWoB++\n\n"
    "`python benchmarks/miniwob_pages.py --seeds {seeds}` wrote this page. miniwob {miniwob}, "
    "{chromium}.\n\n"
    "Of {pages} pages {load} load, and {alike} show the same text whenever they begin with one "
    "seed: twice in a row, and once more after some clicks. {experts} have an expert; {perfect} of "
    "these reach the page's full reward on every one of the seeds 0 to {last} (mode `train`). "
    "Steps: the mean of episodes won. Characters: the longest text of a screen that was met.\n\n"
    "| page | loads | begins alike | expert won | steps | characters |\n"
    "|---|---|---|---|---|---|\n"
)


@dataclass(frozen=True, slots=True)
class Row:
    page: str
    loads: bool
    alike: bool
    longest: int
    steps: tuple[int, ...] | None
    """Steps of each episode that was won; None without an expert."""

    def line(self, seeds: int) -> str:
        won = "" if self.steps is None else f"{len(self.steps)} of {seeds}"
        mean = f"{statistics.mean(self.steps):.1f}" if self.steps else ""
        yes = {True: "yes", False: "no"}
        cells = [self.page, yes[self.loads], yes[self.alike], won, mean, str(self.longest)]
        return f"| {' | '.join(cells)} |"


def measure(browser: Browser, page: str, seeds: int) -> Row:
    try:
        looks = begin_thrice(PageEpisode(browser, EpisodeSpec(page, 0)))
    except PlaywrightError as fault:
        print(f"{page}: {fault}", file=sys.stderr)
        return Row(page, False, False, 0, None)
    alike = looks[0] == looks[1] == looks[2]
    longest = len(text_of(looks[0].elements))
    expert = EXPERTS.get(page)
    if expert is None:
        return Row(page, True, alike, longest, None)
    played = [play(browser, EpisodeSpec(page, seed), expert) for seed in range(seeds)]
    steps = tuple(count for won, count, _ in played if won)
    longest = max([longest, *(most for _, _, most in played)])
    return Row(page, True, alike, longest, steps)


def begin_thrice(episode: PageEpisode) -> list[PageState]:
    """The third time after some clicks, which leave the episode wherever they do."""
    looks = [episode.begin(), episode.begin()]
    for number in range(CLICKS, 0, -1):
        with contextlib.suppress(InvalidAction):
            if episode.act(Click(number)).done:
                break
    return [*looks, episode.begin()]


def play(browser: Browser, spec: EpisodeSpec, expert: Expert) -> tuple[bool, int, int]:
    """Whether it was won, in how many steps, and the longest text of a screen."""
    episode = PageEpisode(browser, spec)
    look = episode.begin()
    utterance, done, longest = look.utterance, [], 0
    while not look.done and len(done) < MOST_STEPS:
        longest = max(longest, len(text_of(look.elements)))
        actions = expert(utterance, look.elements, done)
        if not actions:
            break
        try:
            look = episode.act(parse_action(actions[0]))
        except InvalidAction as reason:
            print(f"{spec.page}, seed {spec.seed}: {actions[0]}: {reason}", file=sys.stderr)
            break
        done.append(actions[0])
    won = look.done and look.reward == 1
    if not won:
        print(f"{spec.page}, seed {spec.seed}: lost after {done}", file=sys.stderr)
    return won, len(done), longest


def table(rows: list[Row], seeds: int) -> str:
    chromium = subprocess.run([executable(), "--version"], capture_output=True, text=True)
    header = HEADER.format(
        seeds=seeds,
        last=seeds - 1,
        miniwob=version("miniwob"),
        chromium=chromium.stdout.strip(),
        pages=len(rows),
        load=sum(row.loads for row in rows),
        alike=sum(row.alike for row in rows),
        experts=sum(row.steps is not None for row in rows),
        perfect=sum(row.steps is not None and len(row.steps) == seeds for row in rows),
    )
    return header + "".join(f"{row.line(seeds)}\n" for row in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    seeds = parser.parse_args().seeds
    browser = Browser()
    try:
        rows: list[Row] = []
        for page in sorted(path.stem for path in (PACKAGE / "miniwob").glob("*.html")):
            rows.append(measure(browser, page, seeds))
            print(rows[-1].line(seeds), flush=True)
    finally:
        browser.close()
    report = Path(__file__).with_name("miniwob-pages.md")
    report.write_text(table(rows, seeds), encoding="utf-8")


if __name__ == "__main__":
    main()
