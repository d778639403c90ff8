"""An environment server on a loopback port, over a gateway with a fake engine, for as long as a test needs one."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import uvicorn
from websockets.exceptions import ConnectionClosed

from harbor_env.client import HarborEnv
from harbor_env.models import HarborAction
from harbor_env.server.app import create_app, uvicorn_config
from harbor_env.server.backend import Backend
from harbor_env.server.settings import ServerConfig
from harbor_env.serving_gateway import EngineFlags
from tests.fake_proxy import FakeProxy, proxying
from tests.serving import FakeEngine, Served, serving
from tests.waiting import until

TINY = "tests.tiny_harness:TINY"
ACTION = HarborAction(harness=TINY)


@dataclass(frozen=True, slots=True)
class Environments:
    """A running environment server: its url, what its episodes share, the gateway below it, and the way there."""

    url: str
    backend: Backend
    gateway: Served
    way: FakeProxy

    @property
    def engine(self) -> FakeEngine:
        return self.gateway.engine

    def client(self, **options: Any) -> HarborEnv:
        return HarborEnv(self.url, **{"heartbeat_s": 1.0, **options})


@asynccontextmanager
async def environments(folder: Path, tasks: Path, **settings: Any) -> AsyncIterator[Environments]:
    """Serve the dataset `tasks` with `settings` of `ServerConfig`; everything is closed at the end."""
    async with serving(folder / "gateway", admin_key="gateway-key") as gateway, proxying(gateway.url) as way:
        config = replace(
            ServerConfig(
                engine=EngineFlags(gateway=way.url, admin_key="gateway-key"),
                datasets=(str(tasks),),
                data=folder / "env",
                port=_free_port(),
            ),
            **settings,
        )
        backend = Backend(config)
        server = uvicorn.Server(uvicorn_config(create_app(config, backend), config))
        serve = asyncio.create_task(server.serve())
        try:
            await until(lambda: server.started)
            yield Environments(config.url, backend, gateway, way)
        finally:
            server.should_exit = True
            await serve


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port


async def free(served: Environments, slots: int) -> None:
    """Wait until no rollout runs and `slots` connections fit: what an earlier test left is closed in its own time."""
    await until(lambda: served.backend.pool.busy == 0)
    while not await _fit(served, slots):  # noqa: ASYNC110 - the server frees slots when it will
        await asyncio.sleep(0.1)


async def _fit(served: Environments, slots: int) -> bool:
    async with AsyncExitStack() as stack:
        try:
            for _ in range(slots):
                await (await stack.enter_async_context(served.client())).reset()
        except (RuntimeError, ConnectionClosed):
            return False
    return True
