"""The result of benchmarks/learner.py, as a page of Markdown and as a table for the terminal."""

from __future__ import annotations

import os
import platform
import statistics
from importlib.metadata import version

import torch
import transformers
from rich.table import Table

from learner_steps import trl_step
from learner_steps.measuring import EPISODE_ROLLOUTS, Result, Row

_TOKENS = ("minibatch", "samples", "tokens", "distinct", "computed", "computed / distinct")
_TIMES = (
    "minibatch",
    "shared, s",
    "padded / shared",
    "TRL / shared",
    "shared, MB",
    "padded, MB",
    "TRL, MB",
    "gradient: padded",
    "gradient: TRL",
)


def page(result: Result, command: str) -> str:
    """Returns the whole page; `command` is named as what wrote it."""
    theirs = f", trl {version('trl')}" if trl_step.available() else ", without TRL"
    return "\n".join(
        [
            "# The learner: shared beginnings against separate sequences",
            "",
            f"`{command}` wrote this page. Python {platform.python_version()}, torch "
            f"{torch.__version__}, transformers {transformers.__version__}{theirs}, "
            f"{os.cpu_count()} cores ({platform.machine()}), {_accelerator()}.",
            "",
            "A row is one optimizer step on one minibatch. `policy` and `judge` are the first "
            "minibatches of a real iteration of the recipe; the others are made-up episodes of so "
            f"many steps, {EPISODE_ROLLOUTS} rollouts of one task, one sample a step.",
            "",
            "## Tokens",
            "",
            *_markdown(_TOKENS, [_tokens(row) for row in result.rows]),
            "",
            "tokens: prompt and response of every sample; distinct: nodes of one trie of all of "
            "them; computed: nodes of the packs under `max_pack_tokens`.",
            "",
            "## Time and memory",
            "",
            *_markdown(_TIMES, [_times(row) for row in result.rows]),
            "",
            f"Medians of {result.repeats} rounds in which the ways take turns, from the same "
            "weights (learning rate 0) and without a KL term; ratios are of medians, brackets "
            "their least and greatest by round. shared: this library. padded: the same learner "
            "with `packing: padded`, samples sorted by length. TRL: the GRPO step of its trainer "
            "on the same sorted rows; generation, data loading and its outer loop do not run. "
            "Its agent users, whose rows are whole episodes, do not see these ratios "
            "([whole iterations](peers.md)). "
            "padded and TRL use the row size that was fastest for them "
            f"({_row_sizes(result.rows)}). MB: peak of the resident set in a step beyond what "
            "there was before it, and its ratio to `shared`. gradient: relative difference to "
            "that of `shared`; TRL knows no restricted choices, so where the policy chose among "
            "listed actions its loss is another.",
            "",
        ]
    )


def table(result: Result) -> Table:
    """Returns the token counts and ratios of every minibatch."""
    shown = Table("minibatch", "tokens", "distinct", "computed", "padded / shared", "TRL / shared")
    for row in result.rows:
        tokens = (row.sample_tokens, row.distinct_tokens, row.computed_tokens)
        ratios = (_ratio(row, "padded"), _ratio(row, "trl"))
        shown.add_row(row.name, *(f"{count:,}" for count in tokens), *ratios)
    return shown


def _tokens(row: Row) -> list[str]:
    counts = (row.samples, row.sample_tokens, row.distinct_tokens, row.computed_tokens)
    share = row.computed_tokens / row.distinct_tokens
    return [row.name, *(f"{count:,}" for count in counts), f"{share:.3f}"]


def _times(row: Row) -> list[str]:
    return [
        row.name,
        f"{statistics.median(row.seconds['shared']):.2f}",
        _ratio(row, "padded"),
        _ratio(row, "trl"),
        *(_megabytes(row, arm) for arm in ("shared", "padded", "trl")),
        *(
            f"{row.differences[arm]:.0e}" if arm in row.differences else "-"
            for arm in ("padded", "trl")
        ),
    ]


def _ratio(row: Row, arm: str) -> str:
    speedup = row.speedup(arm)
    if speedup is None:
        return "-"
    pairs = zip(row.seconds[arm], row.seconds["shared"], strict=True)
    rounds = [theirs / ours for theirs, ours in pairs]
    return f"{speedup:.1f}x [{min(rounds):.1f}, {max(rounds):.1f}]"


def _megabytes(row: Row, arm: str) -> str:
    """Returns the median, and its ratio to that of `shared`; - where nothing was measured."""
    if arm not in row.megabytes:
        return "-"
    median, ours = (statistics.median(row.megabytes[name]) for name in (arm, "shared"))
    return f"{median:.0f}" if arm == "shared" else f"{median:.0f} ({median / ours:.1f}x)"


def _accelerator() -> str:
    return torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"


def _row_sizes(rows: tuple[Row, ...]) -> str:
    sizes = {arm: sorted({row.row_tokens[arm] for row in rows}) for arm in rows[0].row_tokens}
    return "; ".join(
        f"{'TRL' if arm == 'trl' else arm}: {', '.join(map(str, tokens))} tokens"
        for arm, tokens in sizes.items()
    )


def _markdown(header: tuple[str, ...], rows: list[list[str]]) -> list[str]:
    return [
        f"| {' | '.join(header)} |",
        "|" + "---|" * len(header),
        *(f"| {' | '.join(row)} |" for row in rows),
    ]
