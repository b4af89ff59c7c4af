"""A page of the documentation, executed as a reader would: its blocks in order, in a new folder.

A block without a language is commands, one marked `python` is a part of the page's script, and one
that begins with `# name.py` or `# name.yaml` is a file. A comment directly before a block:

- `<!-- not run: reason -->` leaves it out.
- `<!-- run first: commands -->` makes what a reader has by then, such as a run.
- `<!-- run with VARIABLE: commands -->` does the same where VARIABLE names the data that the block
  needs; elsewhere the block is left out.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from helpers.paths import ROOT

COMMENT = r"(?:<!-- (not run|run first|run with \w+):\s((?:(?!-->).)+) -->\n)?"
FENCE = re.compile(COMMENT + r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"# ([\w/]+\.(?:py|yaml))\b")
"""The first line of a block that is a file of its own."""
SHOWN = {"text", "yaml", "json", "toml", "bibtex"}
"""Languages of blocks that are only shown, unless they are files."""
FOLDERS = re.compile(r"\b(benchmarks|docs|examples|notebooks|packages)/")
"""Folders of a clone; a page that names one has its readers work in a clone."""
SECONDS = 1800
"""Limit of a page."""

SMALL = """\
import importlib.util
import sys

if importlib.util.find_spec("rlanything"):
    import rlanything.config.recipe as recipes

    make = recipes._make
    LIMITS = {"threads": 1, "loop.iterations": 2, "loop.tasks": 4, "loop.tasks_per_iteration": 2}
    LIMITS |= {"loop.rollouts_per_task": 2, "policy.minibatches": 1, "adapter.tries": 1}
    LIMITS |= {"evaluation.episodes": 2, "evaluation.judged_episodes": 1}

    def small(data, place, trust, overrides):
        recipe, limits = make(data, place, trust, overrides), {}
        for key, most in LIMITS.items():
            value = recipe
            for name in key.split("."):
                value = getattr(value, name)
            if value > most:
                limits[key] = most
        return make(recipes._overridden(data, limits), place, trust, overrides)

    recipes._make = small

if "nano" in sys.orig_argv:
    from rlanything_nano.teaching import StepPlan

    plan = StepPlan.__init__
    FEW = dict.fromkeys(["policy_epochs", "judge_epochs", "value_epochs", "adapter_epochs"], 1)
    FEW |= {"games": 100, "judged_games": 20, "criticised_games": 4, "adapter_games": 20}
    FEW |= {"valued_games": 4, "episodes": 8}
    StepPlan.__init__ = lambda self, **said: plan(
        self, **(said | {name: few for name, few in FEW.items() if name in said})
    )
"""
"""First lines of every Python process of a page: they make recipes small, so that a page takes
seconds and not minutes."""

PIP = """\
import importlib.metadata, pathlib, re, subprocess, sys, tomllib

for asked in [word for word in sys.argv[2:] if not word.startswith("-")]:
    name = re.split(r"[\\[=<>]", asked)[0]
    if pathlib.Path(asked, "pyproject.toml").exists():
        name = tomllib.loads(pathlib.Path(asked, "pyproject.toml").read_text())["project"]["name"]
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        to = ["--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--target", SITE]
        subprocess.run([sys.executable, "-m", "pip", "install", *to, asked], check=True)
"""
"""`pip install`: what is installed here is not installed again; the reader's own package is."""

RLANYTHING = """\
#!/bin/bash
case $1 in
  eval | judge-eval | judge-check) set -- "$@" --episodes 2 ;;
  rewrite-check) set -- "$@" --seeds 1 --candidates 2 --rollouts 8 ;;
  gradients) set -- "$@" --rollouts 4 ;;
  watch) # for some seconds, in a terminal of its own
    while sleep 5; do printf q; done | timeout 120 script -qefc "REAL $*" $PAGE/screen > /dev/null
    exit ;;
  serve | serve-*) # in a second terminal, until the next one
    [ -e $PAGE/server ] && kill $(< $PAGE/server) && sleep 2
    "REAL" "$@" > $PAGE/served 2>&1 & echo $! > $PAGE/server
    until grep -q http:// $PAGE/served; do
      kill -0 $! 2> /dev/null || { cat $PAGE/served; wait $!; exit; }
      sleep 0.5
    done
    exit ;;
esac
exec "REAL" "$@"
"""
"""`rlanything`, with less work than a reader wants, and servers in the background."""

SHELL = """\
import os
import pathlib
import subprocess


def shell(commands):
    script = "set -x\\n" + commands + "\\nenv -0 > $PAGE/left"
    subprocess.run(["bash", "-ec", script], check=True)
    left = pathlib.Path(os.environ["PAGE"], "left").read_text().split("\\0")
    os.environ.update(line.split("=", 1) for line in left if line)
    os.chdir(os.environ["PWD"])
"""
"""First lines of a page's script: they keep variables and the folder from block to block."""


@dataclass(frozen=True, slots=True)
class Block:
    """One block of a page."""

    language: str
    code: str
    comment: str
    """`not run`, `run first` or `run with VARIABLE`; empty without one."""
    said: str
    """Reason not to run it, or commands before it."""

    @property
    def runs(self) -> bool:
        """Whether it is executed here."""
        needs_data = self.comment.startswith("run with")
        return self.comment != "not run" and (
            not needs_data or self.comment.split()[2] in os.environ
        )

    @property
    def file(self) -> str | None:
        """Name of the file that it is; None if it is none."""
        named = FILE.match(self.code)
        return named[1] if named else None


def blocks(page: Path) -> list[Block]:
    """Returns the blocks of a page, in order."""
    found = FENCE.findall(page.read_text(encoding="utf-8"))
    return [Block(language, code, comment, said) for comment, said, language, code in found]


def script(page: Path, languages: tuple[str, ...] = ("", "python")) -> str:
    """Returns the blocks of a page that run as one Python script."""
    parts = [SHELL]
    for block in blocks(page):
        if not block.runs or block.language not in languages:
            continue
        if block.said:
            parts.append(f"shell({block.said!r})")
        if block.file:
            parts.append(f"import {Path(block.file).stem}")
        else:
            parts.append(block.code if block.language else f"shell({block.code!r})")
    return "\n\n".join(parts)


def play(page: Path, folder: Path, languages: tuple[str, ...] = ("", "python")) -> str:
    """Executes a page in a new folder; returns what went wrong, empty if nothing did."""
    here, tools = folder / "here", folder / "tools"
    for new in (here, tools):
        new.mkdir(parents=True)
    for block in blocks(page):
        if block.file and block.runs:
            (here / block.file).write_text(block.code, encoding="utf-8")
    code = script(page, languages).replace("URL_OF_THIS_REPOSITORY", str(ROOT))
    (here / "page.py").write_text(code, encoding="utf-8")
    for name in {*FOLDERS.findall(code)}:
        shutil.copytree(ROOT / name, here / name, symlinks=True)
        shutil.copy(ROOT / "pyproject.toml", here)
    python = Path(sys.executable)
    (tools / "sitecustomize.py").write_text(SMALL, encoding="utf-8")
    commands = {
        "pip": f"#!{python}\nSITE = {str(tools)!r}\n{PIP}",
        "rlanything": RLANYTHING.replace("REAL", str(python.with_name("rlanything"))),
    }
    for name, text in commands.items():
        (tools / name).write_text(text, encoding="utf-8")
        (tools / name).chmod(0o755)
    path = os.pathsep.join([str(tools), str(python.parent), os.environ["PATH"]])
    own = {"PATH": path, "PYTHONPATH": str(tools), "PAGE": str(tools), "HOME": str(here)}
    with subprocess.Popen(
        [python, "page.py"],
        cwd=here,
        env=os.environ | own | {"BROWSER": "true", "HF_HUB_OFFLINE": "1", "PYTHONUNBUFFERED": "1"},
        stdout=(folder / "said.txt").open("w"),
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as process:
        try:
            code = process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            code = "time is up"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # servers too
    return "" if code == 0 else f"{code}: {(folder / 'said.txt').read_text()[-4000:]}"
