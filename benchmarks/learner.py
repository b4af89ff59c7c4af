"""An update with shared beginnings against separate sequences, and against TRL's.

    python benchmarks/learner.py [RECIPE] [section.key=value ...] [--quick] [--json] [--out PAGE]

The samples are those of the recipe's first iteration (the quickstart's), and made-up episodes. TRL
takes part where it is installed: pip install 'rlanything[bench]'. Without --out nothing is written;
`make bench` writes benchmarks/learner.md.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from learner_steps.measuring import BenchError, measure
from learner_steps.page import page, table
from rich.console import Console

from rlanything.config.recipe import RecipeError, load_recipe
from rlanything.config.shipped import shipped_files
from rlanything.domains.base import DomainError
from rlanything.engines.hf.model import ModelError
from rlanything.progress import Progress

RECIPE = shipped_files()["quickstart"]


def arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("recipe", nargs="?", type=Path, default=RECIPE)
    parser.add_argument("overrides", nargs="*", help="section.key=value, as for rlanything train")
    parser.add_argument("--quick", action="store_true", help="two tasks, one round: a minute")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")
    parser.add_argument("--out", type=Path, help="write a page of Markdown there")
    return parser.parse_intermixed_args(words)


def main(words: Sequence[str]) -> None:
    options = arguments(words)
    progress = Progress(Console(stderr=True))
    try:
        with progress.live():
            recipe = load_recipe(options.recipe, options.overrides)
            result = measure(recipe, options.quick, progress)
    except (BenchError, DomainError, ModelError, RecipeError) as error:
        sys.exit(f"error: {error}")
    if options.out is not None:
        command = shlex.join(["python", "benchmarks/learner.py", *words])
        options.out.write_text(page(result, command), encoding="utf-8")
    if options.json:
        print(json.dumps(result.to_json()))
    else:
        Console().print(table(result))


if __name__ == "__main__":
    main(sys.argv[1:])
