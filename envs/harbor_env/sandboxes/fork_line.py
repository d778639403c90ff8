"""A line to a fork server: over it sandboxes are given to the server, and it says what came of their commands.

Invariant: on a line nothing is heard of sandboxes that were given on another. When it ends, no further command of its
sandboxes starts warm; those that run go on.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harbor_env.errors import SandboxError
from harbor_env.sandboxes.base import is_mapped
from harbor_env.sandboxes.sandbox import Sandbox

DOOR = "/dev/warm"
"""Where a sandbox's door to its fork server lies inside."""
PACKET = 65536


@dataclass(frozen=True, slots=True)
class Said:
    """What became of one command of a sandbox: it was started warm, or `cold` tells why it was not."""

    cold: str = ""


class Line:
    """One end; the server holds the other.

    `control` is a connected SOCK_SEQPACKET socket, `process` a descriptor of the server's process `pid`, and `user` one
    of the user namespace sandboxes must be in to be entered, None where they have none. All belong to this object.
    """

    def __init__(self, control: socket.socket, process: int, pid: int, user: int | None) -> None:
        self.pid = pid
        self._control = control
        self._process = process
        self._user = user
        self._said: dict[str, list[Said]] = {}

    @property
    def running(self) -> bool:
        """Whether the server's process has not ended; False on a line that was closed."""
        if self._process < 0:
            return False
        poll = select.poll()
        poll.register(self._process, select.POLLIN)
        return not poll.poll(0)

    @property
    def user(self) -> int | None:
        """For `Sandbox.start`."""
        return self._user

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
            self._send(facts, [door.listener, door.life, *door.inner, *cgroups])
        except OSError as error:
            raise SandboxError(f"its cgroups cannot be entered: {error.strerror}") from error
        finally:
            door.close()
            for fd in cgroups:
                os.close(fd)

    def heard(self, sandbox: Sandbox) -> list[Said]:
        """What became of the sandbox's commands since this was asked last."""
        with contextlib.suppress(OSError):
            while data := self._control.recv(PACKET):
                message = json.loads(data)
                self._said.setdefault(message["name"], []).append(Said(message.get("cold", "")))
        return self._said.pop(sandbox.folder.name, [])

    def lend(self, end: socket.socket) -> None:
        """Make `end`, whose other end waits in `answered`, the server's end of a further line.

        Raises SandboxError where the server is gone.
        """
        self._send({"line": True}, [end.fileno()])
        given = [self._process, *([] if self._user is None else [self._user])]
        with contextlib.suppress(OSError):  # whoever wanted it has gone
            socket.send_fds(end, [json.dumps({"pid": self.pid}).encode()], given)

    def _send(self, message: Mapping[str, Any], fds: Sequence[int]) -> None:
        try:
            socket.send_fds(self._control, [json.dumps(message).encode()], list(fds))
        except OSError as error:
            raise SandboxError(f"the fork server does not answer: {error.strerror}") from error

    async def stop(self) -> None:
        """Commands that run go on; no other of this line's sandboxes starts warm."""
        self._control.close()
        for fd in (self._process, self._user):
            if fd is not None and fd >= 0:
                os.close(fd)
        self._process, self._user = -1, None


def answered(control: socket.socket) -> Line:
    """The line at whose other end `lend` or `refuse` has answered; `control` belongs to it.

    Raises SandboxError with the reason of a refusal, EOFError where nobody was there to answer.
    """
    data, fds, _, _ = socket.recv_fds(control, PACKET, 2)
    message = json.loads(data or b"{}")
    if "failed" in message:
        raise SandboxError(message["failed"])
    if not fds:
        raise EOFError
    process, *user = fds
    return Line(control, process, message["pid"], user[0] if user else None)


def refuse(end: socket.socket, why: str) -> None:
    """Say to whoever waits at the other end that there will be no line."""
    with contextlib.suppress(OSError):
        end.send(json.dumps({"failed": why}).encode())
