"""A batch's sandboxes elsewhere are given an address at which the gateway was seen to answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from harbor_env.cli.order import Order
from harbor_env.cli.run import exposed
from harbor_env.exposing import Door
from harbor_env.rollout import GatewayAddress
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
