"""Linux calls that the standard library does not wrap. Every function raises `OSError` with the kernel's errno."""

from __future__ import annotations

import ctypes
import os
import platform

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REC, MS_PRIVATE = 0x4000, 1 << 18
MNT_DETACH = 2

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_CAPBSET_DROP = 1, 4, 24
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41, "riscv64": 41, "ppc64le": 203, "s390x": 217}
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442
_OPEN_TREE_CLONE, _AT_RECURSIVE, _AT_EMPTY_PATH, _MOVE_MOUNT_F_EMPTY_PATH = 1, 0x8000, 0x1000, 4
_MOUNT_ATTR_RDONLY = 1
_CAPABILITY_VERSION_3, _LAST_CAPABILITY = 0x20080522, 63

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def explain(error: Exception) -> str:
    """What happened, for a person: no error numbers."""
    if not isinstance(error, OSError) or error.strerror is None:
        return str(error)
    return f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror)


def mount(source: str, target: str, kind: str, flags: int = 0, data: str = "") -> None:
    """mount(2). An overlay's lower directories are in `data`; the kernel takes at most one page of it."""
    result = _libc.mount(
        source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), data.encode() if data else None
    )
    _check(result, f"mount {kind or 'flags'} on {target}")


def unmount(target: str, flags: int = MNT_DETACH) -> None:
    _check(_libc.umount2(target.encode(), flags), f"unmount {target}")


def pivot_root(new: str, old: str) -> None:
    number = _PIVOT_ROOT.get(platform.machine())
    if number is None:
        raise OSError(f"pivot_root: no call number known for {platform.machine()}")
    _check(_libc.syscall(ctypes.c_long(number), new.encode(), old.encode()), "pivot_root")


def clone_mount(source: str) -> int:
    """A detached copy of the mounts at `source`, as a descriptor that survives a change of root. Linux 5.2."""
    flags = _OPEN_TREE_CLONE | _AT_RECURSIVE | os.O_CLOEXEC
    at = ctypes.c_long(-100)
    return _check(
        _libc.syscall(ctypes.c_long(_OPEN_TREE), at, source.encode(), ctypes.c_long(flags)), f"open_tree {source}"
    )


def make_readonly(tree: int) -> None:
    """Turn a detached tree read-only, everything mounted below it included. Linux 5.12."""
    attributes = (ctypes.c_uint64 * 4)(_MOUNT_ATTR_RDONLY, 0, 0, 0)
    flags = ctypes.c_long(_AT_EMPTY_PATH | _AT_RECURSIVE)
    size = ctypes.c_long(ctypes.sizeof(attributes))
    result = _libc.syscall(
        ctypes.c_long(_MOUNT_SETATTR), ctypes.c_long(tree), b"", flags, ctypes.byref(attributes), size
    )
    _check(result, "mount_setattr")


def attach_mount(tree: int, target: str) -> None:
    """Attach a detached tree at `target`, resolved in the caller's root."""
    flags = ctypes.c_long(_MOVE_MOUNT_F_EMPTY_PATH)
    at = ctypes.c_long(-100)
    result = _libc.syscall(ctypes.c_long(_MOVE_MOUNT), ctypes.c_long(tree), b"", at, target.encode(), flags)
    _check(result, f"move_mount {target}")


def bind(source: str, target: str, *, readonly: bool = False) -> None:
    tree = clone_mount(source)
    try:
        if readonly:
            make_readonly(tree)
        attach_mount(tree, target)
    finally:
        os.close(tree)


def die_with_parent(signal_number: int) -> None:
    """Receive `signal_number` when the thread that started this process ends."""
    _check(_libc.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal_number), 0, 0, 0), "prctl")


def set_dumpable(on: bool) -> None:
    """A process that is not dumpable cannot be traced or read through /proc by processes with fewer capabilities."""
    _check(_libc.prctl(_PR_SET_DUMPABLE, ctypes.c_ulong(int(on)), 0, 0, 0), "prctl")


def limit_bounding_set(kept: frozenset[int]) -> None:
    """From here on no program that is started has a capability but those `kept`."""
    for capability in range(_LAST_CAPABILITY + 1):
        if capability not in kept and _libc.prctl(_PR_CAPBSET_DROP, ctypes.c_ulong(capability), 0, 0, 0) != 0:
            break  # this kernel knows no more of them


def limit_capabilities(kept: frozenset[int]) -> None:
    """What this process itself may do, which only the start of another program would bring down to the bounding set."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    sets = (ctypes.c_uint32 * 6)()
    _check(_libc.capget(header, sets), "capget")
    for word in range(2):
        mask = sum(1 << (capability - 32 * word) for capability in kept if capability // 32 == word)
        for place in range(3):  # effective, permitted, inheritable
            sets[3 * word + place] &= mask
    _check(_libc.capset(header, sets), "capset")
