"""The store of a run, one SQLite file: readable during the run, one commit per iteration.

It has the inputs of the feedback (outcomes, scores), the advantages that trained, and all texts
with tokens and log-probs, for as long as the recipe keeps them."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any

from rlanything.algorithm.agreement import ITERATIONS, Agreements, agreements
from rlanything.algorithm.curriculum import Pool
from rlanything.config.roles import SHORT_FORM
from rlanything.config.yaml import visible
from rlanything.records import Trajectory
from rlanything.runs.paths import reject_links
from rlanything.runs.results import EvaluationRecord, IterationRecord
from rlanything.runs.store.codec import Texts, from_json
from rlanything.runs.store.database import Database, StoreError
from rlanything.runs.store.rows import write_evaluation, write_iteration, write_pool
from rlanything.runs.store.schema import (
    BY_ITERATION,
    CONTENT,
    IN_SCHEMA,
    SCHEMA_VERSION,
    TABLES,
    expected_schema,
    strange_values,
)
from rlanything.runs.store.stored import (
    StoredTrajectory,
    read_texts,
    read_trajectory,
    transcript_digests,
)


class Store:
    """The `run.sqlite` of a run directory. Every method that reads or writes raises `StoreError` if
    the file, the disk or another process prevents it."""

    def __init__(self, path: Path, read_only: bool = False) -> None:
        """`read_only`: it cannot be written through this object, and no file of the run changes.

        Raises `StoreError` if there is none, or its schema is another version's or no run's;
        `RunDirectoryError` if the run directory has links in it."""
        if not path.is_file():
            raise StoreError(f"{path.parent} is not a run directory: it has no {path.name}")
        reject_links(path.parent)
        journal = path.with_name(f"{path.name}-journal")
        if journal.exists():  # SQLite deletes the file it names when it opens the store
            raise StoreError(f"{journal} is not a file of a run: delete it")
        self._db = Database(path, read_only)
        version: int = self.query("PRAGMA user_version")[0][0]
        if version != SCHEMA_VERSION:
            self.close()
            raise StoreError(
                f"{path} has schema {version}, this version reads {SCHEMA_VERSION}: "
                "open it with the version of rlanything that wrote it"
            )
        # A view in place of a table, a trigger or a computed column would run as part of a query.
        if others := expected_schema() ^ frozenset(self.query(IN_SCHEMA)):
            self.close()
            names = ", ".join(sorted({visible(name) for _, name, _ in others}))
            raise StoreError(
                f"{path}: not the tables that a run makes ({names:.80}); restore a copy"
            )

    def check_values(self) -> None:
        """Raises `StoreError` for values that no run writes, such as a text in a number column.
        Reads all rows."""
        for table, conditions in strange_values().items():
            flags = ", ".join(f"max({condition})" for condition in conditions.values())
            [row] = self.query(f"SELECT {flags} FROM {table}")
            for column, strange in zip(conditions, row, strict=True):
                if strange:
                    raise StoreError(
                        f"{self._db.path}: {table}.{column} holds values that no run writes; "
                        "restore a copy"
                    )

    @classmethod
    def create(cls, path: Path) -> Store:
        """Creates the file. Raises `StoreError` if it cannot be written."""
        with closing(Database(path)) as db, db.transaction() as connection:
            for statement in TABLES.split(";"):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
        return cls(path)

    def close(self) -> None:
        self._db.close()

    def query(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        return self._db.query(sql, *values)

    def snapshot(self) -> AbstractContextManager[None]:
        """Makes all reads inside see one state, whatever a running run writes meanwhile."""
        return self._db.snapshot()

    def understanding(self) -> AbstractContextManager[None]:
        """Turns errors inside, caused by rows that no run writes, into a `StoreError`."""
        return self._db.understanding()

    def check(self) -> list[str]:
        """Returns the faults of the file, in plain words; empty if it is sound. Reads all of it."""
        if damages := self._db.check():
            return damages
        try:
            self.check_values()
            for table, columns in strange_values().items():
                if table != "transcripts":
                    self._db.read_all(f"SELECT {', '.join(columns)} FROM {table}")
        except StoreError as error:
            return [str(error)]
        return []

    # --- writing

    def describe(self, facts: Mapping[str, str | None]) -> None:
        """Writes facts about the run as a whole, in one transaction; None removes a fact."""
        with self._db.transaction() as db:
            for key, value in facts.items():
                if value is None:
                    db.execute("DELETE FROM run WHERE key = ?", (key,))
                else:
                    db.execute("INSERT OR REPLACE INTO run VALUES (?, ?)", (key, value))

    def record_iteration(self, record: IterationRecord) -> None:
        """Writes an iteration in one transaction.

        Raises ValueError for a sample of another iteration, or whose tokens are not the sampled
        ones."""
        with self._db.transaction() as db:
            write_iteration(db, record)

    def record_checkpoint(self, iteration: int, name: str) -> None:
        """Writes the name of an iteration's complete checkpoint."""
        with self._db.transaction() as db:
            db.execute("UPDATE iterations SET checkpoint=? WHERE iteration=?", (name, iteration))

    def record_evaluation(self, record: EvaluationRecord) -> None:
        """Writes an evaluation of policy and judge in one transaction."""
        with self._db.transaction() as db:
            write_evaluation(db, record)

    def take_beginning(self, other: Store) -> None:
        """Copies the evaluation before training from another run's store, and the episodes of its
        judge evaluation, in one transaction."""
        with self._db.transaction() as db:
            for table in ("evaluations", "judge_eval_counts", "metrics", "judge_eval_episodes"):
                where = "" if table == "judge_eval_episodes" else " WHERE iteration = 0"
                rows = other.query(f"SELECT * FROM {table}{where}")
                if rows:
                    places = ", ".join("?" * len(rows[0]))
                    db.executemany(f"INSERT INTO {table} VALUES ({places})", rows)

    # --- going back and deleting

    def last_iteration(self) -> tuple[int, str] | None:
        """Returns the newest iteration and the name of its checkpoint, empty if none was written;
        None before the first."""
        rows = self.query("SELECT iteration, checkpoint FROM iterations ORDER BY 1 DESC LIMIT 1")
        return rows[0] if rows else None

    def forget_after(self, iteration: int) -> None:
        """Deletes everything of later iterations, in one transaction. The pool knows the slots'
        earlier state: call `write_pool` with the checkpoint's pool next."""
        with self._db.transaction() as db:
            for table in BY_ITERATION:
                db.execute(f"DELETE FROM {table} WHERE iteration > ?", (iteration,))

    def write_pool(self, pool: Pool) -> None:
        """Replaces slots, their history and tasks by those of a pool, in one transaction."""
        newest = self.last_iteration()
        known = {slot.id for slot in pool.slots}
        known |= {event.task_id for slot in pool.slots for event in slot.history}
        with self._db.transaction() as db:
            write_pool(db, pool, newest[0] if newest else 0)
            stale = [(task,) for (task,) in db.execute("SELECT id FROM tasks") if task not in known]
            db.executemany("DELETE FROM tasks WHERE id = ?", stale)

    def forget_texts(self, before: int) -> None:
        """Deletes texts, tokens and log-probs of iterations before this one. Outcomes, actions,
        scores, labels, advantages and metrics stay. The file does not shrink: new data reuse the
        space."""
        with self._db.transaction() as db:
            db.execute(
                "DELETE FROM transcripts WHERE trajectory IN"
                " (SELECT number FROM trajectories WHERE iteration < ?)",
                (before,),
            )

    # --- reading

    def fact(self, key: str) -> str | None:
        """Returns a fact that `describe` wrote; None if there is none."""
        rows = self.query("SELECT value FROM run WHERE key = ?", key)
        return rows[0][0] if rows else None

    def finished(self) -> bool:
        """Returns whether the run is finished."""
        return self.fact("finished") is not None

    def roles(self) -> dict[str, str]:
        """Returns the task of each role of the run by name, from its recipe; the paper's three
        roles if it has no recipe or an older one."""
        recipe = self.fact("recipe")
        with self.understanding():
            roles = json.loads(recipe).get("roles") if recipe is not None else None
            return {name: role["does"] for name, role in roles.items()} if roles else SHORT_FORM

    @property
    def acting(self) -> str:
        """Name of the first role that acts, which outcomes are about."""
        [first, *_] = (name for name, does in self.roles().items() if does == "acts")
        return first

    def trajectory(self, trajectory_id: str) -> StoredTrajectory:
        """Returns an episode with its texts. Raises `StoreError` if there is none of this id, and
        `ForgottenError` if its texts were deleted."""
        return read_trajectory(self._db, trajectory_id)

    def texts(self, number: int) -> Texts:
        """Returns the texts of the episode with this number. Raises `StoreError` if they cannot be
        read."""
        return read_texts(self._db, number)

    def metrics(self, iteration: int) -> dict[str, float | None]:
        """Returns the metrics of an iteration by name."""
        return dict(self.query("SELECT name, value FROM metrics WHERE iteration = ?", iteration))

    def history(self) -> dict[int, dict[str, float | None]]:
        """Returns all metrics by iteration (0: before training) and name."""
        history: dict[int, dict[str, float | None]] = defaultdict(dict)
        for iteration, name, value in self.query("SELECT iteration, name, value FROM metrics"):
            history[iteration][name] = value
        return dict(sorted(history.items()))

    def agreements(self) -> dict[int, Agreements]:
        """Returns the agreements of scores with outcomes by iteration, as far back as the next
        iteration needs them."""
        last, played = self.last_iteration(), defaultdict[int, dict[int, Any]](dict)
        rows = self.query(
            "SELECT iteration, number, task, outcome, steps, step, role, score FROM judgements"
            " JOIN trajectories ON number = trajectory WHERE iteration > ? ORDER BY number, step",
            last[0] - ITERATIONS if last else 0,
        )
        with self.understanding():
            for iteration, number, task, outcome, steps, step, role, score in rows:
                _, _, scores = played[iteration].setdefault(number, (task, outcome, {}))
                scores.setdefault(role, [[] for _ in range(steps)])[step].append(score)
        return {iteration: agreements(own.values()) for iteration, own in played.items()}

    def evaluated_iterations(self) -> list[int]:
        """Returns the iterations after which policy and judge were evaluated, in order."""
        rows = self.query("SELECT DISTINCT iteration FROM evaluations ORDER BY 1")
        return [iteration for (iteration,) in rows]

    def outcomes(self, iteration: int, split: str) -> list[tuple[str, int]]:
        """Returns task and outcome of each attempt of an evaluation; those of one task in order. An
        outcome of 0 is an attempt that could not be played."""
        return self.query(
            "SELECT task, outcome FROM evaluations WHERE iteration = ? AND split = ?"
            " ORDER BY task, attempt",
            iteration,
            split,
        )

    def judge_eval_counts(
        self, iteration: int, judge: str
    ) -> dict[str, dict[str, tuple[int, int]]]:
        """Returns a judge's counts in an evaluation, by item and measure: hits and total."""
        counts: dict[str, dict[str, tuple[int, int]]] = defaultdict(dict)
        for item, measure, hits, total in self.query(
            "SELECT item, measure, hits, total FROM judge_eval_counts"
            " WHERE iteration = ? AND role = ? ORDER BY 1, 2",
            iteration,
            judge,
        ):
            counts[item][measure] = (hits, total)
        return dict(counts)

    def judge_eval_episodes(self) -> list[Trajectory]:
        """Returns the held-out episodes that judges are evaluated on, as judges read them."""
        rows = self.query("SELECT episode FROM judge_eval_episodes ORDER BY number")
        with self.understanding():
            return [from_json(text) for (text,) in rows]

    def images(self) -> set[str]:
        """Returns the names of the screenshots in episodes whose texts are kept, and in those that
        the judge is evaluated on."""
        rows = self.query("SELECT image, next_image FROM steps JOIN transcripts USING (trajectory)")
        return {name for names in rows for name in names if name} | self.judge_eval_images()

    def judge_eval_images(self) -> set[str]:
        """Returns the names of the screenshots in the episodes that the judge is evaluated on."""
        steps = [step for episode in self.judge_eval_episodes() for step in episode.steps]
        return {name for step in steps for name in (step.image, step.next_image) if name}

    def judge_eval_labels(self) -> dict[str, list[int]]:
        """Returns the labels of those episodes' steps, by episode; episodes without any are
        missing."""
        rows = self.query(
            "SELECT episode, labels FROM judge_eval_episodes WHERE labels IS NOT NULL"
        )
        with self.understanding():
            return {from_json(episode).id: json.loads(labels) for episode, labels in rows}

    def dump(self) -> list[str]:
        """Returns all results of the run, one line per row in a canonical order: runs with the same
        results have equal dumps. Times and the run's settings are left out.

        A transcript appears as digests of its texts, tokens, log-probs and prompts."""
        lines = [
            json.dumps([table, *row]) for table, sql in CONTENT.items() for row in self.query(sql)
        ]
        return lines + [json.dumps(["transcript", *line]) for line in transcript_digests(self._db)]
