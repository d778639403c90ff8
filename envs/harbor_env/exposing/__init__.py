"""Ways for sandboxes elsewhere to reach a port of this machine: at an address of its own, or through a tunnel.

Invariant: a tunnel lasts as long as the block that opened it and ends with this process, however that ends. A way is
one line in `EXPOSERS`, or `module:Name` from outside.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from harbor_env.config import is_loopback
from harbor_env.errors import UsageError
from harbor_env.exposing.tunnels import cloudflared, gradio
from harbor_env.lookup import import_object

WILDCARDS = frozenset({"0.0.0.0", "::"})


@dataclass(frozen=True, slots=True)
class Door:
    """A port that listens at `host`. `public_url` is the address its owner gave it, `scratch` a folder for files."""

    host: str
    port: int
    scratch: Path
    public_url: str = ""

    @property
    def local(self) -> str:
        """The host under which this machine reaches the port."""
        return "127.0.0.1" if self.host in WILDCARDS else self.host


class Exposer(Protocol):
    """A way out. The block's value is a URL without a trailing slash.

    UsageError says what to do without one: at once what is known at once, else when the block is entered.
    """

    def __call__(self, door: Door, /) -> AbstractAsyncContextManager[str]: ...


def _direct(door: Door) -> AbstractAsyncContextManager[str]:
    """The address the owner gave, or the one the port listens at."""
    if not door.public_url and (door.host in WILDCARDS or is_loopback(door.host)):
        raise UsageError(
            f"Nobody elsewhere can call {door.host}: give --public-url, an address that leads here, or --host with one"
            " of this machine's own."
        )
    host = f"[{door.host}]" if ":" in door.host else door.host
    return nullcontext(door.public_url.rstrip("/") or f"http://{host}:{door.port}")


def _cloudflared(door: Door) -> AbstractAsyncContextManager[str]:
    return cloudflared(door.local, door.port, _scratch("cloudflared", door))


def _gradio(door: Door) -> AbstractAsyncContextManager[str]:
    return gradio(door.local, door.port, _scratch("gradio", door))


EXPOSERS: Mapping[str, Exposer] = {"direct": _direct, "gradio": _gradio, "cloudflared": _cloudflared}


def find_exposer(name: str) -> Exposer:
    """The way called `name`. UsageError lists those there are."""
    found = EXPOSERS.get(name)
    if found is None and ":" in name:
        try:
            found = import_object(name)
        except ImportError as error:
            raise UsageError(f"--expose {name} cannot be imported: {error}.") from error
    if found is None:
        raise UsageError(f"There is no way {name!r} to expose a port. Choose one of: {', '.join(EXPOSERS)}.")
    return found


def _scratch(name: str, door: Door) -> Path:
    if door.public_url:
        raise UsageError(f"--expose {name} brings an address of its own: leave --public-url out.")
    return door.scratch
