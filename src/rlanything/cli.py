"""The command line. Errors that a user can mend are one line and exit code 2."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console
from rich.markup import escape

from rlanything import __version__
from rlanything.bench.command import learner as bench_learner
from rlanything.commands.ablate import ablate
from rlanything.progress import Progress

if TYPE_CHECKING:
    from rlanything.runs.trainer import Trainer

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Closed-loop reinforcement learning: a policy, a generative judge and the environment's "
    "tasks improve one another (RLAnything, arXiv 2602.02488).",
)
nano_app = typer.Typer(no_args_is_help=True, help="The tiny models that ship with the package.")
app.add_typer(nano_app, name="nano")
bench_app = typer.Typer(no_args_is_help=True, help="How fast the library is, measured here.")
bench_app.command("learner")(bench_learner)
app.add_typer(bench_app, name="bench")
app.command()(ablate)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rlanything {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None: ...


@app.command()
def train(
    recipe: Annotated[Path, typer.Argument(help="A YAML recipe; see recipes/.")],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(help="section.key=value, e.g. policy.learning_rate=1e-5 run_dir=PATH"),
    ] = None,
) -> None:
    """Run the closed loop that a recipe describes."""
    from rlanything.config.recipe import load_recipe
    from rlanything.runs.trainer import Trainer

    progress = Progress(Console())
    _to_the_end(Trainer(load_recipe(recipe, overrides or []), progress=progress), progress)


@app.command()
def resume(
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            help="environment.*, checkpoints.*, store.*, tracker.* or loop.iterations=value"
        ),
    ] = None,
) -> None:
    """Go on with a run that was stopped, with the results it would have had."""
    from rlanything.runs.trainer import Trainer

    progress = Progress(Console())
    _to_the_end(Trainer.resume(run, overrides=overrides or [], progress=progress), progress)


def _to_the_end(run: Trainer, progress: Progress) -> None:
    lines = run.train()
    progress.console.rule()
    for line in lines:
        progress.log(line)


@app.command()
def doctor(
    run: Annotated[Path | None, typer.Argument(help="A run directory to examine too.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Check the installation, and a run's files, in plain words; exit code 1 where one is bad."""
    from rlanything.commands.doctor import check_installation, check_run

    findings = check_installation() + (check_run(run) if run else [])
    if as_json:
        typer.echo(json.dumps({"findings": [asdict(each) for each in findings]}))
    else:
        for each in findings:
            typer.echo(each.line())
    if not all(each.well for each in findings):
        raise typer.Exit(1)


@app.command()
def plan(
    recipe: Annotated[Path, typer.Argument(help="A YAML recipe; see recipes/.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(help="section.key=value, as for train")
    ] = None,
    device: Annotated[
        str, typer.Option(help="cpu (this machine, measured) or a GPU of the table, e.g. h100.")
    ] = "cpu",
    count: Annotated[int, typer.Option(min=1, help="How many of them.")] = 1,
    assume: Annotated[
        list[str] | None, typer.Option(help="name=value for what a recipe cannot say.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Work out memory, tokens and seconds of a recipe, without its weights and without a GPU."""
    from rlanything.config.recipe import load_recipe
    from rlanything.planning.plan import make_plan
    from rlanything.planning.report import render

    made = make_plan(load_recipe(recipe, overrides or []), device, count, assume or [])
    if as_json:
        typer.echo(json.dumps(made.to_json()))
    else:
        Console().print(render(made))


@app.command("eval")
def evaluate(
    target: Annotated[
        str,
        typer.Argument(
            help="A run directory, a recipe (its policy before training), a model "
            "(folder, id or nano), expert or random."
        ),
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(help="section.key=value, e.g. policy.engine.name=vllm policy.device=cuda"),
    ] = None,
    split: Annotated[str, typer.Option(help="Which held-out tasks.")] = "in_domain",
    episodes: Annotated[int, typer.Option(min=1, help="One per task.")] = 240,
    domain: Annotated[
        str | None, typer.Option(help="alfworld or module:Class; a run has its own.")
    ] = None,
    max_steps: Annotated[
        int | None, typer.Option(min=1, help="Step limit; a run's own, else 40.")
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(min=0, help="Of the policy; a run's own, else 1.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Chooses the tasks and the random numbers.")] = 1,
    workers: Annotated[int, typer.Option(min=0, help="Environment processes.")] = 2,
    select: Annotated[
        str | None,
        typer.Option(
            metavar="best-of-N", help="N attempts a task; the judge of a run or recipe chooses one."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Measure success on held-out tasks, with its 95% interval."""
    from rlanything.commands.eval import EvalRequest, best_of, run_eval

    request = EvalRequest(
        target,
        split,
        episodes,
        domain,
        max_steps,
        temperature,
        seed,
        workers,
        overrides or [],
        best_of(select) if select else None,
    )
    progress = Progress(Console(stderr=True))
    result = run_eval(request, progress)
    if as_json:
        typer.echo(json.dumps(result.to_json()))
    else:
        Console().print(result.table())


@app.command("judge-check")
def judge_check(
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    episodes: Annotated[int, typer.Option(min=1, help="At most so many of the judge's exam.")] = 32,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Corrupt recorded steps in known ways: does the judge notice, before and after training?"""
    from rlanything.commands.judge_check import check_judge

    result = check_judge(run, episodes, Progress(Console(stderr=True)))
    if as_json:
        typer.echo(json.dumps(result.to_json()))
    else:
        Console().print(result.table())


@app.command()
def tasks(
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Show a run's slots: their tasks, lineage, accuracies and critics."""
    from rlanything.runs.lineage import lineage_table, read_lineage
    from rlanything.runs.store.store import Store

    slots = read_lineage(Store(run / "run.sqlite"))
    if as_json:
        typer.echo(json.dumps({"slots": slots}))
    else:
        Console().print(lineage_table(slots))


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(help="A run directory; several are compared.")],
    out: Annotated[
        Path | None,
        typer.Option(help="Where it goes: RUN/report.html, or comparison.html here, if left out."),
    ] = None,
    open_it: Annotated[bool, typer.Option("--open", help="Show it in the browser.")] = False,
) -> None:
    """Write a run's report, one HTML file, from whatever its store holds; or compare runs."""
    import webbrowser

    from rlanything.runs.report.writing import COMPARISON, NAME, write_report

    out = out or (runs[0] / NAME if len(runs) == 1 else Path(COMPARISON))
    with Progress(Console(stderr=True)).phase("report", len(runs), "runs"):
        write_report(runs, out)
    typer.echo(out)
    if open_it:
        webbrowser.open(out.resolve().as_uri())


@app.command()
def feedback(
    rollouts: Annotated[Path, typer.Argument(help="JSONL, one trajectory a line.")],
    out: Annotated[Path, typer.Option(help="Where the signals go; must not exist.")],
    policy_lambda: Annotated[
        float, typer.Option(min=0, help="lambda of Eq. 1, for both roles.")
    ] = 1.0,
    judge_lambda: Annotated[
        float | None, typer.Option(min=0, help="lambda for the judge, if another.")
    ] = None,
    policy_reward: Annotated[
        Literal["integrated", "outcome", "judge"],
        typer.Option(help="What the policy learns from: Eq. 1, or one of its two terms alone."),
    ] = "integrated",
    policy_comparison: Annotated[
        Literal["step", "trajectory"],
        typer.Option(help="Compare a step with those of its index, or all of its task."),
    ] = "step",
    policy_window: Annotated[
        tuple[float, float], typer.Option(help="Accuracies on which the policy trains.")
    ] = (1 / 8, 7 / 8),
    judge_window: Annotated[
        tuple[float, float], typer.Option(help="Accuracies on which the judge trains.")
    ] = (0.2, 0.8),
    judge_normalization: Annotated[
        Literal["step", "task"],
        typer.Option(help="Compare a judgement with those of its step or its task."),
    ] = "step",
    judge_balance: Annotated[
        Literal["none", "outcome"],
        typer.Option(help="Give steps of won and of lost episodes equal weight for the judge."),
    ] = "none",
) -> None:
    """Compute step-wise training signals for rollouts from any framework.

    Input lines: {"task", "trajectory", "outcome": 1|-1, "steps": [{"scores": [1, -1, 0]}, ...]}.
    Output lines, in the same order: {"task", "trajectory", "accuracy", "policy", "judge"}, null
    where a sample does not train. Kept in memory: each task's id, 33 bytes a trajectory, 4 bytes a
    step.
    """
    from rlanything.algorithm.feedback import FeedbackSettings
    from rlanything.rollout.signals import write_signals

    settings = FeedbackSettings(
        policy_lambda=policy_lambda,
        judge_lambda=policy_lambda if judge_lambda is None else judge_lambda,
        policy_reward=policy_reward,
        policy_comparison=policy_comparison,
        policy_window=policy_window,
        judge_window=judge_window,
        judge_normalization=judge_normalization,
        judge_balance=judge_balance,
    )
    progress = Progress(Console(stderr=True))
    with progress.live(), progress.bytes_phase("reading twice") as advance:
        summary = write_signals(rollouts, out, settings, advance)
    progress.log(
        f"{out}: {summary.trajectories} trajectories of {summary.tasks} tasks; "
        f"{summary.policy_samples} of {summary.steps} steps train the policy, "
        f"{summary.judge_samples} of {summary.judgements} judgements train the judge"
    )
    if summary.single_trajectory_tasks:
        progress.log(
            f"{summary.single_trajectory_tasks} tasks have one trajectory: nothing to compare it "
            "with, so it trains nothing; roll out each task several times"
        )


@app.command()
def sandbox(
    program: Annotated[Path, typer.Argument(help="Python source that nobody vouches for.")],
    input: Annotated[Path | None, typer.Option(help="What it reads from stdin.")] = None,
    expect: Annotated[Path | None, typer.Option(help="What it must print.")] = None,
    cpu_seconds: Annotated[
        float, typer.Option(min=0.01, help="CPU time; 2.5 times that and 1 s by the clock.")
    ] = 4.0,
    memory_mb: Annotated[int, typer.Option(min=1, help="Address space, in MiB.")] = 1024,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Run a program in a box that sees nothing of this machine, and say what came of it."""
    from rlanything.domains.coding.sandbox.base import Limits
    from rlanything.domains.coding.sandbox.once import run_file

    limits = Limits(cpu_seconds=cpu_seconds, memory_mb=memory_mb)
    result = run_file(program, input, expect, limits)
    if as_json:
        typer.echo(json.dumps(result.to_json()))
    else:
        typer.echo(result.text, nl=False)
        Console(stderr=True).print(escape(result.line()), soft_wrap=True, highlight=False)


@nano_app.command("build")
def nano_build(
    out: Annotated[Path, typer.Option(help="Where the three models go.")],
    domain: Annotated[str, typer.Option(help="What they are for.")] = "alfworld",
    seed: Annotated[int, typer.Option(help="Everything derives from it.")] = 0,
    workers: Annotated[int, typer.Option(min=0, help="Environment processes.")] = 2,
    role: Annotated[
        list[str] | None,
        typer.Option(help="Only policy, judge or adapter; the others are read from OUT."),
    ] = None,
) -> None:
    """Build policy, judge and adapter from a seed, and measure what they can do."""
    from rlanything.nano.making import roles_named
    from rlanything.nano.plans import build

    progress = Progress(Console())
    build(domain, seed, out, workers, progress, roles_named(role or (), out))
    progress.log(f"written to {out}; what was measured is in {out / 'card.json'}")


def main() -> None:
    """Entry point: turns the errors that users can mend into one line, with what to do next."""
    from rlanything.runs.stopping import Stopped

    try:
        app()
    except ValueError as error:
        if not type(error).__module__.startswith("rlanything."):
            raise
        _say_error(f"error: {error}", error)
        sys.exit(2)
    except Stopped as stop:
        _say_error(f"stopped by {stop}: the unfinished iteration is left out", stop)
        sys.exit(stop.exit_code)


def _say_error(line: str, error: BaseException) -> None:
    notes = "; ".join(getattr(error, "__notes__", ()))
    text = f"{line}{f'; {notes}' if notes else ''}"
    Console(stderr=True).print(escape(text), soft_wrap=True, highlight=False)


if __name__ == "__main__":
    main()
