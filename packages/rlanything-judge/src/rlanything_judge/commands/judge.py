"""`rlanything judge`: scores for the steps of rollouts from any framework."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rlanything.commands.eval import ROLE
from rlanything.commands.train import ALLOW_CODE
from rlanything.progress import Progress
from rlanything.terminal import Terminal
from rlanything_judge.commands.feedback import FORMAT, REWARD, WIN_AT

if TYPE_CHECKING:
    from rlanything_judge.file import JudgedFile

JUDGE = Annotated[
    str,
    typer.Option(
        help="A run directory (its trained judge), a recipe (its judge before training), or a "
        "model (folder, id or nano)."
    ),
]
OVERRIDES = Annotated[
    list[str] | None,
    typer.Argument(help="section.key=value of its recipe, e.g. judge.samples_per_step=8."),
]
DOMAIN = Annotated[
    str | None,
    typer.Option(
        help="Whose prompts a model is asked with; default: those that a shipped one was made for, "
        "plain ones for others."
    ),
]


def judge(
    rollouts: Annotated[
        Path,
        typer.Argument(
            help="Rollouts: JSON or JSONL, in any --format; .gz, .parquet, or - for stdin."
        ),
    ],
    judge: JUDGE,
    out: Annotated[Path, typer.Option(help="File to write the scores to; must not exist.")],
    overrides: OVERRIDES = None,
    domain: DOMAIN = None,
    role: ROLE = None,
    seed: Annotated[int, typer.Option(help="Seed of sampling.")] = 0,
    win_at: WIN_AT = None,
    line_format: FORMAT = "auto",
    reward: REWARD = None,
    allow_code: ALLOW_CODE = False,
) -> None:
    """Have a judge score every step of rollouts from any framework.

    Rollouts of verl, TRL, prime-rl, verifiers, tau-bench, SWE-agent, mini-SWE-agent, AlfWorld and
    OpenAI are recognised. Own lines: {"task", "trajectory", "instruction", "outcome": 1|-1,
    "steps": [{"observation", "response", "next_observation"}, ...]}. Output lines are of this
    shape, in the same order, with "scores" and "judgements" at each step: what `rlanything
    feedback` reads. Interrupted, the same command goes on where it was.
    """
    from rlanything_judge.file import JudgeFileArgs, run_judge_file
    from rlanything_judge.source import JudgeSource

    source = JudgeSource(judge, tuple(overrides or ()), domain, allow_code, role)
    columns = tuple(reward or ())
    request = JudgeFileArgs(rollouts, source, out, seed, win_at, line_format, columns)
    progress = Progress(Terminal(stderr=True))
    result = run_judge_file(request, progress)
    earlier = f" ({result.earlier} of them before an interruption)" if result.earlier else ""
    progress.log(
        f"{out}: {result.trajectories} trajectories{earlier}, {result.steps} steps, "
        f"{result.judgements} judgements"
    )
    if result.unreadable:
        progress.warn(
            f"no readable score (0) in {result.unreadable} of {result.judgements} judgements"
            f"{_reasons(result)}"
        )


def _reasons(result: JudgedFile) -> str:
    """Returns why judgements have no score, as far as their ends say so, with what helps."""
    ends = {
        f"{result.cut} were cut off: raise judge.max_tokens": result.cut,
        f"{result.refused} were withheld by the endpoint (a content filter, a refusal): see its "
        "policy, or take another judge.model": result.refused,
        f"{result.empty} came back empty: see the endpoint's log; if its thoughts count, raise "
        "judge.max_tokens": result.empty,
    }
    said = "; ".join(words for words, count in ends.items() if count)
    if sum(ends.values()) >= result.unreadable:
        return f": {said}"
    form = (
        "a judge must end with \\boxed{1} or \\boxed{-1}; say with --domain whose prompts it knows "
        "or name its run, or take one that was taught to"
    )
    return f": {said}; of the others, {form}" if said else f": {form}"
