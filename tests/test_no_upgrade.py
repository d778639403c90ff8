"""Clients that offer another protocol beside their request: HTTP/2 in the clear, or a websocket."""

from __future__ import annotations

import asyncio
from pathlib import Path

import orjson
import pytest

from tests.serving import serving

ASK = orjson.dumps({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi."}]})
H2C = "connection: keep-alive, Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAAP__\r\n"
WEBSOCKET = "connection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n"
LENGTH = f"content-length: {len(ASK)}\r\n"
CHUNKS = b"%x\r\n%b\r\n%x\r\n%b\r\n0\r\n\r\n" % (9, ASK[:9], len(ASK) - 9, ASK[9:])


@pytest.mark.parametrize("offer", [H2C, WEBSOCKET], ids=["h2c", "websocket"])
@pytest.mark.parametrize(("size", "body"), [(LENGTH, ASK), ("transfer-encoding: chunked\r\n", CHUNKS)])
@pytest.mark.parametrize("apart", [False, True], ids=["at once", "in pieces"])
async def test_a_request_with_an_offer_is_answered_body_and_all(
    tmp_path: Path, offer: str, size: str, body: bytes, apart: bool
) -> None:
    async with serving(tmp_path) as served:
        key = await served.key()
        reader, writer = await asyncio.open_connection("127.0.0.1", served.gateway.config.port)
        head = f"POST /v1/messages HTTP/1.1\r\nhost: x\r\nx-api-key: {key}\r\n{size}"
        offered, plain = f"{head}{offer}\r\n".encode() + body, f"{head}\r\n".encode() + body
        for request in (offered, plain):
            for piece in [request[i : i + 40] for i in range(0, len(request), 40)] if apart else [request]:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)
        writer.write_eof()
        answers = await reader.read()
        writer.close()
        assert answers.count(b"HTTP/1.1 200 OK") == 2
        assert (await served.counts(key))["turns"] == 2


async def test_a_tunnel_is_refused(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.gateway.config.port)
        writer.write(b"CONNECT x:443 HTTP/1.1\r\nhost: x:443\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 400")
        writer.close()
