"""Process 1 of a sandbox: builds the root, then starts, kills and reaps commands as its control socket asks.

Invariant: it ends when the control socket closes, and everything in the sandbox ends with it. Each message is one
packet of JSON; a `run` carries descriptors of the request, stdin, stdout and stderr.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
from typing import Any, NoReturn

from . import child, door, network, rootfs
from . import syscalls as sys_

_PACKET, _DESCRIPTORS = 65536, 8


def main(spec: dict[str, Any], control: socket.socket, cgroups: list[int]) -> NoReturn:
    """Never returns; the exit status is 0 when the control socket closed and 1 when the root could not be built."""
    try:
        sys_.die_with_parent(signal.SIGKILL)
        namespace, notes = rootfs.build(spec)
        _import_nothing_more()
        sys_.set_dumpable(False)
    except OSError as error:
        control.send(json.dumps({"failed": sys_.explain(error)}).encode())
        os._exit(1)
    _Init(control, namespace, cgroups).serve(notes)
    os._exit(0)


def _import_nothing_more() -> None:
    """From here on the paths modules are imported from are the sandbox's, where anybody may have put anything."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if getattr(finder, "__name__", "") != "PathFinder"]


class _Init:
    def __init__(self, control: socket.socket, namespace: int, cgroups: list[int]) -> None:
        self.control = control
        self.namespace = namespace
        self.cgroups = cgroups
        self.running: dict[int, int] = {}

    def serve(self, notes: list[str]) -> None:
        wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        self._tell(ready=True, notes=notes)
        poll = select.poll()
        poll.register(self.control, select.POLLIN)
        poll.register(wake_read, select.POLLIN)
        while True:
            for fd, _ in poll.poll():
                if fd == wake_read:
                    os.read(wake_read, 4096)
                    self._reap()
                elif not self._obey():
                    return

    def _tell(self, **message: Any) -> None:
        self.control.send(json.dumps(message).encode())

    def _obey(self) -> bool:
        data, fds, _, _ = socket.recv_fds(self.control, _PACKET, _DESCRIPTORS)
        if not data:
            return False
        message = json.loads(data)
        match message["do"]:
            case "run":
                self._run(message["id"], fds)
            case "kill":
                self._kill(message["id"])
            case "listen":
                network.send_listener(self.namespace, message["address"], message["port"], self.control)
            case "door":
                door.send_door(message["path"], self.namespace, self.control)
        for fd in fds:
            os.close(fd)
        return True

    def _run(self, number: int, fds: list[int]) -> None:
        with open(fds[0], "rb", closefd=False) as file:
            request = json.load(file)
        try:
            pid = os.fork()
        except OSError as error:
            os.write(fds[3], f"sandbox: {sys_.explain(error)}\n".encode())
            self._tell(done=number, code=child.CANNOT_RUN)
            return
        if pid == 0:
            signal.set_wakeup_fd(-1)
            child.become(request, fds[1:4], self.namespace, self.cgroups)
        self.running[pid] = number

    def _kill(self, number: int) -> None:
        """End the command and its process group; a daemon that left the group is the sandbox's, and stays."""
        for pid, running in self.running.items():
            if running == number:
                for kill in (os.killpg, os.kill):
                    try:
                        kill(pid, signal.SIGKILL)
                    except ProcessLookupError:
                        continue

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            number = self.running.pop(pid, None)
            if number is not None:
                code = os.waitstatus_to_exitcode(status)
                self._tell(done=number, code=code if code >= 0 else 128 - code)
