"""The gateway as a child process on loopback, for programs that bring their own: started, awaited, stopped.

Invariant: the child dies with this process, however that ends. Its control routes need a key made here, because agents
in a sandbox reach the same port.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import secrets
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import orjson

from harbor_env.config import GatewayConfig
from harbor_env.errors import UsageError

SETTINGS = "OPENENV_HARBOR_GATEWAY"
"""The variable that brings a gateway process its settings, keys among them: command lines are read by everyone."""
READY_WITHIN = 300.0
"""Seconds until the ready line: an engine may have a model to load first."""
STOP_WITHIN = 10.0

_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class RunningGateway:
    """A gateway that answered. `ready` is its ready line: url, level, tito."""

    url: str
    admin_key: str
    ready: dict[str, Any]


def packed(config: GatewayConfig) -> str:
    """Settings as one line, for the environment of a child."""
    return orjson.dumps(asdict(config), default=str).decode()


def unpacked(line: str) -> GatewayConfig:
    """What `packed` made of the settings."""
    values = orjson.loads(line)
    return GatewayConfig(**{**values, "data": Path(values["data"])})


@asynccontextmanager
async def gateway_process(
    config: GatewayConfig, log: Path, *, port: int = 0, admin_key: str = ""
) -> AsyncIterator[RunningGateway]:
    """Run `gateway.serve` as `config` says, on a free loopback port, for as long as the block lasts.

    With the `port` and `admin_key` of one that died, whoever talked to that one can talk to this one. What it prints
    goes to `log`. Raises UsageError with the gateway's own last words where it does not start.
    """
    admin_key = admin_key or f"ak-{secrets.token_hex(16)}"
    config = replace(config, host="127.0.0.1", port=port, admin_key=admin_key)
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as errors:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "harbor_env.gateway.serve"),
            env={**os.environ, SETTINGS: packed(config)},
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            stdin=asyncio.subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=die_with_parent if sys.platform == "linux" else None,
        )
    try:
        ready = await _ready_line(process, log)
        yield RunningGateway(ready["url"], admin_key, ready)
    finally:
        await stop(process)


async def _ready_line(process: asyncio.subprocess.Process, log: Path) -> dict[str, Any]:
    if process.stdout is None:
        raise RuntimeError("the gateway was started without a pipe")
    try:
        async with asyncio.timeout(READY_WITHIN):
            while line := await process.stdout.readline():
                if line.lstrip().startswith(b"{"):
                    ready: dict[str, Any] = orjson.loads(line)
                    return ready
    except TimeoutError:
        raise UsageError(f"The gateway was not ready within {READY_WITHIN:.0f} s; its log is {log}.") from None
    raise UsageError(_last_words(log) or f"The gateway ended at once; its log is {log}.")


async def stop(process: asyncio.subprocess.Process, within: float = STOP_WITHIN) -> None:
    """End a child: SIGTERM, and SIGKILL where it has not gone `within` seconds."""
    if process.returncode is not None:
        return
    process.send_signal(signal.SIGTERM)
    try:
        await asyncio.wait_for(process.wait(), within)
    except TimeoutError:
        process.kill()
        await process.wait()


def _last_words(log: Path) -> str:
    words = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return words[-1] if words else ""


def die_with_parent() -> None:
    """For a child, best between fork and exec: it gets SIGTERM when the thread that started it ends. Linux only."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
