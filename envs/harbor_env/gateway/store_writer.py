"""One thread that commits what is waiting in one SQLite transaction at a time.

While a commit runs, new work queues up and forms the next transaction, so throughput rises with load and the event
loop never waits for the disk. An item that fails fails alone: the others of its group are committed without it.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

Work = Callable[[sqlite3.Connection], Any]
T = TypeVar("T")

GROUP_LIMIT = 256
WAITING_LIMIT = 4096


@dataclass(slots=True)
class _Item:
    work: Work
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    result: Any = None
    error: Exception | None = None


class GroupWriter:
    """Owns `connection` (autocommit mode) from its own thread until `close`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._queue: SimpleQueue[_Item | None] = SimpleQueue()
        self._room = asyncio.Semaphore(WAITING_LIMIT)
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)
        self._thread.start()

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` inside a transaction; returns its result once that is on disk, or raises its error.

        `work` may run twice (its group is rolled back and replayed when a neighbour fails), so it changes nothing but
        the database. Cancelling the wait before the group starts writes nothing; after that the write stands.
        At most `WAITING_LIMIT` items wait at once; more wait here. RuntimeError after `close`.
        """
        async with self._room:
            if self._closed:
                raise RuntimeError("the store is closed")
            loop = asyncio.get_running_loop()
            future: asyncio.Future[T] = loop.create_future()
            self._queue.put(_Item(work, loop, future))
            return await future

    def close(self) -> None:
        """Commit what is waiting, then close the connection. Idempotent."""
        if not self._closed:
            self._closed = True
            self._queue.put(None)
            self._thread.join()
            self._connection.close()

    def _run(self) -> None:
        open_ = True
        while open_:
            group, open_ = self._take()
            if group:
                self._commit_group(group)
                _deliver(group)

    def _take(self) -> tuple[list[_Item], bool]:
        """The next group (waits for its first item), and whether more may come."""
        group: list[_Item] = []
        item = self._queue.get()
        while item is not None:
            if not item.future.cancelled():
                group.append(item)
            if len(group) == GROUP_LIMIT:
                return group, True
            try:
                item = self._queue.get_nowait()
            except Empty:
                return group, True
        return group, False

    def _commit_group(self, group: list[_Item]) -> None:
        error = self._transaction(group)
        if error is None:
            return
        if len(group) == 1:
            group[0].error = error
            return
        for item in group:
            item.error = self._transaction([item])

    def _transaction(self, group: list[_Item]) -> Exception | None:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            for item in group:
                item.result = item.work(self._connection)
            self._connection.execute("COMMIT")
        except Exception as error:  # noqa: BLE001 - raised again in the task that awaits the item
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            return error
        return None


def _deliver(group: list[_Item]) -> None:
    """Wake the waiting tasks, one call per event loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[_Item]] = defaultdict(list)
    for item in group:
        by_loop[item.loop].append(item)
    for loop, items in by_loop.items():
        if not loop.is_closed():  # a closed loop has nobody left to tell; what it asked for is stored
            loop.call_soon_threadsafe(_resolve, items)


def _resolve(items: list[_Item]) -> None:
    for item in items:
        if item.future.done():  # cancelled while the write ran
            continue
        if item.error is not None:
            item.future.set_exception(item.error)
        else:
            item.future.set_result(item.result)
