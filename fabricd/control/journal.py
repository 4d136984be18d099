"""The journal: every step of every action, latches and the trust ledger, on disk before a byte goes to a device.

``Journal`` is a Protocol so that a replicated one can take its place when aggregators fail over; ``SqliteJournal`` is the one
of a single controller: write-ahead log, full synchronous commits, safe for a second process (``fabricd actions expire``).
"""

from __future__ import annotations

import fcntl
import json
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import msgspec

from fabricd.errors import FabricdError
from fabricd.model.action import IN_FORCE, Action, Lever

Latch = Literal["pause", "freeze", "revert-all"]
LATCHES: tuple[Latch, ...] = ("pause", "freeze", "revert-all")
Verb = Literal["approve", "reject", "rollback"]
VERBS: tuple[Verb, ...] = ("approve", "reject", "rollback")
_LOCK_LOOK_S = 0.05


class Request(NamedTuple):
    """What a person asked for an action; the controller does it at its next step."""

    verb: Verb
    action: str
    who: str
    at_ns: int


_SCHEMA = """
CREATE TABLE IF NOT EXISTS actions (id TEXT PRIMARY KEY, state TEXT NOT NULL, created_ns INTEGER NOT NULL, body BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS actions_state ON actions (state);
CREATE TABLE IF NOT EXISTS events (
  seq INTEGER PRIMARY KEY AUTOINCREMENT, action TEXT NOT NULL, at_ns INTEGER NOT NULL, state TEXT NOT NULL, body BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS written (lever TEXT PRIMARY KEY, value BLOB NOT NULL, action TEXT NOT NULL, at_ns INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS latches (name TEXT PRIMARY KEY, who TEXT NOT NULL, at_ns INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS requests (
  seq INTEGER PRIMARY KEY AUTOINCREMENT, at_ns INTEGER NOT NULL, verb TEXT NOT NULL, action TEXT NOT NULL, who TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS ledger (
  seq INTEGER PRIMARY KEY AUTOINCREMENT, at_ns INTEGER NOT NULL, proposal TEXT NOT NULL UNIQUE, body BLOB NOT NULL);
"""


class Journal(Protocol):
    """What control needs of a journal. Every call that writes has reached the disk when it returns."""

    def save(self, action: Action) -> None: ...
    def load(self, action_id: str) -> Action | None: ...
    def actions(self, *, in_force: bool = False, newest: int | None = None) -> list[Action]: ...
    def wrote(self, lever: Lever, value: Any, action_id: str, at_ns: int) -> None: ...
    def last_written(self, lever: Lever) -> Any: ...
    def forget_written(self, lever: Lever) -> None: ...
    def latch(self, name: Latch, who: str, at_ns: int) -> None: ...
    def unlatch(self, name: Latch) -> None: ...
    def latches(self) -> dict[str, str]: ...
    def ask(self, verb: Verb, action_id: str, who: str, at_ns: int) -> None: ...
    def take_requests(self) -> list[Request]: ...
    def exclusive(self, wait_s: float) -> AbstractContextManager[bool]: ...
    def note(self, proposal_id: str, at_ns: int, entry: dict[str, Any]) -> None: ...
    def ledger(self, newest: int = 1000) -> list[dict[str, Any]]: ...


class SqliteJournal:
    """Raises FabricdError, naming the file, when it cannot be opened or written."""

    def __init__(self, path: str | Path) -> None:
        self.path = str(path)
        self._writing = threading.Lock()  # one connection, several threads: transactions must not interleave
        try:
            if self.path != ":memory:":
                Path(self.path).parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(self.path, timeout=5.0, isolation_level=None, check_same_thread=False)
            self._db.execute("PRAGMA journal_mode=WAL")
            # FULL: a commit is on the disk, not only in the page cache, before the push that relies on it.
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.executescript(_SCHEMA)
        except (sqlite3.Error, OSError) as error:
            raise FabricdError(f"journal {self.path}: {error}") from None

    def close(self) -> None:
        self._db.close()

    @contextmanager
    def _write(self) -> Iterator[sqlite3.Connection]:
        with self._writing:
            try:
                self._db.execute("BEGIN IMMEDIATE")
                try:
                    yield self._db
                except BaseException:
                    self._db.execute("ROLLBACK")
                    raise
                self._db.execute("COMMIT")
            except sqlite3.Error as error:
                raise FabricdError(f"journal {self.path}: {error}") from None

    def save(self, action: Action) -> None:
        """Insert or update an action; events not seen before are appended to the audit trail."""
        body = msgspec.json.encode(action)
        with self._write() as db:
            row = db.execute("SELECT count(*) FROM events WHERE action = ?", (action.id,)).fetchone()
            db.execute(
                "INSERT INTO actions VALUES (?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET state = excluded.state, body = excluded.body",
                (action.id, action.state, action.proposal.created_ns, body),
            )
            for event in action.events[row[0] :]:
                db.execute(
                    "INSERT INTO events (action, at_ns, state, body) VALUES (?, ?, ?, ?)",
                    (action.id, event.at_ns, event.state, msgspec.json.encode(event)),
                )

    def load(self, action_id: str) -> Action | None:
        row = self._db.execute("SELECT body FROM actions WHERE id = ?", (action_id,)).fetchone()
        return msgspec.json.decode(row[0], type=Action) if row else None

    def actions(self, *, in_force: bool = False, newest: int | None = None) -> list[Action]:
        """Oldest first; ``in_force`` only those that may still hold a lever."""
        states = sorted(IN_FORCE)
        where = f"WHERE state IN ({','.join('?' * len(states))})" if in_force else ""
        rows = self._db.execute(
            f"SELECT body FROM actions {where} ORDER BY created_ns DESC, id LIMIT ?",
            (*(states if in_force else ()), -1 if newest is None else newest),
        ).fetchall()
        return [msgspec.json.decode(row[0], type=Action) for row in reversed(rows)]

    def wrote(self, lever: Lever, value: Any, action_id: str, at_ns: int) -> None:
        """Remember what we last wrote to a lever: the value every later compare-and-set compares with."""
        with self._write() as db:
            db.execute(
                "INSERT INTO written VALUES (?, ?, ?, ?) ON CONFLICT (lever) DO UPDATE SET "
                "value = excluded.value, action = excluded.action, at_ns = excluded.at_ns",
                (_lever_key(lever), json.dumps(value), action_id, at_ns),
            )

    def last_written(self, lever: Lever) -> Any:
        """None when we never wrote it, or gave it back."""
        row = self._db.execute("SELECT value FROM written WHERE lever = ?", (_lever_key(lever),)).fetchone()
        return json.loads(row[0]) if row else None

    def forget_written(self, lever: Lever) -> None:
        with self._write() as db:
            db.execute("DELETE FROM written WHERE lever = ?", (_lever_key(lever),))

    def latch(self, name: Latch, who: str, at_ns: int) -> None:
        with self._write() as db:
            db.execute("INSERT OR REPLACE INTO latches VALUES (?, ?, ?)", (name, who, at_ns))

    def unlatch(self, name: Latch) -> None:
        with self._write() as db:
            db.execute("DELETE FROM latches WHERE name = ?", (name,))

    def latches(self) -> dict[str, str]:
        """Name to who set it and when."""
        rows = self._db.execute("SELECT name, who, at_ns FROM latches").fetchall()
        return {
            name: f"{who}, {time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(at_ns / 1e9))}" for name, who, at_ns in rows
        }

    def ask(self, verb: Verb, action_id: str, who: str, at_ns: int) -> None:
        """Leave a request for the controller."""
        with self._write() as db:
            db.execute(
                "INSERT INTO requests (at_ns, verb, action, who) VALUES (?, ?, ?, ?)", (at_ns, verb, action_id, who)
            )

    def take_requests(self) -> list[Request]:
        """Oldest first; they are gone from the journal afterwards."""
        with self._write() as db:
            rows = db.execute("SELECT verb, action, who, at_ns FROM requests ORDER BY seq").fetchall()
            db.execute("DELETE FROM requests")
        return [Request(*row) for row in rows]

    @contextmanager
    def exclusive(self, wait_s: float) -> Iterator[bool]:
        """Only one process writes to devices at a time. Yields whether the lock was had within ``wait_s``.

        The dead man's timer goes on without it: a controller that hangs must not keep a lever in force, and every write is
        compare-and-set anyway.
        """
        if self.path == ":memory:":
            yield True
            return
        try:
            with open(f"{self.path}.lock", "a", encoding="ascii") as file:
                held = _lock(file.fileno(), wait_s)
                yield held
        except OSError as error:
            raise FabricdError(f"journal {self.path}.lock: {error.strerror}") from None

    def note(self, proposal_id: str, at_ns: int, entry: dict[str, Any]) -> None:
        """One line of the trust ledger per proposal; noted again, it is replaced (what then happened is added)."""
        with self._write() as db:
            db.execute(
                "INSERT INTO ledger (at_ns, proposal, body) VALUES (?, ?, ?) "
                "ON CONFLICT (proposal) DO UPDATE SET body = excluded.body",
                (at_ns, proposal_id, json.dumps(entry)),
            )

    def ledger(self, newest: int = 1000) -> list[dict[str, Any]]:
        """Oldest first."""
        rows = self._db.execute(
            "SELECT at_ns, proposal, body FROM ledger ORDER BY seq DESC LIMIT ?", (newest,)
        ).fetchall()
        return [{"at_ns": at_ns, "proposal": proposal, **json.loads(body)} for at_ns, proposal, body in reversed(rows)]

    def audit(self) -> Iterator[dict[str, Any]]:
        """Every event of every action in the order it happened, for export."""
        for seq, action, body in self._db.execute("SELECT seq, action, body FROM events ORDER BY seq"):
            yield {"seq": seq, "action": action, **json.loads(body)}


def _lock(number: int, wait_s: float) -> bool:
    deadline = time.monotonic() + wait_s
    pause = threading.Event()
    while True:
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            pause.wait(_LOCK_LOOK_S)


def _lever_key(lever: Lever) -> str:
    return json.dumps([lever.adapter, lever.device, lever.name, lever.key])
