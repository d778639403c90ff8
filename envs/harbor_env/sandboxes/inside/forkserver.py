"""A harness's modules imported once, and a fork of that for each of its commands.

Invariant: this process has one thread and runs nothing but imports; all that knows of a command happens in forks, and
each of those knows one. A request over a line adds a sandbox, with its name, facts and descriptors, or another line;
the control socket is the first line, and the others know nothing of each other.
"""

# pathlib is an import this program does not pay for.
# ruff: noqa: PTH120

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from . import forked
from .imported import Imported, importing

_PACKET, _DESCRIPTORS = 65536, 32
_AT_ONCE = 64
"""Commands of one sandbox at a time; what is more starts cold."""
_THREADS = 17
"""Place of the number of threads in what /proc tells of a process after its name."""


@dataclass(frozen=True, slots=True, eq=False)
class _Served:
    """`fds`: the door's listener, the sandbox's life, its namespaces, its cgroups. Its owner is at the line's end."""

    facts: dict[str, Any]
    fds: list[int]
    line: socket.socket


def main() -> None:
    """Arguments: the control socket, a file that tells of this process, the order as JSON: modules, entry, cold.

    Ends with its owner; in a fork, when the command has ended.
    """
    control, about, order = int(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3])
    os.environ.pop("LD_ORIGIN_PATH", None)
    sys.path.insert(0, os.path.dirname(order["cold"]))
    try:
        with importing() as seen:
            _import(order["modules"])
        _settle(control, about)
    except BaseException as error:  # noqa: BLE001 - whatever a module does when imported: then commands start cold
        os.write(control, json.dumps({"failed": f"{type(error).__name__}: {error}"}).encode())
        return
    os.write(control, b'{"ready": true}')
    command = _Server(control, about, seen).serve()
    if command is not None:
        forked.run(command, order["entry"], seen.left)


def _import(names: Sequence[str]) -> None:
    missing = []
    for name in names:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            missing.append(error)
    if len(missing) == len(names):
        raise missing[0]


def _settle(control: int, about: int) -> None:
    """Forks share no file that was left open, and print nothing that waits to be printed."""
    if _threads(about) != 1:
        raise RuntimeError("its modules start threads when imported")
    if any(_is_open(fd) for fd in range(3, 1024) if fd not in (control, about)):
        raise RuntimeError("its modules leave files open when imported")
    sys.stdout.flush()
    sys.stderr.flush()
    gc.collect()
    gc.freeze()  # the collector writes to no page of these any more, so that forks go on sharing them


def _threads(about: int) -> int:
    after_name = os.pread(about, 4096, 0).rpartition(b")")[2].split()
    return int(after_name[_THREADS])


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


class _Server:
    def __init__(self, control: int, about: int, seen: Imported) -> None:
        self._control = control
        self._lines = {control: socket.socket(fileno=control)}
        self._about = about
        self._seen = seen
        self._served: list[_Served] = []
        self._running: dict[int, _Served] = {}
        self._poll = select.poll()

    def serve(self) -> forked.Started | None:
        """In a fork the command to run; None once the owner is gone."""
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._poll.register(self._control, select.POLLIN)
        while True:
            ready = {fd for fd, _ in self._poll.poll()}
            ended = [line for line in ready & self._lines.keys() if not self._hear(line)]
            if self._control in ended:
                return None
            for process in ready & self._running.keys():
                self._bury(process)
            for served in list(self._served):
                listener, life = served.fds[:2]
                if life in ready:
                    self._forget(served)
                elif listener in ready:
                    command = self._accept(served)
                    if command is not None:
                        return command
            for line in ended:  # last, for a number that is free again must not be taken for one that is ready
                self._hang_up(line)

    def _hear(self, line: int) -> bool:
        """Take a request; False where the line has ended."""
        try:
            data, fds, flags, _ = socket.recv_fds(self._lines[line], _PACKET, _DESCRIPTORS)
        except OSError:  # its end was closed with something unread
            return False
        if not data:
            return False
        facts = json.loads(data)
        if flags & socket.MSG_CTRUNC:  # descriptors are missing
            for fd in fds:
                os.close(fd)
            forked.tell(line, facts.get("name", ""), cold="the fork server has too many files open")
        elif "line" in facts:
            self._lines[fds[0]] = socket.socket(fileno=fds[0])
            self._poll.register(fds[0], select.POLLIN)
        else:
            self._served.append(_Served(facts, fds, self._lines[line]))
            for fd in fds[:2]:
                self._poll.register(fd, select.POLLIN)
        return True

    def _hang_up(self, line: int) -> None:
        ended = self._lines.pop(line)
        for served in [one for one in self._served if one.line is ended]:
            self._forget(served)
        self._poll.unregister(line)
        ended.close()

    def _forget(self, served: _Served) -> None:
        for fd in served.fds[:2]:
            self._poll.unregister(fd)
        for fd in served.fds:
            os.close(fd)
        self._served.remove(served)

    def _accept(self, served: _Served) -> forked.Started | None:
        with socket.socket(fileno=os.dup(served.fds[0])) as listener:
            client, _ = listener.accept()
        with client:
            pid = self._fork(served)
            if pid == 0:
                return self._attend(served, client)
            if pid > 0:
                process = os.pidfd_open(pid)
                self._running[process] = served
                self._poll.register(process, select.POLLIN)
            return None

    def _fork(self, served: _Served) -> int:
        """-1 where there is no fork to be had, which the owner is told."""
        why = "too many of its commands run at once" if list(self._running.values()).count(served) >= _AT_ONCE else ""
        if _threads(self._about) != 1:
            why = "its modules have started a thread"
        try:
            return -1 if why else os.fork()
        except OSError as error:
            why = f"no process for it: {error.strerror}"
            return -1
        finally:
            if why:
                forked.tell(served.line.fileno(), served.facts["name"], cold=why)

    def _attend(self, served: _Served, client: socket.socket) -> forked.Started:
        """In the fork, which gives up first what it knows of other sandboxes and of who has them."""
        for other in self._served:
            for fd in other.fds[:2] if other is served else other.fds:
                os.close(fd)
        for fd in self._running:
            os.close(fd)
        for line in self._lines.values():
            if line is not served.line:
                line.close()
        os.close(self._about)
        return forked.attend(client, served.line.detach(), served.facts, served.fds[2:], self._seen)

    def _bury(self, process: int) -> None:
        os.waitid(os.P_PIDFD, process, os.WEXITED)
        self._poll.unregister(process)
        os.close(process)
        del self._running[process]
