"""Sessions this process serves: loaded from the store when first asked for, kept in step with other processes.

Invariant: the store is the source of truth; forgetting every session here loses nothing.
"""

from __future__ import annotations

import math
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from harbor_env.errors import GatewayError, UsageError
from harbor_env.gateway.engine_pool import EnginePool, OpenEngine
from harbor_env.gateway.options import Budget, EngineOptions, PinnedSampling, SessionOptions
from harbor_env.gateway.roles import markers_of
from harbor_env.gateway.session import Session, new_session
from harbor_env.gateway.store import Committed, SessionRecord, Store
from harbor_env.gateway.types import Turn
from harbor_env.harnesses import RoleMarker

Clock = Callable[[], float]
"""Seconds since the epoch."""

KEPT = 4096
"""Sessions kept in memory; the one used longest ago is forgotten first."""


@dataclass(slots=True)
class LiveSession:
    """A session in this process. `seq` is the last turn read from the store; `in_flight` counts calls that are
    planned and whose turn is not in the tree yet.

    `markers` tell the conversations of the session's harness apart. `first_call` is when this process planned its first
    call, in seconds since the epoch.
    """

    session: Session
    engine: OpenEngine
    markers: Sequence[RoleMarker] = ()
    seq: int = 0
    in_flight: int = 0
    first_call: float = math.inf
    clock: Clock = time.time

    def seconds(self, now: float) -> float:
        """Wall time since the session's first call, whichever process it came to."""
        return max(0.0, now - min(self.first_call, self.session.first_call, now))

    def read(self, committed: list[tuple[int, Turn]]) -> None:
        for seq, turn in committed:
            self.session.add(turn)
            self.seq = max(self.seq, seq)

    def wrote(self, committed: Committed, turn: Turn) -> None:
        """Take a turn this process committed; only if nothing came between is the store read up to it."""
        if committed.previous <= self.seq:
            self.session.add(turn)
            self.seq = committed.seq


@dataclass(frozen=True, slots=True)
class Opened:
    """A new session. `key` is its secret."""

    id: str
    key: str


class Sessions:
    """Opens, finds and forgets sessions. `clock` is what their wall time is measured with."""

    def __init__(self, store: Store, engines: EnginePool) -> None:
        self._store = store
        self._engines = engines
        self.clock: Clock = time.time
        self._live: OrderedDict[str, LiveSession] = OrderedDict()
        self._ids: dict[str, str] = {}

    async def open(self, options: SessionOptions) -> Opened:
        opened = Opened(f"s-{secrets.token_hex(16)}", f"sk-{secrets.token_hex(24)}")
        await self._store.create_session(SessionRecord(opened.id, time.time(), asdict(options)), opened.key)
        return opened

    def find(self, secret: str) -> SessionRecord | None:
        """The record behind a session's key or id: both are secrets of that session."""
        return self._store.session_by_key(secret) or self._store.session(secret)

    async def live(self, secret: str) -> LiveSession:
        """The session behind a key or id, with every turn committed so far.

        GatewayError: unauthorized for a secret never minted here, or the engine's own error while it is down.
        """
        session_id = self._ids.get(secret)
        if session_id is None or session_id not in self._live:
            session_id = await self._load(secret)
        live = self._live[session_id]
        self._live.move_to_end(session_id)
        self._store.touch(session_id)
        live.read(self._store.turns_after(session_id, live.seq))
        return live

    async def delete(self, session_id: str) -> bool:
        self._forget(session_id)
        return await self._store.delete_session(session_id)

    def __len__(self) -> int:
        return len(self._live)

    async def _load(self, secret: str) -> str:
        record = self.find(secret) if secret else None
        if record is None:
            raise GatewayError("unauthorized", "No session has this key: open one with POST /sessions.")
        options = options_from_json(record.options)
        engine = await self._engines.get(options.engine)
        if record.id not in self._live:
            self._live[record.id] = _live_session(record.id, options, engine, self.clock)
        self._ids[secret] = record.id
        while len(self._live) > KEPT:
            self._forget(next(iter(self._live)))
        return record.id

    def _forget(self, session_id: str) -> None:
        self._live.pop(session_id, None)
        for secret in [secret for secret, known in self._ids.items() if known == session_id]:
            del self._ids[secret]


def _live_session(session_id: str, options: SessionOptions, engine: OpenEngine, clock: Clock) -> LiveSession:
    info = engine.info
    try:
        session = new_session(
            session_id, options, level=info.level, window=info.max_model_len, renderer=engine.renderer
        )
    except UsageError as error:  # a template variable this model's template has not
        raise GatewayError("bad_request", f"template_kwargs: {error}") from error
    return LiveSession(session, engine, markers_of(options.metadata.get("harness")), clock=clock)


def options_from_json(document: Mapping[str, Any]) -> SessionOptions:
    """What `asdict` made of the options, read back from the store."""
    values = dict(document)
    engine = values.get("engine")
    values["engine"] = EngineOptions(**engine) if engine else None
    values["sampling"] = PinnedSampling(**(values.get("sampling") or {}))
    values["budget"] = Budget(**(values.get("budget") or {}))
    return SessionOptions(**values)
