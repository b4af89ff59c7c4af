"""Rollouts and an update with images: tokens and images computed, and packs against separate
sequences. Writes benchmarks/vision.md.

    python benchmarks/vision.py [--out PAGE] [--rollouts 8] [--rounds 3] [--threads 1]

A tiny Qwen3-VL with random weights answers at every step of recorded web episodes. What it says is
thrown away, so that it does not matter that it knows nothing: their actions are an expert's, or
clicks at random.
"""

from __future__ import annotations

import argparse
import os
import platform
import shlex
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
import transformers
from vision_steps.episodes import EXPERT, PAGES, record
from vision_steps.measuring import JUDGEMENTS, ROLE, ROW_TOKENS, VIEWS, WAYS, Row, measure

from rlanything.records import Trajectory

JUDGED = "enter-password"
"""One task is enough for a judge, which answers several times about each step."""
PAGE = Path(__file__).with_name("vision.md")
TOKENS = ("", "samples", "tokens", "rollouts: distinct", "computed", "ratio", "with padding")
TOKENS += ("update: distinct", "computed", "ratio")
IMAGES = ("", "images given", "different", "encoded to answer")
IMAGES += tuple(f"in an update, {way}" for way in WAYS)
UPDATE = ("", "packed, CPU-s", "its tower, CPU-s", "padded / packed", "alone / packed")
UPDATE += ("log-probs: padded", "alone", "sampled", "gradient: padded", "alone")


def page(rows: Sequence[Row], trajectories: Sequence[Trajectory], rounds: int) -> str:
    """Returns the page of Markdown; it names the command that this process was started with."""
    steps = [len(each.steps) for each in trajectories]
    won = statistics.mean(each.outcome == 1 for each in trajectories)
    model = rows[0].ways["packed"].model
    count = sum(weights.numel() for weights in model.network.parameters())
    return "\n".join(
        [
            "# Images: answers and an update, packed against separate sequences",
            "",
            f"`python {shlex.join(sys.argv)}` wrote this page. Python {platform.python_version()}, "
            f"torch {torch.__version__}, transformers {transformers.__version__}, "
            f"{platform.machine()}, {os.cpu_count()} cores of which torch used "
            f"{torch.get_num_threads()}, load average {os.getloadavg()[0]:.1f}, no GPU.",
            "",
            f"A Qwen3-VL of {count:,} random weights, its tower frozen, answers with at most "
            f"{ROLE.max_tokens} tokens at every step of {len(steps)} recorded web episodes "
            f"({', '.join(PAGES)}: a task each, {min(steps)} to {max(steps)} steps). What it says "
            f"moves nothing: {EXPERT:.0%} of the recorded actions are an expert's, the others "
            f"clicks on any element, and {won:.0%} of the episodes are won. As policy it reads the "
            "screen and sees the latest 3 screenshots of 160 x 210 pixels, 88 tokens each; `text`: "
            f"without them. As judge it sees those before and after a step, and answers "
            f"{JUDGEMENTS} times, about {JUDGED} alone. Its answers are what trains, with random "
            "advantages.",
            "",
            "## Tokens and images",
            "",
            *_table(TOKENS, [_tokens(row) for row in rows]),
            "",
            "tokens: prompt and answer of every sample. distinct: nodes of one trie of them; for "
            "rollouts without each answer's last token, from which nothing follows. computed: what "
            "is new to the cache of a prompt, and tokens drawn; with padding: all that the network "
            f"was given. In an update: packs of {ROLE.max_pack_tokens:,} tokens.",
            "",
            *_table(IMAGES, [_images(row) for row in rows]),
            "",
            "## An update",
            "",
            *_table(UPDATE, [_update(row) for row in rows]),
            "",
            f"CPU-seconds of the process, medians of {rounds} rounds in which the ways take turns, "
            "from the same weights and with all images to be encoded again; ratios are of medians, "
            "brackets their least and greatest by round. packed: this library. padded: the same "
            f"learner with `packing: padded`, rows of {ROW_TOKENS:,} tokens, each image "
            "still encoded once. alone: transformers' own forward pass from pixels, a sequence at "
            "a time, its images encoded with it. Making pixels of files is not timed. log-probs: "
            "the largest absolute difference of a token to `packed`; sampled: what the engine drew "
            "it with. gradient: the norm of the difference, relative to that of `packed`. All in "
            "float32.",
            "",
        ]
    )


def _tokens(row: Row) -> list[str]:
    played, packed = row.played, row.computed("packed")
    counts = (len(played.samples), row.sample_tokens, played.distinct, played.computed)
    rolled = [f"{played.computed / played.distinct:.3f}", f"{played.padded:,}"]
    updated = [f"{row.distinct:,}", f"{packed:,}", f"{packed / row.distinct:.3f}"]
    return [row.name, *(f"{count:,}" for count in counts), *rolled, *updated]


def _images(row: Row) -> list[str]:
    counts = (row.played.given, row.played.images, row.played.encoded)
    return [row.name, *map(str, counts), *(str(way.images) for way in row.ways.values())]


def _update(row: Row) -> list[str]:
    packed, ratios = row.ways["packed"], [row.ratio("padded"), row.ratio("alone")]
    seconds = (statistics.median(each) for each in (packed.seconds, packed.tower_seconds))
    apart = (*row.logprobs.values(), *row.gradients.values())
    return [row.name, *(f"{s:.2f}" for s in seconds), *ratios, *(f"{a:.0e}" for a in apart)]


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(cells)} |" for cells in (header, *rows)]
    return [lines[0], "|" + "---|" * len(header), *lines[1:]]


def main(words: Sequence[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=PAGE)
    parser.add_argument("--rollouts", type=int, default=8)
    parser.add_argument("--max-steps", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args(words)
    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as folder:
        images = Path(folder)
        played = record(PAGES, options.rollouts, options.max_steps, options.seed, images)
        one = [each for each in played if each.task.id == JUDGED]
        rows = [
            measure(view, one if view.judges else played, images, options.rounds, options.seed)
            for view in VIEWS
        ]
    options.out.write_text(page(rows, played, options.rounds), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
