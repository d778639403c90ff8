"""Users and groups by the sandbox's own files.

Invariant: no library is loaded to find them. The C library's lookup would load what the sandbox's name service
configuration asks for, with rights no program of the sandbox has.
"""

# pathlib is an import this program does not pay for.
# ruff: noqa: PTH123

from __future__ import annotations

from dataclasses import dataclass

_LARGEST = 1 << 20


@dataclass(frozen=True)
class Account:
    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str


def find_account(user: str | int | None) -> Account:
    """The account for "name", "uid", "name:group" or "uid:gid" (None: root). Raises ValueError for an unknown name.

    A number needs no record; root needs none either.
    """
    name, _, group = str(0 if user is None else user).partition(":")
    account = _recorded(name) or _unrecorded(name)
    if not group:
        return account
    gid = int(group) if group.isdigit() else _group(group)
    return Account(account.name, account.uid, gid, (gid,), account.home)


def _recorded(wanted: str) -> Account | None:
    for fields in _records("/etc/passwd", 7):
        name, _, uid, gid, _, home, _ = fields[:7]
        if wanted in (name, uid) and uid.isdigit() and gid.isdigit():
            return Account(name, int(uid), int(gid), _memberships(name, int(gid)), home or "/")
    return None


def _unrecorded(name: str) -> Account:
    if name in ("0", "root"):
        return Account("root", 0, 0, (0,), "/root")
    if not name.isdigit():
        raise ValueError(f"there is no user {name!r} in the sandbox")
    return Account(name, int(name), 0, (0,), "/")


def _memberships(name: str, gid: int) -> tuple[int, ...]:
    others = (
        int(fields[2]) for fields in _records("/etc/group", 4) if fields[2].isdigit() and name in fields[3].split(",")
    )
    return tuple(dict.fromkeys((gid, *others)))


def _group(wanted: str) -> int:
    for fields in _records("/etc/group", 4):
        if fields[0] == wanted and fields[2].isdigit():
            return int(fields[2])
    raise ValueError(f"there is no group {wanted!r} in the sandbox")


def _records(path: str, fields: int) -> list[list[str]]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = file.read(_LARGEST).splitlines()
    except OSError:
        return []
    return [parts for line in lines if len(parts := line.split(":")) >= fields]
