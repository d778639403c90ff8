"""Run a gateway: `openenv-harbor gateway`, or this module as a child process with its settings in the environment.

When ready it prints one JSON line on standard output: its url, and the engine's level where it was reached.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import sys
from dataclasses import replace
from typing import Any

import orjson
import uvicorn
from uvicorn.supervisors import Multiprocess

from harbor_env.config import GatewayConfig
from harbor_env.errors import EngineError, HarborEnvError, UsageError
from harbor_env.gateway.app import create_app
from harbor_env.gateway.garbage import search_only_the_young
from harbor_env.gateway.half_open import HalfOpenProtocol
from harbor_env.gateway.parts import make_parts
from harbor_env.gateway.process import SETTINGS, die_with_parent, packed, unpacked
from harbor_env.gateway.running import Gateway
from harbor_env.gateway.store import Store

SERVER: dict[str, Any] = {
    "http": HalfOpenProtocol,
    "ws": "none",
    "proxy_headers": False,
    "log_level": "warning",
    "access_log": False,
    "timeout_keep_alive": 120,
    "timeout_graceful_shutdown": 5,
    "backlog": 4096,
}
"""How uvicorn serves every gateway."""


def serve(config: GatewayConfig) -> None:
    """Serve until stopped. UsageError for settings that cannot be served."""
    config.check()
    make = make_parts(config)
    make(None)  # a wrong engine or tokenizer is said here, before anything listens; so is a store that cannot be used
    Store.open(config.data).close()
    listening = _listen(config.host, config.port)
    config = replace(config, port=listening.getsockname()[1])
    os.environ[SETTINGS] = packed(config)
    if config.workers > 1:
        announce(config, {})
        workers = uvicorn.Config("harbor_env.gateway.serve:worker_app", factory=True, workers=config.workers, **SERVER)
        Multiprocess(workers, [listening]).run()
        return

    async def ready(gateway: Gateway) -> None:
        facts = await _reach_engine(gateway)
        search_only_the_young()
        announce(config, facts)

    uvicorn.Server(uvicorn.Config(lambda: create_app(config, ready, make), factory=True, **SERVER)).run([listening])


async def _reach_engine(gateway: Gateway) -> dict[str, Any]:
    """Probe the engine once at the start; a gateway whose engine is still down serves, and probes again later."""
    try:
        opened = await gateway.engines.get(None)
    except EngineError as error:
        print(f"The engine was not reached yet: {error}", file=sys.stderr)
        return {"level": None, "engine": str(error)}
    return opened.facts() | ({"proof": opened.renderer.proof} if opened.renderer else {})


def announce(config: GatewayConfig, facts: dict[str, Any]) -> None:
    print(orjson.dumps({"url": config.url, **facts}).decode(), flush=True)


def worker_app() -> Any:
    """The app of one worker process, from the settings its parent left in the environment; it ends with its parent."""
    if sys.platform == "linux":
        die_with_parent()
    parent = multiprocessing.parent_process()
    if parent is not None and not parent.is_alive():
        raise SystemExit("The gateway this worker belongs to has died.")
    config = unpacked(os.environ[SETTINGS])
    make = make_parts(config)
    make(None)
    search_only_the_young()
    return create_app(config, make=make)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        raise UsageError(f"This machine cannot listen on {host} port {port}: {error.strerror}.") from error
    listening.set_inheritable(True)
    listening.listen(4096)
    return listening


def main() -> int:
    if SETTINGS not in os.environ:
        print(f"A child process reads its settings from ${SETTINGS}: use `openenv-harbor gateway`.", file=sys.stderr)
        return 2
    try:
        serve(unpacked(os.environ[SETTINGS]))
    except HarborEnvError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
