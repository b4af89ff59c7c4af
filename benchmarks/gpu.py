"""What one GPU shows, in stages with a pass mark each: writes benchmarks/gpu.md.

    python benchmarks/gpu.py --all
    python benchmarks/gpu.py --stage tiles

A stage takes under nine minutes, all but vLLM's took eight on an H200; a page that is there keeps
the stages that are not run again. Needed: torch with CUDA (2.11 or newer), and `pip install
'rlanything[planning]'`, no network. Where they are missing a stage is skipped, and says so: vllm
(stage vllm), 'rlanything[alfworld]' (stage quickstart). --dry runs everything in tiny sizes on the
CPU, to see that it runs: its figures mean nothing, and it writes to stdout or --out.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path

import torch
from gpu_stages import exactness, running, speed
from gpu_stages.checks import Bench, Check, Outcome, run
from gpu_stages.made_up import SHAPES

from rlanything.cluster.models import prepare_torch

PAGE = Path(__file__).parent / "gpu.md"
LIMIT = 540
"""Seconds of a stage, after which it is ended wherever it is."""
STAGES: Mapping[str, Callable[[Bench], Iterable[Check]]] = {
    "sharding": exactness.sharding,
    "trie": exactness.trie,
    "tiles": exactness.tiles,
    **{f"update-{shape}": partial(speed.update_mfu, shape=shape) for shape in SHAPES},
    "generation": running.generation,
    "vllm": running.vllm,
    "quickstart": running.quickstart,
}


def arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--stage", choices=STAGES, action="append", help="may be given again")
    parser.add_argument("--all", action="store_true", help="every stage, each in its own process")
    parser.add_argument("--dry", action="store_true", help="tiny sizes on the CPU")
    parser.add_argument("--out", type=Path, help="the page to write in place of benchmarks/gpu.md")
    options = parser.parse_args(words)
    if options.all == bool(options.stage):
        parser.error("give --all, or --stage NAME")
    if not options.dry and not torch.cuda.is_available():
        parser.error("there is no GPU here; --dry runs tiny sizes on the CPU")
    return options


def section(name: str, outcome: Outcome) -> str:
    """Returns a stage's part of the page."""
    lines = [f"## {name}: {outcome.mark}", "", f"{outcome.seconds:.0f} s. {outcome.reason}".strip()]
    if outcome.checks:
        lines += ["", "| check | figure | |", "|---|---|---|"]
    verdicts = {True: "PASS", False: "FAIL", None: ""}
    lines += [f"| {c.name} | {c.figure} | {verdicts[c.passed]} |" for c in outcome.checks]
    return "\n".join(lines)


def page(sections: Mapping[str, str], dry: bool) -> str:
    """Returns the page of stages in their order."""
    where = "a CPU, in sizes that say nothing" if dry else torch.cuda.get_device_name()
    head = f"`python benchmarks/gpu.py --all` wrote this page, last on {where}: "
    head += f"torch {torch.__version__}, transformers {version('transformers')}, "
    head += f"Python {platform.python_version()}."
    parts = ["# One GPU" + " (dry)" * dry, head, *(sections[n] for n in STAGES if n in sections)]
    return "\n\n".join(parts) + "\n"


def sections_of(text: str) -> dict[str, str]:
    """Returns the stages of a page that was written before."""
    parts = re.split(r"^(?=## )", text, flags=re.MULTILINE)[1:]
    return {part[3:].split(":")[0]: part.rstrip() for part in parts}


def run_here(names: Sequence[str], dry: bool, out: Path | None) -> bool:
    """Runs stages in this process and writes each to the page. Returns whether none failed."""
    # As in a run. On one thread where sizes are tiny: more of them would wait for one another.
    prepare_torch(1 if dry else 0)
    sections = sections_of(out.read_text(encoding="utf-8")) if out and out.exists() else {}
    marks = list[str]()

    def write(name: str, outcome: Outcome) -> None:
        sections[name] = section(name, outcome)
        if out is not None:
            out.write_text(page(sections, dry), encoding="utf-8")

    for name in names:
        # Read only if its process dies, or is ended at the limit.
        write(name, Outcome("FAIL", 0.0, reason="It did not come to its end."))
        faulthandler.dump_traceback_later(LIMIT, exit=True)
        with tempfile.TemporaryDirectory() as folder:
            outcome = run(STAGES[name], Bench("cpu" if dry else "cuda", dry, Path(folder)))
        faulthandler.cancel_dump_traceback_later()
        write(name, outcome)
        print(f"{sections[name]}\n", file=sys.stderr, flush=True)
        marks.append(outcome.mark)
    if out is None:
        print(page(sections, dry), end="")
    return "FAIL" not in marks


def run_apart(name: str, out: Path) -> bool:
    """Runs a stage in a process of its own: what it leaves on the GPU goes with it."""
    command = [sys.executable, __file__, "--stage", name, "--out", str(out)]
    return subprocess.run(command, check=False).returncode == 0


def main(words: Sequence[str]) -> None:
    options = arguments(words)
    # Hugging Face's libraries must not look for a network that is not there.
    os.environ["HF_HUB_OFFLINE"] = "1"
    names = list(STAGES) if options.all else options.stage
    if options.dry:
        good = run_here(names, True, options.out)
    elif options.all:
        # All of them, also after one that failed.
        good = not [name for name in names if not run_apart(name, options.out or PAGE)]
    else:
        good = run_here(names, False, options.out or PAGE)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main(sys.argv[1:])
