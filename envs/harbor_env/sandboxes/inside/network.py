"""The sandbox's own network: a namespace with nothing but a loopback, held open by a descriptor.

Process 1 stays in the host's network; only what it starts enters the isolated one. A listening socket made here and
passed out is the one way from inside to anything outside.
"""

from __future__ import annotations

import array
import fcntl
import json
import os
import socket
import struct

from . import syscalls as sys_

_SIOCSIFADDR, _SIOCSIFFLAGS, _IFF_UP = 0x8916, 0x8914, 1
_BACKLOG = 128


def isolated(root: str) -> tuple[int, bool]:
    """A descriptor of a new network namespace with loopback up, and whether sysfs was mounted, read-only, in `root`.

    Only a process in a network namespace it owns may mount sysfs, so the child that makes the one mounts the other.
    `root` has its own proc already: the child's number means something only there.
    """
    done_read, done_write = os.pipe()
    go_read, go_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(go_write)
        _make(f"{root}/sys", done_write, go_read)
    os.close(done_write)
    os.close(go_read)
    try:
        answer = os.read(done_read, 4096)
        if answer[:1] not in (b"0", b"1"):
            raise OSError(answer.decode() or "the network namespace could not be made")
        return os.open(f"{root}/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC), answer == b"1"
    finally:
        os.close(go_write)
        os.close(done_read)
        os.waitpid(pid, 0)


def _make(sysfs: str, done: int, go: int) -> None:
    try:
        os.unshare(os.CLONE_NEWNET)
        _loopback_up()
        try:
            flags = sys_.MS_RDONLY | sys_.MS_NOSUID | sys_.MS_NODEV | sys_.MS_NOEXEC
            sys_.mount("sysfs", sysfs, "sysfs", flags)
            answer = b"1"
        except OSError:
            answer = b"0"
        os.write(done, answer)
        os.read(go, 1)
    except OSError as error:
        os.write(done, sys_.explain(error).encode())
    finally:
        os._exit(0)


def _loopback_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP))


def _add_address(address: str) -> None:
    request = struct.pack("16sHH4s8x", b"lo:1", socket.AF_INET, 0, socket.inet_aton(address))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, _SIOCSIFADDR, request)


def send_listener(namespace: int, address: str, port: int, out: socket.socket) -> None:
    """Listen on `address:port` in `namespace` and pass the socket over `out`; a child enters the namespace for it."""
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
        return
    try:
        os.setns(namespace, os.CLONE_NEWNET)
        if not address.startswith("127."):
            _add_address(address)
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(_BACKLOG)
        fds = array.array("i", [listener.fileno()])
        out.sendmsg([b'{"listener": true}'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
    except OSError as error:
        out.send(json.dumps({"listener": False, "error": sys_.explain(error)}).encode())
    finally:
        os._exit(0)
