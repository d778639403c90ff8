"""What a session is opened with, and the digest that keeps unlike requests apart."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson

from harbor_env.gateway.types import Tool


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
    """Where a session stops answering with the model. None: no limit. Tokens are sampled tokens."""

    max_calls: int | None = None
    max_output_tokens: int | None = None


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
    """A short digest of tools, order included, and rendering options: 16 hexadecimal characters."""
    document = [
        [[tool.name, tool.description, tool.parameters, tool.kind, tool.namespace] for tool in tools],
        sorted(template_kwargs.items()),
    ]
    return hashlib.blake2b(orjson.dumps(document, default=repr), digest_size=8).hexdigest()
