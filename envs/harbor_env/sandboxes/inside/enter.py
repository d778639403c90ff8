"""Enters a sandbox's namespaces, but for its process namespace, and becomes the fork server of a harness there.

Invariant: the server keeps one right that commands have not, that of entering sandboxes of the same owner.
It stays in the owner's process namespace, because a process enters only process namespaces below its own.
"""

# pathlib is an import this program does not pay for.
# ruff: noqa: PTH120, PTH123

from __future__ import annotations

import json
import os
import sys
from typing import NoReturn

from . import syscalls as sys_
from .child import KEPT_CAPABILITIES

_BOOT = "import sys; sys.path.append(sys.argv.pop(1)); from inside.forkserver import main; main()"
SYS_ADMIN = 21


def main() -> NoReturn:
    """Arguments: where this package lies, the control socket's descriptor, those of the namespaces with
    commas between them, the order as JSON.

    A failure is told over the control socket.
    """
    control, namespaces, order = int(sys.argv[2]), sys.argv[3], sys.argv[4]
    python, code = json.loads(order)["python"], json.loads(order)["code"]
    try:
        os.setsid()
        with open("/proc/self/stat", "rb") as stat:
            about = os.dup(stat.fileno())
        for fd in map(int, namespaces.split(",")):
            os.setns(fd)
            os.close(fd)
        os.chdir("/")
        os.umask(0o022)
        sys_.limit_bounding_set(KEPT_CAPABILITIES | {SYS_ADMIN})
        for fd in (control, about):
            os.set_inheritable(fd, True)
        origin = {"LD_ORIGIN_PATH": os.path.dirname(python)}  # where /proc tells no process of itself
        os.execve(python, [python, "-I", "-c", _BOOT, code, str(control), str(about), order], {**os.environ, **origin})
    except OSError as error:
        os.write(control, json.dumps({"failed": sys_.explain(error)}).encode())
    os._exit(1)
