"""Fake tunnels: a relay of bytes in this process, and programs that print what real ones print."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from harbor_env.exposing import Door

DATA = Path(__file__).parent / "data" / "exposing"


@asynccontextmanager
async def relay(door: Door) -> AsyncIterator[str]:
    """An exposer, `tests.fake_tunnel:relay`: its address is another loopback port, from which all goes to the door."""

    async def join(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            there, back = await asyncio.open_connection(door.local, door.port)
            await asyncio.gather(_pass(reader, back), _pass(there, writer))

    server = await asyncio.start_server(join, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while chunk := await reader.read(2**16):
            writer.write(chunk)
            await writer.drain()
    writer.close()


def fake_program(folder: Path, name: str, script: str) -> Path:
    """An executable in `folder`, to be found on PATH."""
    folder.mkdir(exist_ok=True)
    program = folder / name
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return program
