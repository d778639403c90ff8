"""A fake harness in a layer of its own, whose modules are slow to import, for tests of warm starts."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from harbor_env.sandboxes.base import Base, host_base
from harbor_env.sandboxes.fork_line import Line
from harbor_env.sandboxes.fork_server import ForkServer, WarmStart
from harbor_env.sandboxes.lending import Wanted
from harbor_env.sandboxes.limits import NO_LIMITS, Enforcement
from harbor_env.sandboxes.sandbox import Root, Sandbox
from harbor_env.sandboxes.warm import shim_layer
from tests.sandbox_world import DATA, bash, where

PYTHON = f"{sys.base_prefix}/bin/python3"
START = WarmStart(("slow_tiny",), "tiny", "tiny_cli:main", PYTHON, "/opt/tiny/tiny")
_SCRIPT = f"#!{PYTHON}\nimport sys\n\nfrom tiny_cli import main\n\nsys.exit(main())\n"


def base() -> Base:
    """The host's programs, and the Python of the tests where those have another."""
    host = host_base(where())
    return replace(host, binds=(*host.binds, (sys.base_prefix, sys.base_prefix)))


def tiny_layer(folder: Path) -> Path:
    home = folder / "tiny-layer/opt/tiny"
    home.mkdir(parents=True)
    for name in ("slow_tiny.py", "tiny_cli.py"):
        (home / name).write_text((DATA.parent / "warm" / name).read_text())
    (home / "tiny").write_text(_SCRIPT)
    (home / "tiny").chmod(0o755)
    command = folder / "tiny-layer/usr/local/bin/tiny"
    command.parent.mkdir(parents=True)
    command.symlink_to("/opt/tiny/tiny")
    return folder / "tiny-layer"


def wanted(folder: Path) -> Wanted:
    """A fork server of the fake harness that `tiny_layer` put into `folder`."""
    return Wanted(where(), base(), (folder / "tiny-layer",), START)


@asynccontextmanager
async def fork_server(folder: Path, start: WarmStart = START) -> AsyncIterator[ForkServer]:
    server = await ForkServer.start(where(), base(), (tiny_layer(folder),), start)
    try:
        yield server
    finally:
        await server.stop()


@asynccontextmanager
async def served(server: Line, folder: Path, limits: Enforcement = NO_LIMITS) -> AsyncIterator[Sandbox]:
    """A sandbox with the fake harness that `server` serves."""
    layers = (folder / "tiny-layer", shim_layer(where(), START))
    running = await Sandbox.start(where(), Root(base(), layers), limits=limits, user=server.user)
    try:
        await server.serve(running)
        yield running
    finally:
        await running.stop()


async def tell(running: Sandbox, command: str = "tiny", **options: Any) -> dict[str, Any]:
    """What the fake harness says of its process."""
    done = await bash(running, command, **options)
    assert done.code == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told
