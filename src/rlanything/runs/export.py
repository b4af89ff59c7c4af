"""A run's tables as files that pandas and `datasets` read: JSON lines or Parquet."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

from rlanything.files import new_folder
from rlanything.runs.open import RecordedRun, Row
from rlanything.runs.store.stored import StoredTrajectory
from rlanything.strict_json import finite_json

DATA = ("data", "root_data")
"""Keys of a task's own data."""

Format: TypeAlias = Literal["jsonl", "parquet"]


class ExportError(ValueError):
    """A run cannot be exported; the message is one line with the remedy."""


def export_run(
    run: RecordedRun,
    folder: Path,
    form: Format,
    on_trajectories: Callable[[int], None] = lambda count: None,
) -> dict[str, int]:
    """Writes `metrics`, `evaluations`, `tasks` and `trajectories` into a new folder, which is
    created atomically. Returns the number of rows of each.

    `rlanything feedback` reads the lines of `trajectories`. Raises `ExportError` for a folder that
    exists or cannot be written, and without the extra that Parquet needs."""
    if folder.exists():
        raise ExportError(f"{folder} exists already: choose another folder with --out")
    if form == "parquet" and importlib.util.find_spec("pyarrow") is None:
        raise ExportError("parquet needs pyarrow: pip install 'rlanything[export]', or use jsonl")
    run.check_values()
    write = _write_lines if form == "jsonl" else _write_parquet
    tables: Mapping[str, Iterable[Row]] = {
        "metrics": _same_names(run.metrics()),
        "evaluations": run.evaluations(),
        "tasks": run.tasks(),
        "trajectories": _trajectory_rows(run, on_trajectories),
    }
    try:
        with new_folder(folder) as partial:
            return {name: write(partial / f"{name}.{form}", rows) for name, rows in tables.items()}
    except OSError as error:
        raise ExportError(
            f"{folder}: cannot be written ({error.strerror}); free space there, or choose another "
            "place with --out"
        ) from None


def trajectory_row(trajectory: StoredTrajectory, instruction: str) -> Row:
    """Returns an episode with its texts and advantages, in the format of `rlanything feedback`."""
    return {
        "task": trajectory.task,
        "trajectory": trajectory.id,
        "iteration": trajectory.iteration,
        "instruction": instruction,
        "outcome": trajectory.outcome,
        "reward": trajectory.reward,
        "steps": [
            {
                "observation": step.observation,
                "response": step.completion.text,
                "action": step.action,
                "valid": step.valid,
                "next_observation": step.next_observation,
                "image": step.image,
                "next_image": step.next_image,
                "label": step.label,
                "advantage": step.advantage,
                "scores": [judgement.score for judgement in step.judgements],
                "judgements": [
                    {
                        "by": judgement.by,
                        "text": judgement.completion.text,
                        "advantage": judgement.advantage,
                    }
                    for judgement in step.judgements
                ],
            }
            for step in trajectory.steps
        ],
    }


def _trajectory_rows(run: RecordedRun, on_trajectories: Callable[[int], None]) -> Iterator[Row]:
    instructions = run.instructions()
    for trajectory in run.iterate_trajectories():
        yield trajectory_row(trajectory, instructions.get(trajectory.task, ""))
        on_trajectories(1)


def _same_names(rows: list[Row]) -> list[Row]:
    """Returns the rows with all names in each, None for missing values."""
    names = dict.fromkeys(name for row in rows for name in row)
    return [{name: row.get(name) for name in names} for row in rows]


def _write_lines(path: Path, rows: Iterable[Row]) -> int:
    count = 0
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            # ASCII only: half a surrogate pair is not UTF-8
            file.write(json.dumps(finite_json(row)) + "\n")
            count += 1
    return count


def _write_parquet(path: Path, rows: Iterable[Row]) -> int:
    import pyarrow
    from pyarrow import parquet

    table = pyarrow.Table.from_pylist([_encodable(row) for row in rows])
    parquet.write_table(table, path)
    return table.num_rows


def _encodable(value: Any) -> Any:
    """Returns a row with question marks for halves of surrogate pairs, which UTF-8 cannot encode,
    and with a task's data as JSON: their shape differs from task to task, and a column has one."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {
            name: json.dumps(part) if name in DATA and part is not None else _encodable(part)
            for name, part in value.items()
        }
    return [_encodable(part) for part in value] if isinstance(value, list) else value
