"""The wire APIs a harness may speak: one object each, routes as data.

A dialect is pure: bytes and parsed JSON in, `Call` out; `Reply` in, bytes out. `DIALECTS` closes the package.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from harbor_env.errors import GatewayError
from harbor_env.gateway.types import Call, Reply


@dataclass(frozen=True, slots=True)
class Route:
    """A path a dialect answers, below the root or below `/sessions/{id}`. `{model}` in a path matches one segment."""

    method: Literal["GET", "POST"]
    path: str
    action: Literal["generate", "count"]


class Dialect(Protocol):
    """What the app needs of a wire API.

    `decode` raises `GatewayError("bad_request", ...)` and nothing else. `params` are the path's parameters.
    `encode` gives the whole body; `stream` the server-sent events whose reassembly equals that body, text and argument
    deltas cut to at most `piece` characters (0: whole). `call` is the request being answered.
    `keepalive` may be sent any time after the response headers. `error` gives status and body in the vendor's shape;
    `stream_error` is the event for a failure after the headers.
    """

    name: str
    routes: tuple[Route, ...]
    keepalive: bytes

    def decode(self, body: Mapping[str, Any], params: Mapping[str, str]) -> Call: ...
    def encode(self, reply: Reply, call: Call) -> bytes: ...
    def stream(self, reply: Reply, call: Call, piece: int = 0) -> Iterator[bytes]: ...
    def error(self, error: GatewayError) -> tuple[int, bytes]: ...
    def stream_error(self, error: GatewayError) -> bytes: ...
    def count(self, prompt_tokens: int) -> bytes: ...
