"""The owner's end of the process that starts keepers: one per owning process, started when first needed.

Invariant: what is asked for here is a keeper with its own descriptors; neither threads nor event loops matter to it.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import socket
import sys
import threading
from pathlib import Path

from harbor_env.errors import SandboxError

_BOOT = "import sys; sys.path.append(sys.argv.pop(1)); from inside.starter import main; main()"
_SOCKET = 3
_guard = threading.Lock()
_running: tuple[int, socket.socket] | None = None


class Keeper:
    """A keeper that was asked for. Closing its life line, or this process's end, ends it and its sandbox."""

    def __init__(self, life: int, done: int, log: int) -> None:
        self._life = life
        self._done = done
        self._log = log
        self.said = ""
        """The last line the keeper wrote of a failure, once it has ended."""
        self._gone: asyncio.Event | None = None

    def let_go(self) -> None:
        if self._life >= 0:
            os.close(self._life)
            self._life = -1

    async def ended(self) -> None:
        """Wait until the sandbox's processes, mounts and cgroups are gone."""
        if self._gone is None:
            self._gone = asyncio.Event()
            loop = asyncio.get_running_loop()
            loop.add_reader(self._done, self._heard, loop, self._gone)
        await self._gone.wait()

    def _heard(self, loop: asyncio.AbstractEventLoop, gone: asyncio.Event) -> None:
        loop.remove_reader(self._done)
        lines = os.pread(self._log, 1 << 16, 0).decode(errors="replace").split("\n")
        self.said = next((line for line in reversed(lines) if line.strip()), "")
        os.close(self._log)
        os.close(self._done)
        gone.set()


def start_keeper(folder: Path, control: socket.socket, lock: int, user: int | None = None) -> Keeper:
    """Ask for a keeper of the sandbox in `folder`, whose lock file says all about it; `user` as in `Sandbox.start`."""
    life_read, life_write = os.pipe()
    done_read, done_write = os.pipe()
    log = os.memfd_create("keeper's log")
    given = [control.fileno(), life_read, done_write, lock, log, *([] if user is None else [user])]
    try:
        _ask(str(folder).encode(), given)
    except BaseException:
        for fd in (life_write, done_read, log):
            os.close(fd)
        raise
    finally:
        os.close(life_read)
        os.close(done_write)
    return Keeper(life_write, done_read, log)


def _ask(request: bytes, fds: list[int]) -> None:
    global _running
    with _guard:
        if _running is None or _running[0] != os.getpid():
            _running = (os.getpid(), _spawn())
        try:
            socket.send_fds(_running[1], [request], fds)
        except OSError:
            _running[1].close()
            _running = (os.getpid(), _spawn())
            socket.send_fds(_running[1], [request], fds)


def _spawn() -> socket.socket:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    arguments = [sys.executable, "-I", "-S", "-c", _BOOT, str(Path(__file__).parent), str(_SOCKET), str(os.getpid())]
    actions = [
        *((os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in range(3) if number != theirs.fileno()),
        (os.POSIX_SPAWN_DUP2, theirs.fileno(), _SOCKET),
    ]
    try:
        with theirs:
            os.posix_spawn(sys.executable, arguments, {"PATH": os.defpath}, file_actions=actions)
    except OSError as error:
        ours.close()
        raise SandboxError(f"no process for sandboxes can be started: {error.strerror}") from error
    atexit.register(ours.close)
    return ours
