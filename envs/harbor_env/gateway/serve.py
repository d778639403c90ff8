"""Run a gateway: `python -m harbor_env.gateway.serve --help`.

When ready it prints one JSON line on standard output: its url, and the engine's level where it was reached.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import orjson
import uvicorn
from uvicorn.supervisors import Multiprocess

from harbor_env.config import GatewayConfig
from harbor_env.errors import EngineError, HarborEnvError, UsageError
from harbor_env.gateway.app import create_app
from harbor_env.gateway.parts import make_parts
from harbor_env.gateway.running import Gateway
from harbor_env.gateway.store import Store

ENVIRONMENT = "OPENENV_HARBOR_GATEWAY"
"""Carries the settings from the parent to worker processes, as JSON."""
ADMIN_KEY = "OPENENV_HARBOR_ADMIN_KEY"
LLM_API_KEY = "OPENENV_LLM_API_KEY"
"""Variables that bring keys: what stands on a command line, every user of the machine can read."""


def serve(config: GatewayConfig) -> None:
    """Serve until stopped. UsageError for settings that cannot be served."""
    config.check()
    make = make_parts(config)
    make(None)  # a wrong engine or tokenizer is said here, before anything listens; so is a store that cannot be used
    Store.open(config.data).close()
    listening = _listen(config.host, config.port)
    config = replace(config, port=listening.getsockname()[1])
    os.environ[ENVIRONMENT] = orjson.dumps(asdict(config), default=str).decode()
    settings: dict[str, Any] = {
        "factory": True,
        "log_level": "warning",
        "access_log": False,
        "timeout_keep_alive": 120,
        "backlog": 4096,
        "timeout_graceful_shutdown": 5,
        "ws": "none",
    }
    if config.workers > 1:
        announce(config, {})
        workers = uvicorn.Config("harbor_env.gateway.serve:worker_app", workers=config.workers, **settings)
        Multiprocess(workers, [listening]).run()
        return

    async def ready(gateway: Gateway) -> None:
        announce(config, await _reach_engine(gateway))

    uvicorn.Server(uvicorn.Config(lambda: create_app(config, ready, make), **settings)).run([listening])


async def _reach_engine(gateway: Gateway) -> dict[str, Any]:
    """Probe the engine once at the start; a gateway whose engine is still down serves, and probes again later."""
    try:
        opened = await gateway.engines.get(None)
    except EngineError as error:
        print(f"The engine was not reached yet: {error}", file=sys.stderr)
        return {"level": None, "engine": str(error)}
    renderer = opened.renderer
    facts = {"level": opened.info.level, "model": opened.info.model, "window": opened.info.max_model_len}
    facts |= {"route": opened.info.route, "tito": renderer.tito if renderer else None}
    return facts | ({"renderer": renderer.name, "proof": renderer.proof} if renderer else {})


def announce(config: GatewayConfig, facts: dict[str, Any]) -> None:
    print(orjson.dumps({"url": config.url, **facts}).decode(), flush=True)


def worker_app() -> Any:
    """The app of one worker process, from the settings its parent left in the environment."""
    values = orjson.loads(os.environ[ENVIRONMENT])
    return create_app(GatewayConfig(**{**values, "data": Path(values["data"])}))


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


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(description="Run the token-native gateway alone.")
    default = GatewayConfig()
    for name in ("llm-url", "engine", "model", "tokenizer", "renderer", "host", "public-url"):
        found.add_argument(f"--{name}", default=getattr(default, name.replace("-", "_")))
    for name, variable in (("admin-key", ADMIN_KEY), ("llm-api-key", LLM_API_KEY)):
        found.add_argument(f"--{name}", default=os.environ.get(variable, ""), help=f"default: ${variable}")
    for name in ("port", "workers", "window"):
        found.add_argument(f"--{name}", type=int, default=getattr(default, name))
    found.add_argument("--data", type=Path, default=default.data)
    found.add_argument("--template-kwargs", type=orjson.loads, default={}, help="JSON object")
    return found


def main() -> int:
    try:
        serve(GatewayConfig(**vars(parser().parse_args())))
    except HarborEnvError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
