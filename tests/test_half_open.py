"""Clients that end their side of the connection when they have asked, and clients that are gone: both end it alike."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import orjson
import pytest

from tests.serving import FakeEngine, Served, serving
from tests.waiting import until

ASK = orjson.dumps({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi."}]})
STREAM = ASK.replace(b'"model"', b'"stream":true,"model"')


@asynccontextmanager
async def asked(
    served: Served, *bodies: bytes, version: str = "1.1"
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection on which `bodies` were sent to a session of its own, and nothing was read yet."""
    key = await served.key()
    reader, writer = await asyncio.open_connection("127.0.0.1", served.gateway.config.port)
    for body in bodies:
        head = f"POST /v1/messages HTTP/{version}\r\nhost: x\r\nx-api-key: {key}\r\ncontent-length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
    await writer.drain()
    try:
        yield reader, writer
    finally:
        writer.close()


@pytest.mark.parametrize("body", [ASK, STREAM], ids=["whole", "stream"])
@pytest.mark.parametrize("version", ["1.0", "1.1"])
async def test_a_client_that_only_ended_its_side_gets_its_answer(tmp_path: Path, body: bytes, version: str) -> None:
    engine = FakeEngine()
    engine.gate.clear()
    async with serving(tmp_path, engine) as served, asked(served, body, version=version) as (reader, writer):
        await engine.arrived.wait()
        writer.write_eof()
        for _ in range(100):  # whoever takes it for gone aborts the generation as soon as the end is seen
            await asyncio.sleep(0)
        if version == "1.1":
            interim = await reader.readuntil(b"\r\n\r\n")
            assert interim == b"HTTP/1.1 100 Continue\r\n\r\n"
        engine.gate.set()
        answer = await reader.read()
        interim, _, final = answer.rpartition(b"HTTP/1.1 200 OK")
        assert b"Reply 1." in final
        assert b"connection: close" in final
        assert interim.replace(b"HTTP/1.1 100 Continue\r\n\r\n", b"") == b""
        assert version == "1.1" or not interim
        assert engine.aborted == 0


async def test_requests_sent_ahead_are_all_answered_before_the_connection_ends(tmp_path: Path) -> None:
    async with serving(tmp_path) as served, asked(served, ASK, ASK) as (reader, writer):
        writer.write_eof()
        assert (await reader.read()).count(b"HTTP/1.1 200 OK") == 2


@pytest.mark.parametrize("body", [ASK, STREAM], ids=["whole", "stream"])
async def test_a_client_that_is_gone_is_noticed_and_its_generation_aborted(tmp_path: Path, body: bytes) -> None:
    engine = FakeEngine()
    engine.gate.clear()
    async with serving(tmp_path, engine) as served:
        async with asked(served, body):
            await engine.arrived.wait()
        await until(lambda: engine.aborted > 0)
        assert served.gateway.metrics.calls["messages", "gone"] == 1


async def test_a_client_that_ends_in_the_middle_of_its_request_is_gone(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        key = await served.key()
        reader, writer = await asyncio.open_connection("127.0.0.1", served.gateway.config.port)
        writer.write(
            f"POST /v1/messages HTTP/1.1\r\nhost: x\r\nx-api-key: {key}\r\ncontent-length: 99\r\n\r\n".encode()
        )
        writer.write_eof()
        assert await reader.read() == b""
        writer.close()
        assert served.engine.requests == []
