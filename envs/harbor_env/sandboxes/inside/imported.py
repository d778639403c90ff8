"""What modules read of the environment while they were imported, which a fork's own environment must agree with.

Invariant: a command that would have seen something else at import than its fork server did is told apart.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

_HONOURED = frozenset({"PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"})
LOCALE = ("LC_ALL", "LC_CTYPE", "LANG")


class Imported:
    """`read` maps every variable that was looked at to its value, None where it was not set; `left` are those that the
    modules changed.
    """

    def __init__(self) -> None:
        self.read: dict[str, str | None] = {}
        self.left: dict[str, str] = {}

    def differs(self, env: Mapping[str, str]) -> str:
        """Why a command with `env` cannot be a fork; "" where it can."""
        for name in env:
            if name.startswith("PYTHON") and name not in _HONOURED and name not in self.read:
                return f"{name} is set, which Python itself reads when it starts"
        locale = next((env[name] for name in LOCALE if env.get(name)), "C")
        if locale not in ("C", "POSIX") and "utf8" not in locale.lower().replace("-", ""):
            return f"its locale is {locale}"
        for name, value in self.read.items():
            if env.get(name) != value:
                return f"its modules looked at {name} when they were imported, which was {value!r} then"
        return ""


class _Watched(dict[bytes, bytes]):
    """The table below `os.environ`; every way to look up one variable leads through these two."""

    def __init__(self, table: Mapping[bytes, bytes], seen: Imported) -> None:
        super().__init__(table)
        self._seen = seen

    def __getitem__(self, name: bytes) -> bytes:
        self._note(name)
        return super().__getitem__(name)

    def __contains__(self, name: object) -> bool:
        if isinstance(name, bytes):
            self._note(name)
        return super().__contains__(name)

    def _note(self, name: bytes) -> None:
        value = self.get(name)
        self._seen.read.setdefault(os.fsdecode(name), None if value is None else os.fsdecode(value))


@contextmanager
def importing() -> Iterator[Imported]:
    """Whatever is imported within is watched."""
    seen = Imported()
    environ: Any = os.environ
    before = dict(os.environ)
    environ._data = _Watched(environ._data, seen)
    try:
        yield seen
    finally:
        environ._data = dict(environ._data)
        seen.left = {name: value for name, value in os.environ.items() if before.get(name) != value}
