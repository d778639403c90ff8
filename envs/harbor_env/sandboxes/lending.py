"""Fork servers of one process lent to others: who wants one sends what it is to be of, and the far end of a new line.

Invariant: only a line is lent. A server stays its owner's, who starts another when it has ended; what is said on the
line passes nobody but the two at its ends. Only processes that were given the asking end can ask: it has no path.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from harbor_env.errors import SandboxError
from harbor_env.sandboxes.base import Base
from harbor_env.sandboxes.fork_line import Line, answered, refuse
from harbor_env.sandboxes.fork_server import IMPORTED_WITHIN, WarmStart
from harbor_env.sandboxes.places import Places

ANSWERED_WITHIN = 3 * IMPORTED_WITHIN
"""Seconds an owner may take: others may be starting first, then the server starts."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a fork server is of: one serves all who want the same."""

    where: Places
    base: Base
    layers: tuple[Path, ...]
    start: WarmStart


Find = Callable[[Wanted], Awaitable[Line]]


def asking_pair() -> tuple[socket.socket, socket.socket]:
    """The end for a `Lender` and the one to `borrow` with; any number of processes may share the latter."""
    lending, asking = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in (lending, asking):
        end.setblocking(False)
    return lending, asking


class Lender:
    """Lends what `find` finds to all who ask at the other side of `end`, until they or it are gone.

    `end` belongs to this object. `find` raises SandboxError where there is no such server.
    """

    def __init__(self, end: socket.socket, find: Find) -> None:
        self._end = end
        self._find = find
        self._lending: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(end, self._asked)

    @property
    def closed(self) -> bool:
        return self._end.fileno() < 0

    def close(self) -> None:
        """Who waits for an answer hears that there will be none."""
        if not self.closed:
            self._loop.remove_reader(self._end)
            self._end.close()
        for lending in self._lending:
            lending.cancel()

    def _asked(self) -> None:
        try:
            data, fds, _, _ = socket.recv_fds(self._end, 1, 2)
        except BlockingIOError:
            return
        except OSError:
            data, fds = b"", []
        if not data:
            self.close()
            return
        if len(fds) != 2:  # too many files are open here
            for fd in fds:
                os.close(fd)
            return
        body, end = fds
        try:
            wanted: Wanted = pickle.loads(os.pread(body, os.fstat(body).st_size, 0))
        finally:
            os.close(body)
        lending = asyncio.create_task(self._lend(wanted, socket.socket(fileno=end)))
        self._lending.add(lending)
        lending.add_done_callback(self._lending.discard)

    async def _lend(self, wanted: Wanted, end: socket.socket) -> None:
        with end:
            try:
                (await self._find(wanted)).lend(end)
            except SandboxError as error:
                refuse(end, str(error))


async def borrow(asking: socket.socket, wanted: Wanted) -> Line:
    """A line to the fork server of whoever lends at the other side of `asking`.

    Raises SandboxError where there is no such server, EOFError where nobody lends any more.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    try:
        with theirs:
            _ask(asking, wanted, theirs)
        async with asyncio.timeout(ANSWERED_WITHIN):
            await _readable(ours)
        return answered(ours)
    except BaseException as error:
        ours.close()
        if isinstance(error, TimeoutError):
            raise SandboxError(f"no fork server was lent within {ANSWERED_WITHIN:.0f} seconds") from error
        if isinstance(error, OSError):
            raise EOFError from error
        raise


def _ask(asking: socket.socket, wanted: Wanted, end: socket.socket) -> None:
    body = os.memfd_create("wanted")
    try:
        os.write(body, pickle.dumps(wanted))
        socket.send_fds(asking, [b"?"], [body, end.fileno()])
    finally:
        os.close(body)


async def _readable(sock: socket.socket) -> None:
    loop, readable = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(sock, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(sock)
