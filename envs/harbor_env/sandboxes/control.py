"""The owner's end of a sandbox's control socket: starts commands inside and hears how they ended.

Invariant: every started command gets exactly one answer, an exit code or a `SandboxError` if the sandbox ended first.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harbor_env.errors import SandboxError

_PACKET, _DESCRIPTORS = 65536, 16
_GONE = "the sandbox ended before the command did"


@dataclass(frozen=True, slots=True)
class Door:
    """Descriptors with which processes are started in a sandbox from outside, the owner's own.

    `listener` is asked for them inside; `life` becomes readable when the sandbox has ended; `inner` are its namespaces,
    in the order of `inside.door.NAMESPACES` without `user`.
    """

    listener: int
    life: int
    network: int
    user: int
    inner: tuple[int, ...]

    def close(self) -> None:
        for fd in (self.listener, self.life, self.network, self.user, *self.inner):
            os.close(fd)


class Control:
    """`sock` is a connected SOCK_SEQPACKET socket; it belongs to this object from here on."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._sock.setblocking(False)
        self._loop = asyncio.get_running_loop()
        self._numbers = itertools.count(1)
        self._running: dict[int, asyncio.Future[int]] = {}
        self._listeners: list[asyncio.Future[socket.socket]] = []
        self._doors: list[asyncio.Future[Door]] = []
        self._ready: asyncio.Future[list[str]] = self._loop.create_future()
        self._closed = False
        self._loop.add_reader(self._sock, self._readable)

    @property
    def closed(self) -> bool:
        """Whether this end was closed, or the sandbox was heard to end."""
        return self._closed

    async def ready(self) -> list[str]:
        """Notes on what the sandbox could not have, once its root stands. Raises SandboxError if it does not."""
        return await self._ready

    def start(self, request: Mapping[str, Any], streams: Sequence[int]) -> tuple[int, asyncio.Future[int]]:
        """Start a command; `streams` are descriptors of its stdin, stdout and stderr. The future is its exit code."""
        number = next(self._numbers)
        future: asyncio.Future[int] = self._loop.create_future()
        body = os.memfd_create("request")
        try:
            os.write(body, json.dumps(request).encode())
            os.lseek(body, 0, os.SEEK_SET)
            self._running[number] = future
            self._send({"do": "run", "id": number}, [body, *streams])
        except BaseException:
            self._running.pop(number, None)
            raise
        finally:
            os.close(body)
        return number, future

    def kill(self, number: int) -> None:
        """End a command and its process group; without effect on one that has ended."""
        if number in self._running:
            self._send({"do": "kill", "id": number})

    async def listen(self, address: str, port: int) -> socket.socket:
        """A socket that listens on `address:port` inside the sandbox's own network."""
        future: asyncio.Future[socket.socket] = self._loop.create_future()
        self._listeners.append(future)
        self._send({"do": "listen", "address": address, "port": port})
        return await future

    async def door(self, path: str) -> Door:
        """A socket that listens at `path` inside, open to every user there, and all it takes to enter."""
        future: asyncio.Future[Door] = self._loop.create_future()
        self._doors.append(future)
        self._send({"do": "door", "path": path})
        return await future

    def close(self) -> None:
        if self._sock.fileno() >= 0:
            self._loop.remove_reader(self._sock)
            self._sock.close()
        self._fail(_GONE)

    def _send(self, message: Mapping[str, Any], fds: Sequence[int] = ()) -> None:
        try:
            socket.send_fds(self._sock, [json.dumps(message).encode()], list(fds))
        except OSError as error:
            raise SandboxError(f"the sandbox does not answer: {error.strerror}") from error

    def _readable(self) -> None:
        try:
            data, fds, _, _ = socket.recv_fds(self._sock, _PACKET, _DESCRIPTORS)
        except BlockingIOError:
            return
        except OSError:
            data, fds = b"", []
        if not data:
            self._loop.remove_reader(self._sock)
            self._fail(_GONE)
            return
        self._heard(json.loads(data), fds)

    def _heard(self, message: dict[str, Any], fds: list[int]) -> None:
        if "done" in message:
            future = self._running.pop(message["done"], None)
            if future is not None and not future.done():
                future.set_result(message["code"])
        elif "ready" in message and not self._ready.done():
            self._ready.set_result(message["notes"])
        elif "failed" in message:
            self._fail(message["failed"])
        elif "listener" in message:
            self._listened(message, fds)
        elif "door" in message:
            self._opened(message, fds)

    def _listened(self, message: dict[str, Any], fds: list[int]) -> None:
        future = self._listeners.pop(0)
        if not message["listener"]:
            if not future.done():
                future.set_exception(SandboxError(f"the gateway's address cannot be served inside: {message['error']}"))
            return
        listener = socket.socket(fileno=fds[0])
        if future.done():
            listener.close()
        else:
            future.set_result(listener)

    def _opened(self, message: dict[str, Any], fds: list[int]) -> None:
        future = self._doors.pop(0)
        if not message["door"]:
            if not future.done():
                future.set_exception(SandboxError(f"the sandbox cannot be entered: {message['error']}"))
            return
        listener, life, network, user, *inner = fds
        door = Door(listener, life, network, user, tuple(inner))
        if future.done():
            door.close()
        else:
            future.set_result(door)

    def _fail(self, why: str) -> None:
        self._closed = True
        waiting: list[asyncio.Future[Any]] = [self._ready, *self._running.values(), *self._listeners, *self._doors]
        self._running.clear()
        self._listeners.clear()
        self._doors.clear()
        for future in waiting:
            if not future.done():
                future.set_exception(SandboxError(why))
                future.exception()  # marks it as seen: whoever waits still gets it
