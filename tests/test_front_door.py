"""The library from Python: the notebook as a script and in Jupyter, and what a run leaves."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import rlanything as rl
from helpers.command import call
from helpers.guess import GUESS
from helpers.neighbours import needs_plugin
from helpers.notebook import CELLS
from helpers.scripted import Counting
from rlanything.config.recipe import RecipeError
from rlanything.domains.base import DomainError
from rlanything.domains.text import TextRollouts
from rlanything.plugins import PluginError
from rlanything.roles.judges.base import JudgeError
from rlanything.runs.export import ExportError, _write_parquet, export_run

SAID = ["iteration 1 ", "iteration 2 ", "success in_domain: success ", "read 3 ", "episodes {True}"]
SMALL = {
    "loop.iterations": 2,
    "loop.tasks": 4,
    "loop.tasks_per_iteration": 2,
    "loop.rollouts_per_task": 3,
    "loop.max_steps": 4,
    "policy.minibatches": 2,
    "evaluation.episodes": 0,
}


def parity(trajectory: rl.Trajectory) -> int:
    """A score that tells the rollouts of a task apart, whatever they did."""
    return 1 if int(trajectory.id[-1]) % 2 else -1


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The run that the notebook leaves when it is run as a script, and what it printed."""
    folder = tmp_path_factory.mktemp("script")
    (folder / "mine.py").write_text("\n".join(CELLS))
    done = subprocess.run(
        [sys.executable, "mine.py"], cwd=folder, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    return folder / "runs" / "mine", done.stdout


def test_a_domain_and_a_judge_of_a_script_train_with_two_workers(script: tuple[Path, str]) -> None:
    _, said = script
    lines = said.splitlines()
    for line, beginning in zip(lines, SAID, strict=False):
        assert line.startswith(beginning)
    assert lines[-1] == "resumed [3]"
    assert len(lines) == len(SAID) + 1, "a script hears nothing but what it prints itself"


def test_the_notebook_runs_in_jupyter(tmp_path: Path) -> None:
    nbformat = pytest.importorskip("nbformat")
    client = pytest.importorskip("nbclient")
    notebook = nbformat.v4.new_notebook()
    notebook.cells = [nbformat.v4.new_code_cell(cell) for cell in CELLS]
    resources = {"metadata": {"path": str(tmp_path)}}
    client.NotebookClient(notebook, timeout=240, resources=resources).execute()
    printed = "".join(output.get("text", "") for cell in notebook.cells for output in cell.outputs)
    assert "iteration 2 " in printed
    assert printed.endswith("resumed [3]\n")


@pytest.mark.parametrize("command", [["tasks"], ["report"], ["doctor"], ["doctor", "--json"]])
def test_commands_read_a_run_whose_parts_were_objects(
    script: tuple[Path, str], command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    name, *options = command
    assert call(monkeypatch, name, str(script[0]), *options) == 0


def test_the_recipe_says_which_parts_were_objects_and_resume_asks_for_them(
    script: tuple[Path, str],
) -> None:
    recipe = rl.open_run(script[0]).recipe
    assert recipe["domain"]["name"] == "object(__main__.Guess)"
    assert recipe["roles"]["judge"]["name"] == "object(__main__.sensible)"
    with pytest.raises(RecipeError, match=r"Trainer\.resume\(RUN, domain=\.\.\.\)"):
        rl.Trainer.resume(script[0])


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_export_writes_what_pandas_reads(
    script: tuple[Path, str], form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "exported"
    assert call(monkeypatch, "export", str(script[0]), "--format", form, "--out", str(out)) == 0
    rows = {path.stem: rows_of(path) for path in out.iterdir()}
    run = rl.open_run(script[0])
    assert [row["iteration"] for row in rows["metrics"]] == [0, 1, 2, 3]
    assert len(rows["evaluations"]) == len(run.evaluations())
    assert [row["slot"] for row in rows["tasks"]] == [row["slot"] for row in run.tasks()]
    stored = run.trajectories()
    assert [row["trajectory"] for row in rows["trajectories"]] == [t.id for t in stored]
    step, first = rows["trajectories"][0]["steps"][0], stored[0].steps[0]
    assert (step["response"], step["advantage"]) == (first.completion.text, first.advantage)


def test_parquet_holds_data_of_any_shape(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    every = ({}, {"x": 1}, {"x": "s"}, {"x": [1, "a"]}, {"x": 2**80}, None)
    rows = [{"slot": "a", "root_data": data, "history": [{"data": data}]} for data in every]
    assert _write_parquet(tmp_path / "tasks.parquet", rows) == len(every)
    read = parquet.read_table(tmp_path / "tasks.parquet").to_pylist()
    texts = [row["root_data"] for row in read]
    assert [text if text is None else json.loads(text) for text in texts] == [*every]
    assert [row["history"][0]["data"] for row in read] == texts


@needs_plugin("command", "feedback")
def test_exported_trajectories_get_their_advantages_from_the_command_feedback(
    script: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, signals = tmp_path / "exported", tmp_path / "signals.jsonl"
    assert call(monkeypatch, "export", str(script[0]), "--out", str(out)) == 0
    exported = out / "trajectories.jsonl"
    assert call(monkeypatch, "feedback", str(exported), "--out", str(signals)) == 0
    assert_same_advantages(rows_of(exported), rows_of(signals))


def rows_of(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text().splitlines()]
    parquet = pytest.importorskip("pyarrow.parquet")
    return parquet.read_table(path).to_pylist()


def assert_same_advantages(
    exported: Sequence[dict[str, Any]], signals: Sequence[dict[str, Any]]
) -> None:
    """A task is rolled out in several iterations, and `feedback` compares all its rollouts: only
    tasks of one iteration have the advantages that trained."""
    iterations: dict[str, set[int]] = {}
    for row in exported:
        iterations.setdefault(row["task"], set()).add(row["iteration"])
    once = [
        (row, signal)
        for row, signal in zip(exported, signals, strict=True)
        if len(iterations[row["task"]]) == 1
    ]
    assert once
    for row, signal in once:
        assert [step["advantage"] for step in row["steps"]] == signal["policy"]


def test_export_leaves_a_folder_alone_that_exists(script: tuple[Path, str], tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="exists already"):
        export_run(rl.open_run(script[0]), tmp_path, "jsonl")


def weights(run: Path, iteration: int) -> str:
    file = run / "checkpoints" / f"iter-{iteration:05}" / "policy" / "model.safetensors"
    return sha256(file.read_bytes()).hexdigest()


def test_a_loop_that_is_left_can_be_entered_again_with_the_same_result(tmp_path: Path) -> None:
    whole, left = tmp_path / "whole", tmp_path / "left"
    rl.Trainer(GUESS, overrides=SMALL, run_dir=whole).train()
    trainer = rl.Trainer(GUESS, overrides=SMALL, run_dir=left)
    for iteration in trainer:
        assert iteration.number == 1
        break
    trainer.evaluate("in_domain", episodes=2)
    assert [iteration.number for iteration in trainer] == [2]
    assert list(trainer) == [], "a finished run has no iterations left"
    assert weights(whole, 2) == weights(left, 2)
    asked = [rl.open_run(run).metrics()[-1]["policy/requests"] for run in (whole, left)]
    assert asked[0] == asked[1], "an evaluation in between is none of the iteration's"
    assert "seconds/iterations" not in rl.open_run(left).metrics()[-1]


def test_a_recipe_may_be_data_and_an_adapter_and_a_loss_objects(tmp_path: Path) -> None:
    class NoAdapter:
        asked = 0

        def propose(self, requests: Sequence[Any], iteration: int, seed: int) -> list[Any]:
            from rlanything.roles.adapter import Proposal

            self.asked += len(requests)
            return [Proposal(request.slot, None, (), ()) for request in requests]

    from rlanything.algorithm.losses import LossInputs, LossOutputs, reinforce

    tokens: list[int] = []

    def counted(inputs: LossInputs) -> LossOutputs:
        tokens.append(len(inputs.new_logprobs))
        return reinforce(inputs)

    from rlanything.algorithm.advantages import AdvantageInputs
    from rlanything.algorithm.options import Options

    class Scale(Options):
        factor: float = 1.0

    def scaled(inputs: AdvantageInputs, options: Scale) -> list[list[float]]:
        pairs = zip(inputs.outcomes, inputs.steps, strict=True)
        return [[options.factor * outcome] * steps for outcome, steps in pairs]

    adapter = NoAdapter()
    changes = {**SMALL, "loop.iterations": 1, "feedback.policy_window": [0, 1]}
    recipe = rl.load_recipe(GUESS, changes).model_dump()
    judge = rl.FunctionJudge(lambda trajectory, i: (parity(trajectory), "as it went"))
    parts = {"judge": judge, "adapter": adapter, "loss": counted}
    parts["advantage"] = partial(scaled, options=Scale(factor=0.25))
    trainer = rl.Trainer(recipe, **parts, run_dir=tmp_path / "run")
    trainer.train()
    assert sum(tokens) > 0
    saved = rl.open_run(tmp_path / "run")
    assert "counted" in saved.recipe["roles"]["policy"]["loss"]["name"]
    assert "scaled" in saved.recipe["feedback"]["advantage"]["name"]
    steps = [(t.outcome, step.advantage) for t in saved.trajectories() for step in t.steps]
    assert steps
    assert all(advantage == 0.25 * outcome for outcome, advantage in steps)
    with pytest.raises(
        RecipeError, match=r"feedback\.advantage: object\(.*scaled\) was handed over"
    ):
        rl.Trainer.resume(tmp_path / "run", **{**parts, "advantage": None})
    assert "NoAdapter" in saved.recipe["roles"]["adapter"]["name"]
    assert saved.trajectories()[0].steps[0].judgements[0].completion.text == "as it went"
    assert adapter.asked == len(rl.open_run(tmp_path / "run")._query("SELECT slot FROM proposals"))


def test_a_judge_that_returns_no_score_is_one_line(tmp_path: Path) -> None:
    for value in (2, False, (1, "a", 2)):
        function: Any = lambda trajectory, i, value=value: value  # noqa: E731
        judge = rl.FunctionJudge(function)
        trainer = rl.Trainer(GUESS, judge=judge, overrides=SMALL, run_dir=tmp_path / f"{value}")
        said = rf"returned {re.escape(f'{value!r}')} for step 0 .*return \+1, -1, or 0"
        with pytest.raises(JudgeError, match=said):
            trainer.train()


def test_a_judge_that_fails_is_one_line_with_the_step(tmp_path: Path) -> None:
    def scores(trajectory: Any, i: int) -> int:
        raise KeyError("a")

    judge = rl.FunctionJudge(scores)
    trainer = rl.Trainer(GUESS, judge=judge, overrides=SMALL, run_dir=tmp_path / "run")
    with pytest.raises(JudgeError, match=r"scores failed at step 0 of .*KeyError: 'a'\): fix it"):
        trainer.train()


class Tasks(TextRollouts):
    """Has the tasks that a test gives it."""

    def __init__(self, *tasks: Any) -> None:
        self._tasks = tasks[0] if tasks == (None,) else list(tasks)

    def tasks(self, split: str, count: int, seed: int) -> Any:
        return self._tasks


@pytest.mark.parametrize(
    ("tasks", "said"),
    [
        ((None,), r"Tasks.tasks\('train', ...\) gave None: return a list of rlanything.Task"),
        (({"id": "a"},), "gave {'id': 'a'}: an rlanything.Task is due"),
        ((rl.Task(cast(str, 3), ""),), "each with a text of its own as id"),
        ((rl.Task("a", "", data={"x": np.int64(3)}),), r"of task 'a' cannot be kept as JSON \("),
        ((rl.Task("a", ""), rl.Task("a", "")), "gave 'a' twice: give every task an id of its own"),
    ],
)
def test_what_are_no_tasks_is_said_before_anything_is_written(
    tmp_path: Path, tasks: Any, said: str
) -> None:
    with pytest.raises(DomainError, match=said) as caught:
        rl.Trainer(GUESS, domain=Tasks(*tasks), overrides=SMALL, run_dir=tmp_path / "run")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_held_out_tasks_that_are_trained_on_are_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    same = Tasks(*(rl.Task(str(i), "") for i in range(8)))
    held_out = {**SMALL, "evaluation.episodes": 8}
    rl.Trainer(GUESS, domain=same, overrides=held_out, run_dir=tmp_path / "run", progress=True)
    said = " ".join(capsys.readouterr().out.split())
    assert "8 of the 8 held-out tasks of split 'in_domain' are trained on, such as '0'" in said


def test_held_out_tasks_are_known_by_what_they_ask_for_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Named(Tasks):
        def tasks(self, split: str, count: int, seed: int) -> Any:
            return [rl.Task(f"{split}-{i}", f"Reach {i}.") for i in range(count)]

    held_out = {**SMALL, "evaluation.episodes": 8}
    rl.Trainer(GUESS, domain=Named(), overrides=held_out, run_dir=tmp_path / "run", progress=True)
    said = " ".join(capsys.readouterr().out.split())
    assert "held-out tasks of split 'in_domain' are trained on, such as 'in_domain-0'" in said


def test_tasks_that_mostly_ask_for_the_same_few_things_are_known_by_their_ids(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Few(Tasks):
        def tasks(self, split: str, count: int, seed: int) -> Any:
            asked = [0, 0, 1, 1, 2, 2, 3, *[4] * count]  # 3 stands once
            return [rl.Task(f"{split}-{i}", f"Reach {asked[i]}.") for i in range(count)]

    held_out = {**SMALL, "evaluation.episodes": 8}
    rl.Trainer(GUESS, domain=Few(), overrides=held_out, run_dir=tmp_path / "run", progress=True)
    assert "are trained on" not in " ".join(capsys.readouterr().out.split())


def test_fewer_iterations_than_are_done_are_refused(tmp_path: Path) -> None:
    rl.Trainer(GUESS, overrides=SMALL, run_dir=tmp_path / "run").train()
    recipe = (tmp_path / "run" / "recipe.yaml").read_text()
    fewer = rl.Trainer.resume(tmp_path / "run", overrides={"loop.iterations": 1})
    with pytest.raises(RecipeError, match=r"loop.iterations=1: 2 iterations of .* are done; give"):
        fewer.train()
    assert (tmp_path / "run" / "recipe.yaml").read_text() == recipe


def test_a_stored_step_is_read_as_one_under_way(script: tuple[Path, str]) -> None:
    step = rl.open_run(script[0]).trajectories()[0].steps[0]
    assert step.response == step.completion.text


def test_an_adapter_that_proposes_nothing_at_all_is_told_what_is_due(tmp_path: Path) -> None:
    class Silent:
        def propose(self, requests: Sequence[Any], iteration: int, seed: int) -> Any:
            return []

    changes = {**SMALL, "loop.rollouts_per_task": 1}
    trainer = rl.Trainer(GUESS, adapter=Silent(), overrides=changes, run_dir=tmp_path / "run")
    with pytest.raises(PluginError, match=r"Silent returned \[\] for 2 requests: return a"):
        trainer.train()


def test_a_loss_that_returns_something_else_is_told_what_is_due(tmp_path: Path) -> None:
    loss: Any = lambda inputs: inputs.new_logprobs  # noqa: E731
    changes = {**SMALL, "feedback.policy_window": [0, 1]}
    judge = rl.FunctionJudge(lambda trajectory, i: parity(trajectory))
    trainer = rl.Trainer(GUESS, judge=judge, loss=loss, overrides=changes, run_dir=tmp_path / "run")
    with pytest.raises(PluginError, match="gave Tensor: return a LossOutputs"):
        trainer.train()


def test_a_bare_function_is_told_how_it_becomes_a_judge(tmp_path: Path) -> None:
    function: Any = lambda trajectory, i: 1  # noqa: E731
    with pytest.raises(RecipeError, match=r"or a function as rlanything\.FunctionJudge"):
        rl.Trainer(GUESS, judge=function, run_dir=tmp_path / "run")


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ({"domain": Counting}, r"domain: object\(.*Counting\) is a class: hand over an object"),
        ({"domain": Path()}, "is no domain, it lacks action_marker"),
        ({"adapter": object()}, "is no adapter, it lacks propose"),
        ({"loss": 3}, "is no loss, it lacks __call__"),
    ],
)
def test_an_object_that_is_no_such_part_is_refused_before_anything_is_built(
    part: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises(RecipeError, match=said):
        rl.Trainer(GUESS, run_dir=tmp_path / "run", **part)
    assert not (tmp_path / "run").exists()


def test_what_is_no_function_makes_no_judge() -> None:
    with pytest.raises(JudgeError, match="3 is no function"):
        rl.FunctionJudge(3)  # pyright: ignore[reportArgumentType]


def test_public_names_are_all_there_and_an_unknown_one_is_an_attribute_error() -> None:
    for name in rl.__all__:
        assert getattr(rl, name) is not None
    assert set(rl.__all__) <= set(dir(rl))
    with pytest.raises(AttributeError, match="has no attribute 'trainer'"):
        _ = rl.trainer  # pyright: ignore[reportAttributeAccessIssue]
