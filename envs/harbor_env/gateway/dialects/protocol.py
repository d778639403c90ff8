"""What the app needs of a wire API; a dialect is one object that satisfies `Dialect`.

A dialect is pure: parsed JSON in, `Call` out; `Reply` in, bytes out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from harbor_env.errors import GatewayError
from harbor_env.gateway.types import Call, Reply


@dataclass(frozen=True, slots=True)
class Route:
    """A path a dialect answers, below the root or below `/sessions/{id}`. `{model:path}` in a path matches
    the rest of it up to the colon: a model's name may hold slashes.

    `params` are facts the path itself states (Gemini's stream method); they join the path's own parameters.
    """

    method: Literal["GET", "POST"]
    path: str
    action: Literal["generate", "count"]
    params: Mapping[str, str] = field(default_factory=dict)


class Dialect(Protocol):
    """`decode` raises `GatewayError("bad_request", ...)` and nothing else. `params` are the path's parameters.

    `encode` gives the whole body; `stream` the server-sent events whose reassembly equals that body, text and argument
    deltas cut to at most `piece` characters (0: whole). `call` is the request being answered.
    `keepalive` may be sent any time after the response headers. `error` gives status and body in the vendor's shape;
    `stream_error` is the event for a failure after the headers.
    """

    @property
    def name(self) -> str: ...
    @property
    def routes(self) -> tuple[Route, ...]: ...
    @property
    def keepalive(self) -> bytes: ...

    def decode(self, body: Mapping[str, Any], params: Mapping[str, str]) -> Call: ...
    def encode(self, reply: Reply, call: Call) -> bytes: ...
    def stream(self, reply: Reply, call: Call, piece: int = 0) -> Iterator[bytes]: ...
    def error(self, error: GatewayError) -> tuple[int, bytes]: ...
    def stream_error(self, error: GatewayError) -> bytes: ...
    def count(self, prompt_tokens: int) -> bytes: ...
