"""The owner's end of a fork server: a process that has imported a harness and is forked for each of its commands.

Invariant: the server lives in a sandbox of its own, without a network, on the layers it serves; it is told of other
sandboxes how to enter them and nothing of what runs there. It ends with its owner.
"""

from __future__ import annotations

import asyncio
import contextlib
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
from harbor_env.sandboxes.places import Places
from harbor_env.sandboxes.sandbox import Bind, Root, Sandbox

IMPORTED_WITHIN = 120.0
"""Seconds a harness's modules may take."""
DOOR = "/dev/warm"
"""Where a sandbox's door to its fork server lies inside."""
_CODE = "/dev/warm-code"
"""Where the server's own code lies in its sandbox."""
_SOURCE = Path(__file__).parent
_BOOT = "import sys; sys.path.append(sys.argv[1]); from inside.enter import main; main()"
_PACKET = 65536


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
class Said:
    """What became of one command of a sandbox: it was started warm, or `cold` tells why it was not."""

    cold: str = ""


@dataclass(frozen=True, slots=True)
class _Process:
    popen: subprocess.Popen[bytes]
    control: socket.socket
    log: int


class ForkServer:
    """Made by `await ForkServer.start(...)`."""

    def __init__(self, home: Sandbox, door: Door, process: _Process) -> None:
        self._home = home
        self._door = door
        self._process = process.popen
        self._control = process.control
        self._log = process.log
        self._said: dict[str, list[Said]] = {}

    @classmethod
    async def start(cls, where: Places, base: Base, layers: tuple[Path, ...], warm: WarmStart) -> ForkServer:
        """Raises SandboxError where the modules cannot be imported, or not forked once they are."""
        code = Bind(str(_SOURCE / "inside"), f"{_CODE}/inside")
        home = await Sandbox.start(where, Root(base, layers, (code,), "warm"))
        try:
            door = await home.control.door(DOOR)
            process = _spawn(door, base, warm)
        except BaseException:
            await asyncio.shield(home.stop())
            raise
        server = cls(home, door, process)
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
            heard: dict[str, Any] = json.loads(self._control.recv(_PACKET) or b"{}")
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

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    @property
    def user(self) -> int | None:
        """The user namespace sandboxes must be in to be entered, where they have any."""
        return self._door.user if is_mapped() and self.running else None

    async def serve(self, sandbox: Sandbox) -> None:
        """From here on the sandbox's commands may start warm. Raises SandboxError where the server is gone."""
        limits = sandbox.limits
        name = sandbox.folder.name
        facts = {"name": name, "limits": dict(limits.rlimits), "cpus": list(limits.cpus), "mapped": is_mapped()}
        door = await sandbox.control.door(DOOR)
        cgroups: list[int] = []
        try:
            for path in limits.cgroups:
                cgroups.append(os.open(f"{path}/cgroup.procs", os.O_WRONLY | os.O_CLOEXEC))
            fds = [door.listener, door.life, *door.inner, *cgroups]
            socket.send_fds(self._control, [json.dumps(facts).encode()], fds)
        except OSError as error:
            raise SandboxError(f"the fork server does not answer: {error.strerror}") from error
        finally:
            door.close()
            for fd in cgroups:
                os.close(fd)

    def heard(self, sandbox: Sandbox) -> list[Said]:
        """What became of the sandbox's commands since this was asked last."""
        with contextlib.suppress(OSError):
            while data := self._control.recv(_PACKET):
                message = json.loads(data)
                self._said.setdefault(message["name"], []).append(Said(message.get("cold", "")))
        return self._said.pop(sandbox.folder.name, [])

    async def stop(self) -> None:
        """Commands that run go on; no other starts warm."""
        self._control.close()
        self._door.close()
        os.close(self._log)
        await asyncio.to_thread(self._process.wait)
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
    return _Process(popen, ours, log)
