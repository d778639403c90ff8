"""A batch's sandboxes elsewhere are given an address at which the gateway was seen to answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from starlette.responses import JSONResponse

from harbor_env.cli.order import Order
from harbor_env.cli.run import exposed
from harbor_env.cli.way import check_way
from harbor_env.errors import UsageError
from harbor_env.exposing import Door
from harbor_env.rollout import GatewayAddress
from harbor_env.server.listening import beside, bind, url_of
from harbor_env.serving_gateway import EngineFlags
from tests.serving import serving


@asynccontextmanager
async def fake_tunnel(door: Door) -> AsyncIterator[str]:
    """An exposer whose way out is another name of this machine."""
    yield f"http://localhost:{door.port}"


async def test_a_sandbox_elsewhere_is_given_the_exposed_address_and_a_local_one_is_not(tmp_path: Path) -> None:
    order = Order(EngineFlags(), ("h",), tmp_path, sandbox="e2b", expose="tests.test_run:fake_tunnel")
    async with serving(tmp_path / "data") as served:
        address = GatewayAddress(served.url)
        async with exposed(order, address) as seen:
            assert seen == replace(address, public=served.url.replace("127.0.0.1", "localhost"))
        async with exposed(replace(order, sandbox="local"), address) as seen:
            assert seen == address


async def test_another_server_at_the_exposed_address_is_not_taken_for_the_gateway(tmp_path: Path) -> None:
    async with serving(tmp_path / "own") as own, serving(tmp_path / "other") as other:
        address = GatewayAddress(own.url)
        await check_way(own.url, address, within=0.5)
        with pytest.raises(UsageError, match="another server answers"):
            await check_way(other.url, address, within=0.5)
        with bind("127.0.0.1", 0) as bound:
            with pytest.raises(UsageError, match="does not answer"):
                await check_way(url_of(bound), address, within=0.5)
            async with beside(JSONResponse({"status": "ok"}), bound):
                with pytest.raises(UsageError, match="another server answers"):
                    await check_way(url_of(bound), address, within=0.5)
