"""How fast web tasks play here, against the package's own Selenium environment.

    python benchmarks/miniwob_speed.py

Both play the same pages with one click each, in turns, in two processes. Rewrites the section
"Speed" of benchmarks/miniwob.md. Needs Debian's chromium-driver next to a Chromium.
"""

from __future__ import annotations

import json
import os
import platform
import random
import shlex
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import psutil
from rich.progress import track

from rlanything.domains.base import EpisodeError
from rlanything.records import Task
from rlanything.rollout.workers import EnvironmentPool
from rlanything_miniwob.browser import executable
from rlanything_miniwob.domain import MiniWob
from rlanything_miniwob.environment import EpisodeSpec, open_episode
from rlanything_miniwob.tasks import make_task

ROUNDS = 7
EPISODES = 120
"""Episodes of each side in each round."""
BROWSERS = 2
TOGETHER = (EPISODES, 12)
"""Episodes at once. With more than browsers keep pages open some share a page, and those that wait
are played again; with few each has its page to itself."""
STRETCHES, STRETCH = 8, 960
"""Memory is read before, between and after so many stretches of so many episodes."""
PAGES = ("click-test", "click-test-2", "click-button", "click-link", "click-color", "click-widget")
"""One right or wrong click ends their episodes."""
REPORT = Path(__file__).with_name("miniwob.md")
HEAD = "## Speed"

SELENIUM = """
import json, sys, time, logging
import gymnasium, miniwob
from miniwob.action import ActionTypes
gymnasium.register_envs(miniwob)
made = {}
for line in sys.stdin:
    played = json.loads(line)
    begun = time.perf_counter()
    for page, seed in played:
        if page not in made:
            made[page] = gymnasium.make(f"miniwob/{page}-v1")
        env = made[page]
        seen, _ = env.reset(seed=seed)
        ref = [e["ref"] for e in seen["dom_elements"] if e["ref"] > 0][-1]
        env.step(env.unwrapped.create_action(ActionTypes.CLICK_ELEMENT, ref=ref))
    print(json.dumps(time.perf_counter() - begun), flush=True)
for env in made.values():
    env.close()
"""


class Theirs:
    """The package's environments, one browser for each page, in two processes."""

    def __init__(self) -> None:
        driver = shutil.which("chromedriver")
        if driver is None:
            sys.exit("no chromedriver is here: apt-get install chromium-driver")
        places = {"MINIWOB_CHROME_BINARY": executable_path(), "MINIWOB_CHROMEDRIVER": driver}
        self._workers = [
            subprocess.Popen(
                [sys.executable, "-c", SELENIUM],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=os.environ | places,
            )
            for _ in range(BROWSERS)
        ]

    def seconds(self, tasks: Sequence[Task]) -> float:
        shares = [tasks[i::BROWSERS] for i in range(BROWSERS)]
        begun = time.perf_counter()
        for worker, share in zip(self._workers, shares, strict=True):
            played = [(t.data["start"]["page"], t.data["start"]["seed"]) for t in share]
            assert worker.stdin is not None
            worker.stdin.write(json.dumps(played) + "\n")
            worker.stdin.flush()
        for worker in self._workers:
            assert worker.stdout is not None
            json.loads(worker.stdout.readline())
        return time.perf_counter() - begun

    def close(self) -> None:
        for worker in self._workers:
            worker.communicate()


def executable_path() -> str:
    return shutil.which(executable()) or executable()


def ours(pool: EnvironmentPool, tasks: Sequence[Task], together: int) -> float:
    begun = time.perf_counter()
    for start in range(0, len(tasks), together):
        play(pool, tasks[start : start + together])
    return time.perf_counter() - begun


def play(pool: EnvironmentPool, tasks: Sequence[Task]) -> None:
    opened = pool.reset(tasks)
    responses: dict[int, str] = {}
    for number, seen in enumerate(opened):
        assert not isinstance(seen, EpisodeError), seen
        responses[number] = f"> click [{len(seen.text.splitlines())}]"
    for result in pool.step(responses).values():
        assert not isinstance(result, EpisodeError), result
        assert result.valid


def tasks_of(domain: MiniWob, seed: int, count: int) -> list[Task]:
    """Pages in turn, seeds at random."""
    rng = random.Random(seed)
    tasks: list[Task] = []
    for n in range(count):
        spec = EpisodeSpec(PAGES[n % len(PAGES)], rng.randrange(2**31))
        episode, state = open_episode(domain.browser, "benchmark", spec)
        episode.ended = True
        tasks.append(make_task(f"{seed}-{n}", spec, state.utterance))
    return tasks


def memory_megabytes() -> float:
    """Returns the memory of this process and all below it."""
    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    return sum(each.memory_full_info().pss for each in processes) / 2**20


def main() -> None:
    domain, theirs = MiniWob(), Theirs()
    rates: dict[int, list[float]] = {together: [] for together in TOGETHER}
    rivals: list[float] = []
    stretches = [tasks_of(domain, 100 + turn, EPISODES) for turn in range(STRETCH // EPISODES)]
    with EnvironmentPool("miniwob", {}, BROWSERS, 60.0) as pool:
        for turn in track(range(-1, ROUNDS), description="both, in turns"):
            tasks = tasks_of(domain, turn, EPISODES)
            seconds = {together: ours(pool, tasks, together) for together in TOGETHER}
            rival = theirs.seconds(tasks)
            if turn >= 0:  # the first one starts browsers and loads pages
                rivals.append(EPISODES / rival)
                for together, duration in seconds.items():
                    rates[together].append(EPISODES / duration)
        theirs.close()
        memory = [memory_megabytes()]
        for _ in track(range(STRETCHES), description="memory"):
            for tasks in stretches:
                ours(pool, tasks, EPISODES)
            memory.append(memory_megabytes())
    write(rates, rivals, memory)


def spread(values: Sequence[float], digits: int) -> str:
    least, middle, most = min(values), statistics.median(values), max(values)
    return f"{middle:.{digits}f} [{least:.{digits}f}, {most:.{digits}f}]"


def write(rates: dict[int, list[float]], rivals: Sequence[float], memory: Sequence[float]) -> None:
    chromium = subprocess.run([executable_path(), "--version"], capture_output=True, text=True)
    lines = [
        HEAD,
        "",
        f"`python {shlex.join(sys.argv)}`, python {platform.python_version()}, miniwob "
        f"{version('miniwob')}, playwright {version('playwright')}, selenium "
        f"{version('selenium')}, {chromium.stdout.strip()}, {os.cpu_count()} cores. One-click "
        f"episodes of {len(PAGES)} pages mixed, {ROUNDS} rounds of {EPISODES} in turns, "
        f"{BROWSERS} worker processes each side.",
        "",
        "| | episodes/s, median [least, most] | ratio, round by round |",
        "|---|---|---|",
        *(
            f"| this library, {together} episodes at once | {spread(values, 0)} | "
            f"{spread([a / b for a, b in zip(values, rivals, strict=True)], 1)} |"
            for together, values in rates.items()
        ),
        f"| the package's environment | {spread(rivals, 0)} | |",
        "",
        "Memory of all processes (proportional set size) before and after each of "
        f"{STRETCHES} further stretches of {STRETCH} episodes: "
        f"{', '.join(f'{each:.0f}' for each in memory)} MB.",
        "",
    ]
    old = REPORT.read_text(encoding="utf-8") if REPORT.exists() else "# Web tasks\n\n"
    kept = old.partition(HEAD)[0]
    REPORT.write_text(kept + "\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
