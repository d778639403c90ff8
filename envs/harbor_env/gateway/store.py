"""What every gateway process knows: sessions, turns and findings in one SQLite file per data directory.

A turn whose `commit_turn` returned is on disk and is read back with equal ids, log probabilities and messages, by this
process or any other, after any crash. Writes are group-committed on one thread; reads are point reads.
"""

from __future__ import annotations

import hashlib
import sqlite3
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import orjson

from harbor_env.errors import GatewayError, UsageError
from harbor_env.gateway.store_schema import (
    SHAPE_COLUMNS,
    TABLES,
    TURN_COLUMNS,
    VERSION,
    message_from_json,
    turn_from_row,
    turn_of_shape,
    turn_to_row,
)
from harbor_env.gateway.store_writer import GroupWriter
from harbor_env.gateway.types import Finding, Turn

FILE_NAME = "gateway.sqlite3"
BUSY_SECONDS = 30.0

SessionStatus = Literal["open", "closed"]

_NUMBER = "(SELECT number FROM sessions WHERE id = ?)"
_INSERT_TURN = (
    f"INSERT INTO turns (session, {TURN_COLUMNS}) VALUES ({_NUMBER}, {', '.join('?' * len(TURN_COLUMNS.split(',')))})"
)
_HAS_TURN = f"SELECT 1 FROM turns WHERE session = {_NUMBER} AND id = ?"
_PREVIOUS = f"SELECT coalesce(max(seq), 0) FROM turns WHERE session = {_NUMBER}"
_TURNS_AFTER = f"SELECT seq, {TURN_COLUMNS} FROM turns WHERE session = {_NUMBER} AND seq > ? ORDER BY seq"
_FINDINGS_AFTER = (
    f"SELECT turn, code, detail FROM findings WHERE session = {_NUMBER}"
    f" AND turn IN (SELECT id FROM turns WHERE session = {_NUMBER} AND seq > ?) ORDER BY seq"
)
_SHAPES = f"SELECT {SHAPE_COLUMNS} FROM turns WHERE session = {_NUMBER} ORDER BY seq"
_REPLIES = f"SELECT reply FROM turns WHERE session = {_NUMBER} ORDER BY seq DESC"
_INSERT_FINDING = f"INSERT INTO findings (session, turn, code, detail) VALUES ({_NUMBER}, ?, ?, ?)"


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """A session as created. `options` is the JSON of its creation; `created_at` is in seconds since the epoch.

    The session's API key is not here: the file keeps only its SHA-256, so reading a data directory hands out no key.
    """

    id: str
    created_at: float
    options: Mapping[str, Any] = field(default_factory=dict)
    status: SessionStatus = "open"


@dataclass(frozen=True, slots=True)
class Committed:
    """A turn's place in the session. `previous` is the seq of the turn committed just before it (0: it is the first).

    A process that has read up to `previous` has read up to `seq`; otherwise another process wrote in between and
    `turns_after` gives what it wrote.
    """

    seq: int
    previous: int


class Store:
    """One data directory's file. Open it with `Store.open`; one per process and event loop."""

    def __init__(self, reader: sqlite3.Connection, scanner: sqlite3.Connection, writer: GroupWriter) -> None:
        self._reader = reader
        self._reading = threading.Lock()
        self._scanner = scanner
        self._scanning = threading.Lock()
        self._writer = writer
        self._touched: dict[str, float] = {}
        self._stored_contexts: dict[str, set[str]] = defaultdict(set)

    @classmethod
    def open(cls, directory: Path, *, power_loss_safe: bool = True) -> Store:
        """Open or create `directory/gateway.sqlite3`, readable by its owner only.

        With `power_loss_safe` every group is flushed to the device before its turns are shown (one fsync a group).
        Without it a crash of the machine, not of the process, may lose the last turns.
        UsageError: the directory cannot be used, or the file is not a store of this version.
        """
        path = Path(directory) / FILE_NAME
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(mode=0o600, exist_ok=True)
            writing = _connect(path)
            _prepare(writing, power_loss_safe)
            return cls(_connect(path), _connect(path), GroupWriter(writing))
        except (OSError, sqlite3.Error) as error:
            raise UsageError(f"{path} cannot be used as the gateway's store: {error}") from error

    def close(self) -> None:
        """Commit what is waiting and close the file."""
        self._writer.close()
        self._reader.close()
        self._scanner.close()

    # -- sessions ------------------------------------------------------------------------------------------------------

    async def create_session(self, record: SessionRecord, api_key: str) -> None:
        """Store a new session under `api_key`. GatewayError(conflict): its id or key exists."""
        row = (record.id, key_digest(api_key), record.created_at, record.status, _json(record.options))

        def insert(connection: sqlite3.Connection) -> None:
            connection.execute(
                "INSERT INTO sessions (id, key_digest, created_at, status, options, active_at)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                (*row, record.created_at),
            )

        try:
            await self._writer.run(insert)
        except sqlite3.IntegrityError as error:
            raise GatewayError("conflict", "A session with this id or key exists.") from error

    def session(self, session_id: str) -> SessionRecord | None:
        return self._session("id = ?", session_id)

    def session_by_key(self, api_key: str) -> SessionRecord | None:
        return self._session("key_digest = ?", key_digest(api_key))

    def sessions(self) -> list[SessionRecord]:
        """Every session, oldest first."""
        return [
            _record(row) for row in self._read("SELECT id, created_at, options, status FROM sessions ORDER BY number")
        ]

    async def delete_session(self, session_id: str) -> bool:
        """Remove a session with its turns and findings. False: there was none."""
        self._touched.pop(session_id, None)
        self._stored_contexts.pop(session_id, None)
        return await self._writer.run(
            lambda connection: connection.execute("DELETE FROM sessions WHERE id = ?", (session_id,)).rowcount > 0
        )

    def touch(self, session_id: str) -> None:
        """Note that a harness of this session was heard from; kept in memory only."""
        self._touched[session_id] = time.time()

    def idle_seconds(self, session_id: str) -> float:
        """Seconds since this session was created, touched here, or given a turn by any process."""
        rows = self._read("SELECT active_at FROM sessions WHERE id = ?", session_id)
        last: float = max([self._touched.get(session_id, 0.0), *(row[0] for row in rows)])
        return max(0.0, time.time() - last)

    # -- turns ---------------------------------------------------------------------------------------------------------

    async def commit_turn(
        self, session_id: str, turn: Turn, context: Mapping[str, Any] | None = None, *, after: int | None = None
    ) -> Committed | None:
        """Store a turn with its findings; returns once it is durable.

        `context` is what `turn.context` is the digest of, for exports: `{"tools": [Tool, ...], "template_kwargs": {}}`;
        it is stored once per session. With `after` nothing is stored, and None returned, where a turn of the session
        was committed after that seq: whoever counts turns before adding one reads those first. GatewayError(conflict):
        the session is gone, its parent is not in it, or the turn is already there.
        """
        row = (session_id, *turn_to_row(turn))
        findings = [(session_id, turn.id, finding.code, finding.detail) for finding in turn.findings]
        context_row = None
        if context is not None and turn.context not in self._stored_contexts[session_id]:
            context_row = (session_id, turn.context, _json(context))
        now = time.time()

        def insert(connection: sqlite3.Connection) -> Committed | None:
            if turn.parent is not None and not connection.execute(_HAS_TURN, (session_id, turn.parent)).fetchone():
                raise GatewayError("conflict", "The turn's parent is not in this session, or the session was deleted.")
            previous = connection.execute(_PREVIOUS, (session_id,)).fetchone()[0]
            if after is not None and previous > after:
                return None
            seq = connection.execute(_INSERT_TURN, row).lastrowid
            if findings:
                connection.executemany(_INSERT_FINDING, findings)
            if context_row is not None:
                connection.execute(f"INSERT OR IGNORE INTO contexts VALUES ({_NUMBER}, ?, ?)", context_row)
            connection.execute("UPDATE sessions SET active_at = ? WHERE id = ?", (now, session_id))
            return Committed(seq or 0, previous)

        try:
            committed = await self._writer.run(insert)
        except sqlite3.IntegrityError as error:
            raise GatewayError("conflict", "The session was deleted, or it has this turn already.") from error
        if context_row is not None and committed is not None:
            self._stored_contexts[session_id].add(turn.context)
        return committed

    def turns_after(self, session_id: str, seq: int = 0) -> list[tuple[int, Turn]]:
        """Turns committed after `seq` by any process, in commit order; a few microseconds when there are none."""
        rows = self._read(_TURNS_AFTER, session_id, seq)
        if not rows:
            return []
        findings: dict[str, list[Finding]] = defaultdict(list)
        for turn, code, detail in self._read(_FINDINGS_AFTER, session_id, session_id, seq):
            findings[turn].append(Finding(code, detail))
        return [(row[0], turn_from_row(row[1:], tuple(findings.get(row[1], ())))) for row in rows]

    def turns(self, session_id: str) -> list[Turn]:
        """All turns of a session, in commit order."""
        return [turn for _, turn in self.turns_after(session_id)]

    def shapes(self, session_id: str) -> list[Turn]:
        """All turns of a session without messages and findings: enough to count by, and cheap to read."""
        with self._scanning:
            return [turn_of_shape(row) for row in self._scanner.execute(_SHAPES, (session_id,))]

    def last_tool(self, session_id: str) -> str:
        """The tool the newest turn that called one called last; "" where none did."""
        with self._scanning:
            replies = (message_from_json(row[0]) for row in self._scanner.execute(_REPLIES, (session_id,)))
            return next((reply.tool_calls[-1].name for reply in replies if reply.tool_calls), "")

    def contexts(self, session_id: str) -> dict[str, dict[str, Any]]:
        """What each context digest of the session stands for."""
        rows = self._read(f"SELECT digest, document FROM contexts WHERE session = {_NUMBER}", session_id)
        return {digest: orjson.loads(document) for digest, document in rows}

    # -- findings ------------------------------------------------------------------------------------------------------

    async def add_findings(self, session_id: str, findings: Sequence[Finding], turn_id: str | None = None) -> None:
        """Add findings to the session. A turn's own findings come with `commit_turn`.

        GatewayError(conflict): the session is gone.
        """
        rows = [(session_id, turn_id, finding.code, finding.detail) for finding in findings]
        try:
            await self._writer.run(lambda connection: connection.executemany(_INSERT_FINDING, rows))
        except sqlite3.IntegrityError as error:
            raise GatewayError("conflict", "The session was deleted.") from error

    def findings(self, session_id: str) -> list[tuple[str | None, Finding]]:
        """Every finding of the session with the id of its turn (None: the session's own), oldest first."""
        rows = self._read(
            f"SELECT turn, code, detail FROM findings WHERE session = {_NUMBER} ORDER BY seq",
            session_id,
        )
        return [(turn, Finding(code, detail)) for turn, code, detail in rows]

    def finding_counts(self, session_id: str) -> Counter[str]:
        """How often each finding code was met in the session."""
        query = f"SELECT code, count(*) FROM findings WHERE session = {_NUMBER} GROUP BY code"
        with self._scanning:
            return Counter(dict(self._scanner.execute(query, (session_id,))))

    # -- reading -------------------------------------------------------------------------------------------------------

    def _read(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._reading:
            return self._reader.execute(query, values).fetchall()

    def _session(self, where: str, value: str | bytes) -> SessionRecord | None:
        rows = self._read(f"SELECT id, created_at, options, status FROM sessions WHERE {where}", value)
        return _record(rows[0]) if rows else None


def key_digest(api_key: str) -> bytes:
    """What the store keeps of a key. Keys are long and random, so one round of SHA-256 is enough."""
    return hashlib.sha256(api_key.encode()).digest()


def _json(document: Mapping[str, Any]) -> bytes:
    return orjson.dumps(dict(document))


def _record(row: Sequence[Any]) -> SessionRecord:
    return SessionRecord(id=row[0], created_at=row[1], options=orjson.loads(row[2]), status=row[3])


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA cache_size = -4096")
    return connection


def _prepare(connection: sqlite3.Connection, power_loss_safe: bool) -> None:
    """Bring a new or existing file to this version. Two processes may do so at once."""
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA synchronous = {'FULL' if power_loss_safe else 'NORMAL'}")
    found = connection.execute("PRAGMA user_version").fetchone()[0]
    if found not in (0, VERSION):
        raise UsageError(f"The store was written in format {found}; this program reads format {VERSION}.")
    connection.executescript(f"BEGIN IMMEDIATE; {TABLES} PRAGMA user_version = {VERSION}; COMMIT;")
