"""A gateway on a loopback port, with a fake engine behind it, for as long as a test needs one."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import aiohttp
import uvicorn

from harbor_env.config import GatewayConfig
from harbor_env.gateway.app import create_app
from harbor_env.gateway.engine_pool import MakeParts, Parts
from harbor_env.gateway.engines import EngineInfo, EngineRequest
from harbor_env.gateway.rendering import Renderer
from harbor_env.gateway.running import Gateway
from harbor_env.gateway.serve import SERVER
from harbor_env.gateway.types import Generation, Message
from tests.fake_renderer import FakeRenderer
from tests.play import logprobs

Answer = Callable[[EngineRequest], Any]


@dataclass(slots=True)
class FakeEngine:
    """An engine in this process. Answers with `answers` in order (a Message, a Generation or an exception), then text.

    While `gate` is closed it waits there, and counts in `aborted` the generations cancelled while waiting. The request
    numbered `holds_from`, counted from 1, closes the gate before itself.
    """

    answers: list[Message | Generation | Exception] = field(default_factory=list)
    info: EngineInfo = field(default_factory=lambda: EngineInfo("tokens", "fake-model", 10_000))
    down: Exception | None = None
    requests: list[EngineRequest] = field(default_factory=list)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    aborted: int = 0
    holds_from: int = 0
    kind: str = "fake"

    def __post_init__(self) -> None:
        self.gate.set()

    async def probe(self) -> EngineInfo:
        if self.down is not None:
            raise self.down
        return self.info

    async def generate(self, request: EngineRequest) -> Generation:
        self.requests.append(request)
        self.arrived.set()
        if len(self.requests) == self.holds_from:
            self.gate.clear()
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.aborted += 1
            raise
        answer = self.answers.pop(0) if self.answers else Message("assistant", f"Reply {len(self.requests)}.")
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, Generation):
            return answer
        ids = FakeRenderer().compose(answer, ())[: request.sampling.max_tokens]
        return Generation(ids, logprobs(ids), "stop" if ids[-1:] == [5] else "length")

    async def close(self) -> None:
        return None


@dataclass(frozen=True, slots=True)
class Served:
    """A running gateway: `url`, a client whose base is that url and whose key the admin's, if there is one, the engine
    behind it and the app's own state."""

    url: str
    client: aiohttp.ClientSession
    engine: FakeEngine
    gateway: Gateway

    async def open(self, **body: Any) -> dict[str, Any]:
        async with self.client.post("/sessions", json=body) as response:
            assert response.status == 200, await response.text()
            opened: dict[str, Any] = await response.json()
            return opened

    async def key(self, **body: Any) -> str:
        return str((await self.open(**body))["api_key"])

    async def counts(self, key: str) -> dict[str, Any]:
        async with self.client.get(f"/sessions/{key}") as response:
            counts: dict[str, Any] = await response.json()
            return counts


@asynccontextmanager
async def serving(
    data: Path,
    engine: FakeEngine | None = None,
    /,
    *,
    renderer: Renderer | None = None,
    make: MakeParts | None = None,
    **settings: Any,
) -> AsyncIterator[Served]:
    """Serve on a free port with `settings` of `GatewayConfig`; everything is closed at the end.

    `make` makes other parts than the fake engine and renderer.
    """
    engine = engine or FakeEngine()
    listening = socket.create_server(("127.0.0.1", 0))
    config = replace(GatewayConfig(data=data, port=listening.getsockname()[1]), **settings)
    made = Parts(engine, lambda: None, renderer or FakeRenderer())
    started = asyncio.Event()

    async def ready(_: Gateway) -> None:
        started.set()

    app = create_app(config, ready, make or (lambda _: made))
    server = uvicorn.Server(uvicorn.Config(app, **{**SERVER, "timeout_graceful_shutdown": 2}))
    serve = asyncio.create_task(server.serve([listening]))
    await started.wait()
    try:
        headers = {"Authorization": f"Bearer {config.admin_key}"} if config.admin_key else {}
        async with aiohttp.ClientSession(config.url, headers=headers) as client:
            yield Served(config.url, client, engine, app.state.gateway)
    finally:
        server.should_exit = True
        await serve
