"""A fake harness: tells of the process it runs in, or does what its first argument says."""

# ruff: noqa: PTH109, PTH115, PTH123, PTH208

import json
import os
import random
import re
import signal
import sys
import time

import slow_tiny

NAMESPACES = ("mnt", "pid", "net", "uts", "ipc", "cgroup", "user")


def main():
    what = sys.argv[1] if len(sys.argv) > 1 else "tell"
    if what == "exit":
        return int(sys.argv[2])
    if what == "fail":
        raise RuntimeError("the harness failed")
    if what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "wait":
        signal.signal(signal.SIGTERM, lambda *_: sys.exit("was asked to end"))
        print("waiting", flush=True)
        time.sleep(600)
    if what == "echo":
        print(sys.stdin.read().upper(), end="")
        return 0
    slow_tiny.SEEN.append(os.environ.get("KEY"))
    print(json.dumps(told()))
    return 0


def told():
    with open("/proc/self/status") as file:
        status = dict(re.findall(r"^(Cap\w+|Uid|Gid|Groups|Threads):[ \t]*(.*)$", file.read(), re.MULTILINE))
    return {
        "argv": sys.argv,
        "cwd": os.getcwd(),
        "env": dict(os.environ),
        "seen": slow_tiny.SEEN,
        "imported_in": slow_tiny.IMPORTED_IN,
        "pid": os.getpid(),
        "main": sys.modules["__main__"].__file__,
        "umask": oct(os.umask(0)),
        "status": status,
        "files": sorted(int(name) for name in os.listdir("/proc/self/fd"))[:-1],
        "namespaces": {name: os.readlink(f"/proc/self/ns/{name}") for name in NAMESPACES},
        "chance": random.random(),
    }
