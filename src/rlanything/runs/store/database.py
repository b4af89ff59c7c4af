"""An SQLite file whose commits survive a power cut, with plain error messages."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

BUSY_SECONDS = 10.0
"""Seconds to wait for another process that writes. A commit takes a second or two."""

_REMEDIES = {
    sqlite3.SQLITE_FULL: "free some space there and resume; what was committed before is intact",
    sqlite3.SQLITE_IOERR: "see whether the disk is full or failing; what was committed is intact",
    sqlite3.SQLITE_BUSY: "another process writes to it: wait until that ends, or stop it",
    sqlite3.SQLITE_LOCKED: "another process writes to it: wait until that ends, or stop it",
    sqlite3.SQLITE_READONLY: "allow this user to write the file and its directory",
    sqlite3.SQLITE_PERM: "allow this user to write the file and its directory",
    sqlite3.SQLITE_CANTOPEN: "allow this user to write the file and its directory",
    sqlite3.SQLITE_CORRUPT: "the file is damaged, restore a copy",
    sqlite3.SQLITE_NOTADB: "the file is damaged, restore a copy",
    sqlite3.SQLITE_TOOBIG: "no run writes so long a text, restore a copy",
}
MOST_BYTES = 1 << 26
"""Longest text of a store, and its largest blob."""
_UNWRITABLE = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM)


class StoreError(ValueError):
    """The store cannot be used; the message is one line that names the file and the remedy."""


class Database:
    """A connection to a file that may not exist yet."""

    def __init__(self, path: Path, read_only: bool = False) -> None:
        """`read_only`: as if this user could not write the file, so that a look at it leaves
        nothing behind."""
        self.path = path
        with self._in_plain_words():
            try:
                self._connection = self._connected(_read_only(path) if read_only else str(path))
            except sqlite3.OperationalError as error:
                code = getattr(error, "sqlite_errorcode", 0) & 0xFF
                if read_only or code not in _UNWRITABLE:
                    raise
                self._connection = self._connected(_read_only(path))
        self._identity = _identity(path)

    def _connected(self, name: str) -> sqlite3.Connection:
        # Transactions begin and end only where this file says.
        uri = name.startswith("file:")
        connection = sqlite3.connect(name, BUSY_SECONDS, isolation_level=None, uri=uri)
        try:
            _set_up(connection, writable=not uri)
        except sqlite3.DatabaseError:
            connection.close()
            raise
        return connection

    def close(self) -> None:
        self._connection.close()

    def query(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._in_plain_words():
            return self._connection.execute(sql, values).fetchall()

    def read_all(self, sql: str) -> None:
        """Reads all rows of a query and discards them. Raises `StoreError` if one cannot be
        read."""
        with self._in_plain_words():
            for _ in self._connection.execute(sql):
                pass

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Writes everything inside, or nothing. Raises `StoreError` if the disk is full, another
        process writes, or the file is gone: SQLite would go on writing into a deleted file."""
        if _identity(self.path) != self._identity:
            raise StoreError(
                f"{self.path} was deleted, moved or replaced while it was open: nothing more can "
                "be saved in it; put it back and resume, or train again"
            )
        with self._in_plain_words():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                # SQLite may have rolled back by itself, for example on a full disk.
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Makes all reads inside see one state, whatever another process writes meanwhile."""
        with self._in_plain_words():
            self._connection.execute("BEGIN")
        try:
            yield
        finally:
            self._connection.execute("ROLLBACK")

    @contextmanager
    def understanding(self) -> Iterator[None]:
        """Turns errors inside, caused by rows that no run writes, into a `StoreError`."""
        try:
            yield
        except StoreError:
            raise
        except (
            ArithmeticError,
            AttributeError,
            LookupError,
            RecursionError,
            TypeError,
            ValueError,
        ) as fault:
            kind = type(fault).__name__
            raise StoreError(
                f"{self.path}: holds rows that no run writes ({kind}); restore a copy"
            ) from fault

    def check(self) -> list[str]:
        """Returns the faults of the file, in plain words; empty if it is sound. Reads all of it."""
        try:
            lines = self.query("PRAGMA integrity_check(10)")
            orphans = self.query("PRAGMA foreign_key_check")
        except StoreError as error:
            return [str(error)]
        damage = [f"{self.path}: {line}; restore a copy" for (line,) in lines if line != "ok"]
        missing = Counter((table, parent) for table, _, parent, _ in orphans)
        return damage + [
            f"{self.path}: {count} rows of {table} refer to rows of {parent} that are not there; "
            "restore a copy"
            for (table, parent), count in missing.items()
        ]

    @contextmanager
    def _in_plain_words(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.DatabaseError as error:
            # The lower byte is the kind of error, the rest is detail; programming errors have no
            # code.
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            remedy = _REMEDIES.get(code)
            if not code and "decode" in str(error):  # invalid UTF-8, by column name
                remedy = "no run writes such text, restore a copy"
                error = sqlite3.DatabaseError(str(error).partition(" with text")[0])
            if remedy is None:
                raise
            raise StoreError(f"{self.path}: {error}; {remedy}") from None


def _set_up(connection: sqlite3.Connection, writable: bool) -> None:
    execute = connection.execute
    if writable:
        # Others may read while a run writes.
        execute("PRAGMA journal_mode=WAL")
    else:
        execute("SELECT COUNT(*) FROM sqlite_schema")  # the first read shows whether it is readable
    # With one commit per iteration, waiting for the disk each time is affordable, and a resumed run
    # must find its checkpoint in the store after a power cut.
    execute("PRAGMA synchronous=FULL")
    execute("PRAGMA foreign_keys=ON")
    execute("PRAGMA temp_store=MEMORY")
    # A stranger's schema may only call functions that compute.
    execute("PRAGMA trusted_schema=OFF")
    # Deleted transcripts are no secret; overwriting them with zeros would double the work.
    execute("PRAGMA secure_delete=OFF")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MOST_BYTES)


def _read_only(path: Path) -> str:
    """Returns the name under which SQLite opens a store that this user cannot write, or that is on
    a read-only disk. Nobody is writing it if there are no changes next to it."""
    wal = path.with_name(f"{path.name}-wal")
    unchanging = not (wal.exists() and wal.stat().st_size)
    return f"{path.absolute().as_uri()}?mode=ro{'&immutable=1' if unchanging else ''}"


def _identity(path: Path) -> tuple[int, int] | None:
    """Returns the device and inode number of a file; None if it does not exist."""
    try:
        about = path.stat()
    except OSError:
        return None
    return about.st_dev, about.st_ino
