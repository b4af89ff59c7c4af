"""How fast desktop tasks play here, against desktop_env's own environment, and what they leave.

    python benchmarks/osworld_speed.py

Both play the same generated tasks on the same desktops, in turns: experts through the library with
1, 2 and 4 desktops at once, and `DesktopEnv` one task after another with the same clicks and keys.
Rewrites benchmarks/osworld.md. Needs what `make osworld` installs.
"""

from __future__ import annotations

import json
import os
import platform
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import psutil
from rich.progress import track

import rlanything_osworld as package
from rlanything.records import Task
from rlanything.roles.baselines import ExpertAgent
from rlanything.rollout.episodes import RolloutRequest, rollout
from rlanything.rollout.workers import EnvironmentPool
from rlanything_osworld.actions import DesktopAction
from rlanything_osworld.desktop import PORTS, Desktop
from rlanything_osworld.domain import OSWorld
from rlanything_osworld.environment import DesktopEnvironment, DesktopOptions
from rlanything_osworld.evaluation import find_python
from rlanything_osworld.families import FAMILIES
from rlanything_osworld.tasks import draft, generated_task

PLAYED = ("editor-add-line", "files-rename", "calc-change-cell", "writer-append")
ROUNDS = 2
DESKTOPS = (1, 2, 4)
PAUSE = 2.0
"""Seconds that `DesktopEnv.step` waits after an action unless it is told otherwise."""
CHEAP = ("editor-add-line", "terminal-count")
EPISODES, QUARTERS, TOGETHER = 200, 4, 2
MOST_STEPS = 40
REPORT = Path(__file__).with_name("osworld.md")

THEIRS = """
import json, os, sys, time
from pathlib import Path
sys.path[:0] = sys.argv[1:3]
import serve
serve.load()
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
print(json.dumps("ready"), file=answers, flush=True)
for line in sys.stdin:
    request = json.loads(line)
    serve.CACHE, serve.SOCKETS = Path(request["cache"]), Path(request["sockets"])
    cache = serve._cache(request)
    cache.mkdir(parents=True)
    serve._place_files(request, cache)
    env = serve._environment(request)
    env.reset(request["example"])
    print(json.dumps("reset"), file=answers, flush=True)
    sys.stdin.readline()
    for code in request["actions"]:
        env.step(code)
    print(json.dumps(float(env.evaluate())), file=answers, flush=True)
"""


class Recorder(DesktopEnvironment):
    """An environment that notes the code of each action, as agents of OSWorld write it."""

    codes: list[str]

    def _carry_out(self, action: DesktopAction) -> None:
        self.codes += [
            f"pyautogui.{name}({', '.join(map(repr, rest))})" for name, *rest in action.calls
        ]
        super()._carry_out(action)


class Recorded(OSWorld):
    """The domain, with environments that note what is done in them."""

    def __init__(self) -> None:
        super().__init__()
        self.made = Recorder(self.evaluators, DesktopOptions())

    def environment(self) -> DesktopEnvironment:
        return self.made


class Theirs:
    """`DesktopEnv` in a process of its own, on a fresh desktop for each task."""

    def __init__(self) -> None:
        home = Path(package.__path__[0])
        places = [str(home / "evaluators"), str(home / "guest")]
        self._said = tempfile.TemporaryFile("w+")  # noqa: SIM115  (as long as the process)
        self._process = subprocess.Popen(
            [str(find_python()), "-c", THEIRS, *places],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
        )
        self._answer()

    def play(self, task: Task, codes: Sequence[str], ending: str) -> float:
        """Returns the score."""
        desktop = Desktop()
        desktop.ready()
        with tempfile.TemporaryDirectory() as folder:
            sockets, cache = Path(folder, "sockets"), Path(folder, "cache")
            sockets.mkdir()
            for port in PORTS:
                os.link(desktop.socket_path(port), sockets / f"{port}")
            self._ask(
                {
                    **{"example": task.data["example"], "files": task.data["files"]},
                    **{"size": desktop.size, "password": desktop.password},
                    "desktop": str(desktop.pid),
                    **{"sockets": str(sockets), "cache": str(cache)},
                    "actions": [*codes, ending.upper()],
                }
            )
            # Its own runs sleep for 60 seconds here: ours waits as long as it takes.
            desktop.request("GET", "/tree?quiet=60", seconds=120)
            score = self._ask("begin")
        desktop.close()
        assert isinstance(score, float)
        return score

    def close(self) -> None:
        self._process.communicate()

    def _ask(self, request: object) -> object:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{json.dumps(request)}\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> object:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._said.seek(0)
            raise SystemExit(f"DesktopEnv ended:\n{self._said.read()[-2000:]}")
        return json.loads(line)


def tasks_of(families: Sequence[str], seed: int, count: int) -> list[Task]:
    """Families in turn, each time with another seed and the first of its goals."""
    made = []
    for n in range(count):
        family, number = FAMILIES[families[n % len(families)]], 1000 * seed + n
        goal = draft(family, number).goals[0].name
        made.append(generated_task(f"{family.name}-{number}", family, number, goal))
    return made


def ours(domain: OSWorld, pool: EnvironmentPool, tasks: Sequence[Task], desktops: int) -> int:
    """Returns how many the experts won."""
    attempts = [RolloutRequest(task.id, task, 0) for task in tasks]
    played = rollout(
        ExpertAgent(domain), pool, attempts, MOST_STEPS, desktops, lockstep=False
    ).trajectories
    return sum(trajectory.outcome == 1 for trajectory in played)


def recorded(tasks: Sequence[Task]) -> list[tuple[list[str], str]]:
    """Returns the actions of each task's expert, and the word that ends it."""
    domain, scripts = Recorded(), list[tuple[list[str], str]]()
    with EnvironmentPool(domain, {}, 0, 600.0) as pool:
        for task in tasks:
            domain.made.codes = []
            (played,) = rollout(
                ExpertAgent(domain), pool, [RolloutRequest(task.id, task, 0)], MOST_STEPS, 1
            ).trajectories
            scripts.append((domain.made.codes, str(played.steps[-1].action)))
    domain.made.close()
    domain.evaluators.close()
    return scripts


def compared() -> list[str]:
    """Plays both sides in turns, and returns the lines that say how fast they were."""
    domain, theirs = OSWorld(), Theirs()
    seconds: dict[str, list[float]] = {}
    wins: dict[str, int] = {}
    steps = 0
    for turn in track(range(ROUNDS), description="both, in turns"):
        tasks = tasks_of(PLAYED, turn, len(PLAYED))
        scripts = recorded(tasks)  # and whatever is read from the disk for the first time is
        for desktops in DESKTOPS:
            name = f"this library, desktops at once: {desktops}"
            with EnvironmentPool("osworld", {}, desktops, 600.0) as pool:
                ours(domain, pool, tasks_of(CHEAP, turn, desktops), desktops)  # starts processes
                begun = time.perf_counter()
                wins[name] = wins.get(name, 0) + ours(domain, pool, tasks, desktops)
                seconds.setdefault(name, []).append(time.perf_counter() - begun)
        name = "`DesktopEnv`"
        begun = time.perf_counter()
        for task, (codes, ending) in zip(tasks, scripts, strict=True):
            wins[name] = wins.get(name, 0) + (theirs.play(task, codes, ending) >= 1)
            steps += len(codes) + 1
        seconds.setdefault(name, []).append(time.perf_counter() - begun)
    theirs.close()
    rival = seconds["`DesktopEnv`"]
    waits = PAUSE * steps / sum(rival)
    lines = ["| | episodes a minute, each round | ratio, each round | won |", "|---|---|---|---|"]
    for name, each in seconds.items():
        rates = ", ".join(f"{60 * len(PLAYED) / duration:.1f}" for duration in each)
        ratios = ", ".join(f"{b / a:.1f}" for a, b in zip(each, rival, strict=True))
        lines.append(f"| {name} | {rates} | {ratios} | {wins[name]} of {ROUNDS * len(PLAYED)} |")
    return [
        f"Experts on {', '.join(PLAYED)}; {ROUNDS} rounds with seeds of their own, all sides in "
        "turns in each. `DesktopEnv` is desktop_env's own class, with its controllers, a "
        f"screenshot after each step, and the {PAUSE:g} s that its `step` pauses unless told "
        f"otherwise: {waits:.0%} of its time. It is spared a virtual machine, for it has this "
        "library's desktops, a fresh one for each task; the 60 s that OSWorld's runs sleep after a "
        "set-up, in place of which it waits for quiet as the library does; and the experts' waits.",
        "",
        *lines,
        "",
    ]


def remembered() -> list[str]:
    """Plays cheap episodes, and returns the lines that say what stayed in memory."""
    tasks = tasks_of(CHEAP, 9, EPISODES)
    samples: list[tuple[float, float]] = []
    begun = time.perf_counter()
    with EnvironmentPool("osworld", {}, TOGETHER, 600.0) as pool:
        for start in track(range(0, EPISODES, TOGETHER), description="memory"):
            pool.reset(tasks[start : start + TOGETHER])
            pool.step(dict.fromkeys(range(TOGETHER), "> press a"))
            samples.append(megabytes())
            pool.step(dict.fromkeys(range(TOGETHER), "> done"))
    quarter = len(samples) // QUARTERS
    rows = []
    for name, values in (
        ("processes", [s[0] for s in samples]),
        ("machine", [s[1] for s in samples]),
    ):
        first, last = statistics.median(values[:quarter]), statistics.median(values[-quarter:])
        rows.append(f"| {name} | {first:.0f} | {last:.0f} | {last - first:+.0f} |")
    return [
        f"Memory over {EPISODES} short episodes of {' and '.join(CHEAP)}, {TOGETHER} at once "
        f"({60 * EPISODES / (time.perf_counter() - begun):.0f} a minute), read in the middle of "
        "each: of this process and all below it, desktops included (proportional set size), and "
        "what the machine has in use, others' work included. Medians, MB.",
        "",
        "| | first quarter | last quarter | difference |",
        "|---|---|---|---|",
        *rows,
        "",
    ]


def megabytes() -> tuple[float, float]:
    """Returns the memory of this process with all below it, and of the machine."""
    total = 0
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        try:
            total += process.memory_full_info().pss
        except psutil.Error:  # it ended meanwhile
            continue
    return total / 2**20, psutil.virtual_memory().used / 2**20


def main() -> None:
    load = os.getloadavg()[0]
    speed, memory = compared(), remembered()
    lines = [
        "# Desktop tasks",
        "",
        f"`python {shlex.join(sys.argv)}`, python {platform.python_version()}, desktop-env 1.0.2, "
        f"{os.cpu_count()} cores. Load average at the start {load:.1f}: with more than the cores, "
        "the speeds are low.",
        "",
        *speed,
        *memory,
    ]
    REPORT.write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
