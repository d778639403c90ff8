"""The gateway behind a batch: its settings and keys, and which running one it may be."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from harbor_env.config import GatewayConfig
from harbor_env.errors import GatewayError, UsageError
from harbor_env.gateway.process import gateway_process, packed, unpacked
from harbor_env.gateway_client import GatewayClient
from harbor_env.serving_gateway import EngineFlags, serving_gateway
from tests.serving import serving
from tests.tokenizers import qwen3_dir

POLICY = "scripted:tests.policies:is_empty"


def test_settings_come_back_equal_from_the_environment() -> None:
    config = GatewayConfig(llm_url="http://x", data=Path("a b"), template_kwargs={"enable_thinking": False}, workers=3)
    assert unpacked(packed(config)) == config


def command_lines() -> list[list[str]]:
    """Those of every process below this one."""
    return [process.cmdline() for process in psutil.Process().children(recursive=True)]


async def test_a_gateway_of_our_own_has_a_key_that_is_on_no_command_line(tmp_path: Path) -> None:
    config = GatewayConfig(
        engine=POLICY, tokenizer=str(qwen3_dir()), data=tmp_path, template_kwargs={"enable_thinking": False}
    )
    async with gateway_process(config, tmp_path / "log") as running:
        assert not any(running.admin_key in word for line in command_lines() for word in line)
        async with GatewayClient(running.url, running.admin_key) as client:
            assert (await client.health())["control"] == "key"
            opened = await client.open({})
            assert opened.level == "tokens"


async def test_a_running_gateway_whose_control_routes_are_open_is_refused_since_agents_reach_them(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path / "open") as served, serving(tmp_path / "keyed", admin_key="k") as keyed:
        with pytest.raises(UsageError, match="--admin-key"):
            async with serving_gateway(EngineFlags(gateway=served.url, admin_key="k"), tmp_path, print):
                pass
        async with serving_gateway(EngineFlags(gateway=keyed.url, admin_key="k"), tmp_path, print) as address:
            assert address.url == keyed.url


@pytest.mark.parametrize("host", ["", "0.0.0.0", "192.0.2.1", "example.org"])
def test_an_address_that_needs_a_key_or_is_none_is_told_so_by_name(host: str) -> None:
    with pytest.raises(UsageError, match=host or "--host is empty"):
        GatewayConfig(host=host).check()


async def test_a_server_that_is_no_gateway_is_told_so(tmp_path: Path) -> None:
    async with answering(b"<html>Welcome</html>") as url:
        with pytest.raises(GatewayError, match="no gateway"):
            async with serving_gateway(EngineFlags(gateway=url), tmp_path, print):
                pass


@asynccontextmanager
async def answering(body: bytes) -> AsyncIterator[str]:
    """A web server that gives `body` to whoever asks for anything."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
