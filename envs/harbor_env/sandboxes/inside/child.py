"""Turns a forked child of process 1 into the command it was asked to run. Invariant: it never returns."""

# pathlib is an import this program does not pay for.
# ruff: noqa: PTH103

from __future__ import annotations

import contextlib
import os
import resource
import signal
from collections.abc import Iterable
from typing import Any, NoReturn

from . import syscalls as sys_
from .accounts import Account, find_account

CANNOT_RUN, NOT_FOUND = 126, 127

# CHOWN DAC_OVERRIDE FOWNER FSETID KILL SETGID SETUID SETPCAP NET_BIND_SERVICE SYS_CHROOT AUDIT_WRITE SETFCAP: enough
# to install packages and change users, too little to mount, trace process 1, make devices or leave the namespaces.
KEPT_CAPABILITIES = frozenset({0, 1, 3, 4, 5, 6, 7, 8, 10, 18, 29, 31})
_KILLED_BEFORE_PROCESS_1 = b"500"
_LIMITS = {"processes": resource.RLIMIT_NPROC, "data": resource.RLIMIT_DATA, "file": resource.RLIMIT_FSIZE}


def become(request: dict[str, Any], streams: list[int], namespace: int, cgroups: list[int]) -> NoReturn:
    """Run `request["argv"]` with `streams` as stdin, stdout and stderr; failures are written to stderr."""
    try:
        os.setsid()
        sys_.set_dumpable(True)
        be_killed_early()
        if request["confined"]:
            for fd in cgroups:
                os.write(fd, b"0")
        if request["isolated"]:
            os.setns(namespace, os.CLONE_NEWNET)
        for number, fd in enumerate(streams):
            os.dup2(fd, number)
        os.closerange(3, 1 << 30)
        account = find_account(request["user"])
        environ = _environment(account, request["env"])
        _enter(request["cwd"], make=request["make_cwd"])
        _shed(request, account)
        os.execvpe(request["argv"][0], request["argv"], environ)
    except FileNotFoundError as error:
        _fail(NOT_FOUND, error)
    except (OSError, ValueError, OverflowError) as error:
        _fail(CANNOT_RUN, error)
    finally:
        os._exit(CANNOT_RUN)  # whatever happened, this must never go on as a second process 1


def _write(path: str, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, data)
    finally:
        os.close(fd)


def _fail(code: int, error: Exception) -> NoReturn:
    os.write(2, f"sandbox: {sys_.explain(error)}\n".encode())
    os._exit(code)


def _enter(cwd: str, *, make: bool) -> None:
    if make:
        os.makedirs(cwd, exist_ok=True)
    os.chdir(cwd)


def _environment(account: Account, given: dict[str, str]) -> dict[str, str]:
    return {"HOME": account.home, "USER": account.name, "LOGNAME": account.name, **given}


def _shed(request: dict[str, Any], account: Account) -> None:
    if request["mapped"] and account.uid != 0:
        raise OSError(f"user {account.name!r} does not exist here: an ordinary user's sandbox has only root inside")
    shed(request, account.uid, account.gid, account.groups)
    os.umask(0o022)
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def shed(facts: dict[str, Any], uid: int, gid: int, groups: Iterable[int]) -> None:
    """Give up what a command must not have: capabilities, core dumps, processors, another user's rights.

    `facts` are the limits of its sandbox.
    """
    if facts["cpus"]:
        os.sched_setaffinity(0, facts["cpus"])
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for name, value in facts["limits"].items():
        resource.setrlimit(_LIMITS[name], (value, value))
    sys_.limit_bounding_set(KEPT_CAPABILITIES)
    if not facts["mapped"]:
        os.setgroups(list(groups))
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)


def be_killed_early() -> None:
    """Before process 1, should memory run out."""
    with contextlib.suppress(OSError):
        _write("/proc/self/oom_score_adj", _KILLED_BEFORE_PROCESS_1)
