"""The environment server as an ASGI app, on openenv's own: reset, step, state, the Task API, and the gateway below it.

`uvicorn harbor_env.server.app:app` serves with settings from environment variables; `openenv-harbor serve` from flags.
"""

from __future__ import annotations

import harbor_env.light_openenv  # noqa: F401  # first: it keeps openenv's web interface out

# isort: split
import asyncio
import os
import socket
import sys
from contextlib import AbstractAsyncContextManager, AsyncExitStack, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import uvicorn
from fastapi import FastAPI
from openenv.core.env_server.http_server import HTTPEnvServer
from openenv.core.env_server.types import ConcurrencyConfig

from harbor_env import survey
from harbor_env.errors import HarborEnvError, UsageError
from harbor_env.exposing import Door, find_exposer
from harbor_env.keys import forget_keys
from harbor_env.models import HarborAction, HarborObservation, HarborState
from harbor_env.server.backend import Backend
from harbor_env.server.capture_proxy import CaptureProxy
from harbor_env.server.connections import CURRENT, Connections
from harbor_env.server.environment import HarborEnvironment
from harbor_env.server.guard import Guard
from harbor_env.server.listening import SETTINGS, Server, beside, bind, url_of
from harbor_env.server.settings import ServerConfig, from_environment, own_version

NAME = "harbor_env"


class EpisodeServer(HTTPEnvServer):  # type: ignore[misc]
    """openenv's server, whose reaper of idle episodes hears of steps that run."""

    async def _create_session(self) -> tuple[str, Any]:
        session_id, environment = await super()._create_session()
        connection = CURRENT.get()
        if connection is not None:
            connection.touch = partial(self._update_session_activity, session_id)
        return session_id, environment


def create_app(config: ServerConfig, backend: Backend | None = None) -> FastAPI:
    """The app; its start opens `backend`, the gateway with it, unless that has been done."""
    shared = backend or Backend(config)
    app = FastAPI(title="openenv-harbor", version=own_version(), description="Harbor tasks as an OpenEnv environment.")
    server = EpisodeServer(
        partial(HarborEnvironment, shared),
        HarborAction,
        HarborObservation,
        concurrency_config=ConcurrencyConfig(max_concurrent_envs=config.envs, session_timeout=2 * config.idle),
        env_name=NAME,
        state_cls=HarborState,
    )
    proxy = CaptureProxy(shared)
    app.router.on_startup += [shared.start, proxy.start]
    app.router.on_shutdown += [proxy.close, shared.close]
    if config.capture:
        app.mount(config.capture, proxy)
    app.add_api_route("/info", partial(_info, shared), tags=["Environment Info"])
    server.register_routes(app)
    app.add_middleware(Connections, idle=config.idle)
    app.add_middleware(Guard, key=config.admin_key)
    app.state.backend = shared
    return app


async def _info(backend: Backend) -> dict[str, Any]:
    """What a client can choose from, and how busy the server is."""
    return {
        "engine": await backend.engine_facts(),
        "splits": {name: len(tasks) for name, tasks in backend.catalog.splits.items()},
        "harnesses": survey.harnesses(),
        "sandboxes": await asyncio.to_thread(survey.sandboxes, os.environ, Path.home()),
        "envs": backend.config.envs,
        "running": backend.pool.busy,
    }


async def serve(config: ServerConfig) -> None:
    """Serve until stopped. Raises what keeps the gateway from starting before anything listens.

    When it listens, and its gateway can be called from where it was asked to, it prints one JSON line: its `url`, the
    `gateway` below it or at its own port, and `public`, the gateway's address for sandboxes elsewhere, "" without one.
    """
    config.check()
    forget_keys()
    backend = Backend(config)
    async with AsyncExitStack() as opened:
        front = opened.enter_context(bind(config.host, config.port))
        door = front if config.gateway_port is None else opened.enter_context(bind(*config.door))
        way_out = _way_out(config, door)
        opened.push_async_callback(backend.close)
        await backend.start()

        async def ready() -> None:
            if door is not front:
                proxy = await opened.enter_async_context(CaptureProxy(backend))
                await opened.enter_async_context(beside(proxy, door))
            public = await opened.enter_async_context(way_out)
            backend.outside.url = f"{public}{config.capture}" if public else ""
            gateway = config.capture or url_of(door)
            line = {"url": url_of(front), "gateway": gateway, "public": backend.outside.url}
            print(orjson.dumps(line).decode(), flush=True)

        await Server(uvicorn_config(create_app(config, backend), config), ready).serve([front])


def _way_out(config: ServerConfig, door: socket.socket) -> AbstractAsyncContextManager[str]:
    """Whose block has the address at which the world reaches `door`, "" where nothing asks for one."""
    if not config.expose and not config.public_url:
        return nullcontext("")
    host, port = door.getsockname()[:2]
    return find_exposer(config.expose or "direct")(Door(host, port, config.data / "exposed", config.public_url))


def uvicorn_config(app: FastAPI, config: ServerConfig) -> uvicorn.Config:
    """How the environment server is served: pings notice a client that is gone, however long its step runs."""
    return uvicorn.Config(
        app,
        host=config.host,
        port=config.port,
        ws_ping_interval=config.ping,
        ws_ping_timeout=2 * config.ping,
        ws_max_size=16 * 2**20,
        **SETTINGS,
    )


def main() -> None:
    """The `server` command: settings from environment variables."""
    try:
        asyncio.run(serve(from_environment(os.environ)))
    except HarborEnvError as error:
        sys.exit(f"Error: {error}")


def __getattr__(name: str) -> FastAPI:
    """`app`, made when it is asked for: importing this module starts nothing."""
    if name != "app":
        raise AttributeError(name)
    config = from_environment(os.environ)
    config.check()
    forget_keys()
    if config.expose or config.gateway_port is not None:
        raise UsageError("An app has one port and no tunnel: start it with `openenv-harbor serve` or `server`.")
    return create_app(config)


if __name__ == "__main__":
    main()
