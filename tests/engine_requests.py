"""Requests to engines, short enough to read in a test."""

from __future__ import annotations

from collections.abc import Sequence

from harbor_env.gateway.engines import EngineRequest, SamplingParams
from harbor_env.gateway.types import Call, Message, Tool

STOP = 2


def engine_request(
    prompt_ids: Sequence[int] = (5, 6, 7),
    *,
    max_tokens: int = 16,
    temperature: float = 1.0,
    top_p: float = 1.0,
    seed: int | None = 1,
    stop_ids: tuple[int, ...] = (STOP,),
    messages: tuple[Message, ...] = (Message("user", "Hello"),),
    tools: tuple[Tool, ...] = (),
) -> EngineRequest:
    sampling = SamplingParams(max_tokens, temperature, top_p, seed=seed)
    return EngineRequest("request", prompt_ids, sampling, stop_ids, Call(messages, tools))
