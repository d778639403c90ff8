"""The one way out of an isolated sandbox: a socket that listens inside and is served here, by the gateway alone.

Invariant: bytes go to the gateway's address and nowhere else, whatever the sandbox asks for.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from dataclasses import dataclass
from urllib.parse import urlsplit

from harbor_env.errors import SandboxError, UsageError
from harbor_env.sandboxes.control import Control

_CHUNK = 1 << 16
_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Address:
    """Where the gateway listens, as both sides name it."""

    host: str
    port: int

    async def resolve(self) -> str:
        """The gateway's IPv4 address, under which it is served inside too. Raises SandboxError."""
        try:
            found = await asyncio.get_running_loop().getaddrinfo(self.host, self.port, family=socket.AF_INET)
        except OSError as error:
            raise SandboxError(f"the gateway's host {self.host} has no IPv4 address: {error.strerror}") from error
        return str(found[0][4][0])


def parse_address(text: str) -> Address:
    """From "host:port" or a URL. Raises UsageError."""
    parts = urlsplit(text if "://" in text else f"//{text}")
    try:
        port = parts.port or _DEFAULT_PORTS.get(parts.scheme)
    except ValueError:
        port = None
    if not parts.hostname or port is None:
        raise UsageError(f"The gateway {text!r} is not an address; give HOST:PORT or http://HOST:PORT.")
    if ":" in parts.hostname:
        raise UsageError(
            f"The gateway {text!r} is an IPv6 address; the local sandbox reaches IPv4 addresses and names."
        )
    return Address(parts.hostname, port)


class Forwarder:
    """Serves a sandbox's gateway socket while open. `close` ends running connections too.

    Beyond `limit` connections at once, further ones are reset: descriptors here are this process's own.
    """

    def __init__(self, gateway: Address, limit: int = 256) -> None:
        self._gateway = gateway
        self._limit = limit
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def open(self, control: Control) -> None:
        """Listen inside the sandbox. Raises SandboxError where its address cannot be had there."""
        if self._server is None:
            listener = await control.listen(await self._gateway.resolve(), self._gateway.port)
            self._server = await asyncio.start_server(self._accept, sock=listener, limit=_CHUNK)

    async def close(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.close()
        for task in self._connections:
            task.cancel()
        if self._connections:
            await asyncio.wait(self._connections)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Not a coroutine: asyncio reports one it was given as failed when it is cancelled, as `close` does."""
        if len(self._connections) >= self._limit:
            _reset(writer)
            return
        task = asyncio.create_task(self._join(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Broken connections are what harnesses make when they are killed; anything else is a fault and is raised."""
        self._connections.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not _is_broken_connection(error):
            raise error

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends, whole = [writer], False
        try:
            out_reader, out_writer = await asyncio.open_connection(self._gateway.host, self._gateway.port, limit=_CHUNK)
            ends.append(out_writer)
            async with asyncio.TaskGroup() as both:
                both.create_task(_pump(reader, out_writer))
                both.create_task(_pump(out_reader, writer))
            whole = True
        finally:
            for end in ends:
                end.close() if whole else _reset(end)


def _is_broken_connection(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return error.subgroup(lambda one: not isinstance(one, OSError | BaseExceptionGroup)) is None
    return isinstance(error, OSError)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy one direction to its end, then pass the end on; waiting for the receiver holds back the sender."""
    while chunk := await reader.read(_CHUNK):
        writer.write(chunk)
        await writer.drain()
    with contextlib.suppress(OSError):
        writer.write_eof()


def _reset(writer: asyncio.StreamWriter) -> None:
    """End a connection as broken, so that the other side does not take what it got for everything."""
    sock = writer.get_extra_info("socket")
    if sock is not None:
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    writer.transport.abort()


def check_allowlist(hosts: list[str], gateway: Address | None) -> None:
    """Refuse what cannot be kept: the local sandbox lets a command reach the gateway or nothing."""
    others = [host for host in hosts if gateway is None or host != gateway.host]
    if not others:
        return
    reachable = f"only the gateway at {gateway.host}" if gateway else "nothing, because no gateway was given"
    raise SandboxError(
        f"the local sandbox cannot allow {', '.join(others)}: with an allowlist it reaches {reachable}; "
        "use network_mode 'public', or another sandbox"
    )
