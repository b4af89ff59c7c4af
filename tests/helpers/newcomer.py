"""A newcomer: runs the commands of the site's pages in a fresh environment, and nothing else.

    python tests/helpers/newcomer.py [STAGE ...]

The commands are read from the pages, so a page that no longer works fails here. It clones the
committed state of this repository into a temporary folder, makes a virtual environment there and
stops at the first command that fails, with exit code 1. Only PyTorch is the release pinned in
`constraints.txt`; other builds are gigabytes. STAGE: `first-run` always comes first.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
import venv
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"# (\w+\.py)\n")
"""The first line of a block that is a file of its own."""
SECONDS = 1800
"""Limit of one command."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One thing that a newcomer wants."""

    name: str
    page: str
    heading: str
    """The heading whose first block of commands is run; its Python files are written before."""
    shows: str
    """A pattern in what the commands print."""


STAGES = (
    Stage("first-run", "README.md", "The first ten minutes", r"in_domain: .* points .*, improved"),
    Stage("own-game", "docs/domains.md", "Try it", r"in_domain: .* points .*, improved"),
    Stage("own-judge", "docs/plugins.md", "Judges", r"iteration 2/2"),
    Stage(
        "foreign-rollouts",
        "packages/rlanything-judge/README.md",
        "Try it",
        r"trl, 32 rollouts[\s\S]*signals.jsonl: 32 trajectories[\s\S]*verl, 32 rollouts",
    ),
    Stage(
        "agents",
        "packages/rlanything-agent/README.md",
        "Try it",
        r"(?m)^completions [\s\S]*^responses [\s\S]*^messages ",
    ),
    Stage("two-workers", "docs/scaling.md", "One machine with two cores", r"iteration 2/2"),
)


def section(page: str, heading: str) -> str:
    """Returns the text under a heading, up to the next one of its level or above. Raises
    `ValueError` if the page has no such heading."""
    text = (ROOT / page).read_text(encoding="utf-8")
    begun = re.search(rf"^(#+) {re.escape(heading)}$", text, re.MULTILINE)
    if begun is None:
        raise ValueError(f"{page}: no heading {heading!r}: correct STAGES")
    rest = text[begun.end() :]
    ended = re.search(
        rf"^#{{1,{len(begun[1])}}} ", FENCE.sub(lambda m: "\n" * len(m[0]), rest), re.M
    )
    return rest[: ended.start()] if ended else rest


def files(stage: Stage) -> dict[str, str]:
    """Returns the Python files that the section shows, by name."""
    blocks = [code for kind, code in FENCE.findall(section(stage.page, stage.heading)) if kind]
    return {named[1]: code for code in blocks if (named := FILE.match(code))}


def commands(stage: Stage) -> list[str]:
    """Returns the lines of the section's first block of commands."""
    fenced = FENCE.findall(section(stage.page, stage.heading))
    block = next(code for kind, code in fenced if kind in ("", "bash"))
    return [line for line in block.replace("\\\n", " ").splitlines() if line.strip()]


def main(names: list[str]) -> int:
    chosen = [stage for stage in STAGES if not names or stage.name in (*names, "first-run")]
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="newcomer-") as home:
        place = Path(home)
        venv.create(place / "venv", with_pip=True)
        pins = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
        pinned = [line for line in pins if line.startswith("torch==")]
        (place / "pinned.txt").write_text("\n".join(pinned) + "\n", encoding="utf-8")
        for stage in chosen:
            print(f"== {stage.name}: {stage.page}, {stage.heading}", flush=True)
            if not played(stage, place):
                return 1
    print(f"all {len(chosen)} stages passed in {(time.monotonic() - began) / 60:.1f} min")
    return 0


def played(stage: Stage, home: Path) -> bool:
    """Runs a stage's commands one after another; returns whether all did what the page says."""
    clone = home / "rlanything"
    here = clone if clone.exists() else home
    for name, code in files(stage).items():
        (here / name).write_text(code, encoding="utf-8")
    printed = ""
    for command in commands(stage):
        # A `cd` holds for the commands after it.
        asked = f"{command.replace('URL_OF_THIS_REPOSITORY', str(ROOT))}\n"
        script = f"set -e\n{asked}pwd > '{home / 'here'}'\n"
        began = time.monotonic()
        with subprocess.Popen(
            ["bash", "-c", script],
            cwd=here,
            env=environment(home),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            try:
                said, _ = process.communicate(timeout=SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                said, _ = process.communicate()
        passed = process.returncode == 0
        verdict = "pass" if passed else "FAIL"
        print(f"{verdict} {time.monotonic() - began:6.0f} s  {command}", flush=True)
        printed += said
        if not passed:
            print(said[-4000:])
            return False
        here = Path((home / "here").read_text().strip())
    if not re.search(stage.shows, printed):
        print(f"FAIL: nothing printed matches {stage.shows!r}\n{printed[-4000:]}")
        return False
    return True


def environment(home: Path) -> dict[str, str]:
    """Returns the variables of a newcomer: the fresh environment first, no browser."""
    kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    path = f"{home / 'venv' / 'bin'}{os.pathsep}{kept['PATH']}"
    pinned = str(home / "pinned.txt")
    return kept | {"PATH": path, "PIP_CONSTRAINT": pinned, "BROWSER": "true", "COLUMNS": "200"}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
