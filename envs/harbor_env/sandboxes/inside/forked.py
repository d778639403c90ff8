"""Turns a fork of a fork server into a command of a sandbox: two processes, one that waits outside and one inside.

Invariant: until the command is said to have started nothing of it has run; from then on its process holds what any
other command of that sandbox holds, and nothing of the server's but its memory.
"""

from __future__ import annotations

import builtins
import contextlib
import importlib
import json
import locale
import os
import select
import signal
import socket
import struct
import sys
import time
import types
from dataclasses import dataclass
from typing import Any, NoReturn

from . import child
from . import syscalls as sys_
from .imported import LOCALE, Imported

_PACKET, _DESCRIPTORS = 65536, 16
_SO_PEERGROUPS, _GROUPS = 59, 1024
_ENTERED = (os.CLONE_NEWNS, os.CLONE_NEWUTS, os.CLONE_NEWIPC, os.CLONE_NEWCGROUP)


@dataclass(frozen=True, slots=True)
class Peer:
    """Whoever asks, as the kernel knows it."""

    uid: int
    gid: int
    groups: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Started:
    """A command to be run in this process, which is in its place by now."""

    argv: list[str]
    env: dict[str, str]


def attend(client: socket.socket, report: int, facts: dict[str, Any], fds: list[int], seen: Imported) -> Started:
    """Start what `client` asks for in the sandbox of `facts` and `fds`; returns in the process that is to be it.

    `fds` are the process, mount, name, IPC and cgroup namespaces, then files that take processes into cgroups.
    """
    try:
        request, given = _request(client)
        why = seen.differs(request["env"])
        if not why:
            os.setns(fds[0], os.CLONE_NEWPID)
            pid = os.fork()
            if pid == 0:
                return _become(client, request, given, facts, fds, report)
            os.close(report)
            _wait(client, pid)
    except (OSError, ValueError, KeyError) as error:
        why = sys_.explain(error)
    tell(report, facts["name"], cold=why)
    os._exit(1)


def tell(report: int, name: str, **what: Any) -> None:
    """Say something to the owner, who may listen or not."""
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(report)) as owner:
        owner.send(json.dumps({"name": name, **what}).encode(), socket.MSG_DONTWAIT)


def _request(client: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """What is asked for, and descriptors: stdin, stdout, stderr, the working folder, the network."""
    _, fds, _, _ = socket.recv_fds(client, _PACKET, _DESCRIPTORS)
    if len(fds) != 6:
        raise ValueError("what was asked for came without its files")
    size = os.fstat(fds[0]).st_size
    return json.loads(os.pread(fds[0], size, 0)), fds[1:]


def _wait(client: socket.socket, pid: int) -> NoReturn:
    """Say how the command ended; end it if whoever asked for it is gone."""
    process = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(process, select.POLLIN)
    poll.register(client, 0)
    if process not in {fd for fd, _ in poll.poll()}:
        for kill in (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError):
                kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    with contextlib.suppress(OSError):
        client.send(json.dumps({"code": code} if code >= 0 else {"signal": -code}).encode())
    os._exit(0)


def _become(
    client: socket.socket, request: dict[str, Any], given: list[int], facts: dict[str, Any], fds: list[int], report: int
) -> Started:
    try:
        peer = _peer(client)
        os.setsid()
        for fd in fds[1 + len(_ENTERED) :]:
            os.write(fd, b"0")
        for fd, kind in zip(fds[1:], _ENTERED, strict=False):
            os.setns(fd, kind)
        os.setns(given[4], os.CLONE_NEWNET)
        for number, fd in enumerate(given[:3]):
            os.dup2(fd, number)
        child.be_killed_early()
        os.fchdir(given[3])
        os.umask(request["umask"])
        child.shed(facts, peer.uid, peer.gid, peer.groups)
        tell(report, facts["name"], started=os.getpid())
        os.closerange(3, client.fileno())  # all of it before other processes inside may look into this one
        os.closerange(client.fileno() + 1, 1 << 30)
        sys_.limit_capabilities(child.KEPT_CAPABILITIES)
        sys_.set_dumpable(True)
        sys_.die_with_parent(signal.SIGKILL)
        client.send(json.dumps({"started": os.getpid()}).encode())
    except (OSError, ValueError) as error:
        tell(report, facts["name"], cold=sys_.explain(error))
        os._exit(child.CANNOT_RUN)
    client.close()
    return Started(request["argv"], request["env"])


def _peer(client: socket.socket) -> Peer:
    _, uid, gid = struct.unpack("iII", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    groups = client.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, _GROUPS)
    return Peer(uid, gid, struct.unpack(f"{len(groups) // 4}I", groups))


def run(command: Started, entry: str, left: dict[str, str]) -> NoReturn:
    """Be `command` to its end: what its script calls is `entry`, a `module:name`. `left` is as in `Imported`."""
    _take_on(command.env, left)
    sys.argv[:] = command.argv
    importlib.invalidate_caches()
    main = types.ModuleType("__main__")
    main.__dict__.update(__file__=command.argv[0], __builtins__=builtins)
    sys.modules["__main__"] = main
    module, _, name = entry.partition(":")
    sys.exit(getattr(importlib.import_module(module), name)())


def _take_on(env: dict[str, str], left: dict[str, str]) -> None:
    """What Python makes of the environment, the terminal and chance when it starts; `random` sees to itself."""
    os.environ.clear()
    os.environ.update({**env, **left})
    if not any(env.get(name) for name in LOCALE):
        os.environ["LC_CTYPE"] = "C.UTF-8"
    with contextlib.suppress(locale.Error):
        locale.setlocale(locale.LC_CTYPE, "")
    time.tzset()
    at_once = bool(env.get("PYTHONUNBUFFERED"))
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=stream is sys.stderr or stream.isatty(), write_through=at_once)  # type: ignore[union-attr]
    sys.dont_write_bytecode = bool(env.get("PYTHONDONTWRITEBYTECODE"))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
