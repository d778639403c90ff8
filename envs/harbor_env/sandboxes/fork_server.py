"""A fork server as its owner sees it: a process that has imported a harness and is forked for each of its commands.

Invariant: the server lives in a sandbox of its own, without a network, on the layers it serves; it is told of other
sandboxes how to enter them and nothing of what runs there. It ends with its owner.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from harbor_env.errors import SandboxError
from harbor_env.sandboxes.base import Base, is_mapped
from harbor_env.sandboxes.control import Door
from harbor_env.sandboxes.fork_line import DOOR, PACKET, Line
from harbor_env.sandboxes.places import Places
from harbor_env.sandboxes.sandbox import Bind, Root, Sandbox

IMPORTED_WITHIN = 120.0
"""Seconds a harness's modules may take."""
_CODE = "/dev/warm-code"
"""Where the server's own code lies in its sandbox."""
_SOURCE = Path(__file__).parent
_BOOT = "import sys; sys.path.append(sys.argv[1]); from inside.enter import main; main()"


@dataclass(frozen=True, slots=True)
class WarmStart:
    """What a fork server needs to know of a harness: `modules` to import, and what its `command` calls, `entry`.

    `python` runs it and `cold` is the command's own script, both by their paths in the layer. `env` is what the
    modules find in the environment when they are imported.
    """

    modules: tuple[str, ...]
    command: str
    entry: str
    python: str
    cold: str
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Process:
    popen: subprocess.Popen[bytes]
    control: socket.socket
    user: int | None
    log: int


class ForkServer(Line):
    """Made by `await ForkServer.start(...)`: the first line to it, whose end is the server's."""

    def __init__(self, home: Sandbox, process: _Process) -> None:
        pid = process.popen.pid
        super().__init__(process.control, os.pidfd_open(pid), pid, process.user)
        self._home = home
        self._popen = process.popen
        self._log = process.log

    @classmethod
    async def start(cls, where: Places, base: Base, layers: tuple[Path, ...], warm: WarmStart) -> ForkServer:
        """Raises SandboxError where the modules cannot be imported, or not forked once they are."""
        code = Bind(str(_SOURCE / "inside"), f"{_CODE}/inside")
        home = await Sandbox.start(where, Root(base, layers, (code,), "warm"))
        try:
            door = await home.control.door(DOOR)
            try:
                process = _spawn(door, base, warm)
            finally:
                door.close()
            server = cls(home, process)
        except BaseException:
            await asyncio.shield(home.stop())
            raise
        try:
            said = await asyncio.to_thread(server._hear, IMPORTED_WITHIN)
            if "ready" not in said:
                raise SandboxError(said.get("failed") or server._last_words())
        except BaseException:
            process.popen.kill()
            await asyncio.shield(server.stop())
            raise
        return server

    def _hear(self, within: float) -> dict[str, Any]:
        self._control.settimeout(within)
        try:
            heard: dict[str, Any] = json.loads(self._control.recv(PACKET) or b"{}")
        except TimeoutError:
            return {"failed": f"its modules were not imported within {within:.0f} seconds"}
        except OSError:
            return {}
        self._control.setblocking(False)
        return heard

    def _last_words(self) -> str:
        lines = os.pread(self._log, 1 << 16, 0).decode(errors="replace").split("\n")
        said = next((line for line in reversed(lines) if line.strip()), "")
        return f"the fork server ended before it was ready: {said}"

    async def stop(self) -> None:
        """Commands that run go on; no other starts warm."""
        await super().stop()
        os.close(self._log)
        self._popen.kill()  # it has nothing to finish, and may have been stopped
        await asyncio.to_thread(self._popen.wait)
        await self._home.stop()


def _spawn(door: Door, base: Base, warm: WarmStart) -> _Process:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    _, *others = door.inner  # all but the process namespace, which the server stays out of
    namespaces = [*([door.user] if is_mapped() else []), *others, door.network]
    order = json.dumps({**asdict(warm), "code": _CODE})
    arguments = [str(_SOURCE), str(theirs.fileno()), ",".join(map(str, namespaces)), order]
    env = {"PATH": base.path, "HOME": "/root", "USER": "root", "LOGNAME": "root", **warm.env}
    log = os.memfd_create("fork server's log")
    try:
        with theirs:
            popen = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _BOOT, *arguments],
                env=env,
                pass_fds=(theirs.fileno(), *namespaces),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
            )
    except OSError as error:
        ours.close()
        os.close(log)
        raise SandboxError(f"no process for a fork server: {error.strerror}") from error
    return _Process(popen, ours, os.dup(door.user) if is_mapped() else None, log)
