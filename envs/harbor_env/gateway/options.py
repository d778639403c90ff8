"""What a session is opened with, and the digest that keeps unlike requests apart."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson

from harbor_env.errors import GatewayError
from harbor_env.gateway.types import Tool

DEEPEST = 100
"""How deep JSON kept with a session may nest: every writer it passes through takes this and a few levels of its own."""


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """The engine of one session, where it is not the gateway's own."""

    kind: str = "vllm"
    url: str = ""
    model: str = ""
    api_key: str = ""


@dataclass(frozen=True, slots=True)
class PinnedSampling:
    """The sampling distribution of a session. In a training session these values are the policy.

    `temperature` None means 1.0 in training and the harness's own value in evaluation. `max_tokens` caps every reply.
    """

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    max_tokens: int | None = None
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class Budget:
    """Where a session stops answering with the model. None: no limit. Tokens are sampled tokens.

    `max_seconds` is wall time from the session's first call, so that the making of a sandbox costs nothing of it.
    """

    max_calls: int | None = None
    max_output_tokens: int | None = None
    max_seconds: float | None = None

    @property
    def counts_turns(self) -> bool:
        """Whether a turn may be recorded only if all turns before it, of every process, were counted."""
        return self.max_calls is not None or self.max_output_tokens is not None


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """Everything a session was opened with. `history="as_sent"` re-renders every turn from text."""

    metadata: Mapping[str, Any] = field(default_factory=dict)
    engine: EngineOptions | None = None
    sampling: PinnedSampling = PinnedSampling()
    budget: Budget = Budget()
    history: Literal["tree", "as_sent"] = "tree"
    template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    purpose: Literal["train", "eval"] = "train"


def context_digest(tools: Sequence[Tool], template_kwargs: Mapping[str, Any]) -> str:
    """A short digest of tools, order included, and rendering options: 16 hexadecimal characters.

    GatewayError(bad_request): one of them is nested deeper than it could be stored and exported.
    """
    for name, value in [*((tool.name, tool.parameters) for tool in tools), *template_kwargs.items()]:
        refuse_deep(name, value)
    document = [
        [[tool.name, tool.description, tool.parameters, tool.kind, tool.namespace] for tool in tools],
        sorted(template_kwargs.items()),
    ]
    return hashlib.blake2b(orjson.dumps(document, default=repr), digest_size=8).hexdigest()


def refuse_deep(name: str, value: Any) -> None:
    """GatewayError(bad_request) where `value` nests deeper than `DEEPEST`; `name` says what it is."""
    if _nests_deeper(value, DEEPEST):
        raise GatewayError("bad_request", f"{name[:80]}: nested more than {DEEPEST} levels deep.")


def _nests_deeper(value: Any, levels: int) -> bool:
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return bool(inner) and (levels == 0 or any(_nests_deeper(item, levels - 1) for item in inner))
