"""One session of a gateway whose engine, store and harness fail as a test says; a fake engine, and a real store."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Self, cast

from harbor_env.errors import EngineError, GatewayError
from harbor_env.gateway.dialects import DIALECTS, Dialect
from harbor_env.gateway.engine_pool import EnginePool, Parts
from harbor_env.gateway.options import SessionOptions
from harbor_env.gateway.pace import Pace
from harbor_env.gateway.sessions import Sessions
from harbor_env.gateway.store import FILE_NAME, Store
from harbor_env.gateway.take_turn import Answer, take_turn
from harbor_env.gateway.types import Call, Generation, Message, Reply, ToolCall, Turn
from tests.fake_renderer import FakeRenderer
from tests.play import bash, said, user
from tests.serving import FakeEngine


class SpeechlessDialect:
    """A fake dialect that can write no reply."""

    name = "chat"

    def encode(self, reply: Reply, call: Call) -> bytes:
        raise ValueError("no words")


class FaultyGateway:
    """Asks call after call, each continuing what was shown before; `stored` is what another process reads."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._engine = FakeEngine()
        self._history: list[Message] = [user("Go.")]

    async def __aenter__(self) -> Self:
        self._open()
        self._other = Store.open(self._folder)
        self._key = (await self._sessions.open(SessionOptions())).key
        return self

    async def __aexit__(self, *_: object) -> None:
        self._other.close()
        self._store.close()

    def _open(self) -> None:
        self._store = Store.open(self._folder)
        pool = EnginePool(lambda _: Parts(self._engine, lambda: None, FakeRenderer()))
        self._sessions = Sessions(self._store, pool)

    async def ask(self, fate: str) -> Reply | None:
        """The reply shown, None where the call failed."""
        self._engine.answers = [said(f"Reply {len(self._history)}.", bash("ls"))]
        answer = await FATES[fate](self)
        if answer is None:
            return None
        message = answer.reply.message
        results = [Message("tool", "ok", tool_call_id=call.id) for call in message.tool_calls]
        self._history += [message, *results]
        return answer.reply

    def stored(self) -> list[Turn]:
        return self._other.turns(self._other.sessions()[0].id)

    def in_memory(self) -> list[Turn]:
        live = self._sessions._live
        return next(iter(live.values())).session.tree.turns() if live else self.stored()

    async def well(self, dialect: Dialect = DIALECTS["chat"]) -> Answer:
        live = await self._sessions.live(self._key)
        assert live.in_flight == 0
        call = Call(tuple(self._history), model="m")
        return await take_turn(self._store, Pace(), live, call, dialect=dialect, headers={})

    async def fails(
        self, answer: Any, error: type[Exception] = GatewayError, dialect: Dialect = DIALECTS["chat"]
    ) -> None:
        self._engine.answers = [answer]
        try:
            await self.well(dialect)
        except error:
            return
        raise AssertionError(f"{answer} was answered")

    async def engine_error(self) -> None:
        await self.fails(EngineError("engine_error", "not well"))

    async def a_bug(self) -> None:
        await self.fails(ZeroDivisionError("inside"), ZeroDivisionError)

    async def aborted(self) -> None:
        await self.fails(Generation([1001, 5], [-1.0, -1.0], "abort"))

    async def cannot_be_shown(self) -> None:
        """Half a surrogate pair is text no JSON can carry."""
        broken = Message("assistant", "", tool_calls=(ToolCall("", "bash\ud800", "{}"),))
        await self.fails(broken, Exception)

    async def cannot_be_written(self) -> None:
        """The turn could be kept; only the dialect has no words for it."""
        await self.fails(said("Well."), ValueError, cast(Dialect, SpeechlessDialect()))

    async def hung_up(self) -> None:
        self._engine.gate.clear()
        self._engine.arrived.clear()
        asking = asyncio.create_task(self.well())
        await self._engine.arrived.wait()
        asking.cancel()
        await asyncio.wait({asking})
        self._engine.gate.set()
        assert asking.cancelled()

    async def disk_is_slow(self) -> Answer:
        """Nothing is shown while the turn cannot be written."""
        with closing(sqlite3.connect(self._folder / FILE_NAME, isolation_level=None)) as writing:
            writing.execute("BEGIN IMMEDIATE")
            self._engine.arrived.clear()
            asking = asyncio.create_task(self.well())
            await self._engine.arrived.wait()
            done, _ = await asyncio.wait({asking}, timeout=0.05)
            assert not done
            assert self.in_memory() == self.stored()
            writing.execute("ROLLBACK")
        return await asking

    async def disk_is_full(self) -> None:
        """The write fails; the turn is nowhere."""
        self._store._writer._connection.execute("PRAGMA max_page_count = 1")
        live = await self._sessions.live(self._key)
        huge = Generation([*([1100] * 90_000), 5], [-1.0] * 90_001, "stop")
        assert live.in_flight == 0
        try:
            await self.fails(huge, sqlite3.OperationalError)
        finally:
            self._store._writer._connection.execute("PRAGMA max_page_count = 4294967294")

    async def restarted(self) -> Answer:
        """The same session, in a process that knows only the store."""
        self._store.close()
        self._open()
        return await self.well()


FATES: dict[str, Callable[[FaultyGateway], Any]] = {
    name: getattr(FaultyGateway, name)
    for name in (
        "well",
        "engine_error",
        "a_bug",
        "aborted",
        "cannot_be_shown",
        "cannot_be_written",
        "hung_up",
        "disk_is_slow",
    )
} | {"disk_is_full": FaultyGateway.disk_is_full, "restarted": FaultyGateway.restarted}
