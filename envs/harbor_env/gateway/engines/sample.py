"""What an engine put on the wire, checked before anything is recorded.

Invariant: a `Generation` that leaves `accepted` has one id and one log probability per sampled token, in order; what
could be garbage, or might belong to another token, is refused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harbor_env.errors import EngineError
from harbor_env.gateway.engines import EngineRequest, SamplingParams
from harbor_env.gateway.types import Finding, Finish, Generation, WeightSpan

NOT_FINITE = "logprob_not_finite"
BEFORE_SAMPLERS = "logprobs_raw"
ROUNDED = "logprob_rounded"
ROUNDING = 1e-3
"""How far above 0 a log probability may lie before it is nonsense and not rounding."""
FLOOR = -9999.0
"""What vLLM writes in place of minus infinity."""
_MAX_ID = 2**31 - 1
_FINISH: Mapping[str, Finish] = {
    "stop": "stop",
    "eos": "stop",
    "word": "stop",
    "length": "length",
    "limit": "length",
    "abort": "abort",
}


@dataclass(frozen=True, slots=True)
class Sample:
    """One answer as read from the wire, unchecked. `top` maps ids that could have come first to log probabilities.

    A log probability is None where the engine wrote null. `prompt_ids` is the prompt as the engine says it saw it.
    """

    ids: list[Any]
    logprobs: list[Any]
    finish: str
    weight_versions: tuple[WeightSpan, ...] = ()
    cached_tokens: int = 0
    top: Mapping[int, float] = field(default_factory=dict)
    prompt_ids: Sequence[int] | None = None


def accepted(sample: Sample, sampling: SamplingParams, *, processed: bool, vocab_size: int | None = None) -> Generation:
    """`sample` as a `Generation`, or `EngineError("engine_error")` where it cannot be what was sampled.

    `processed` says that log probabilities are of the distribution after temperature, top_p and top_k; where they are
    not, they are exact only while those change nothing, and otherwise the generation is marked.
    """
    ids = _checked_ids(sample.ids, vocab_size)
    logprobs = _checked_logprobs(sample.logprobs, len(ids))
    finish = _FINISH.get(sample.finish)
    if finish is None:
        raise EngineError("engine_error", f"the engine ended a generation for an unknown reason: {sample.finish!r}")
    findings = _findings(logprobs, sampling, processed)
    rounded = [min(value, 0.0) for value in logprobs] if max(logprobs) > 0 else logprobs
    noted = () if rounded is logprobs else (Finding(ROUNDED, "a log probability above 0 by rounding is taken as 0"),)
    return Generation(
        ids=ids,
        logprobs=rounded,
        finish=finish,
        weight_versions=sample.weight_versions,
        cached_tokens=sample.cached_tokens,
        findings=(*findings, *noted),
        trainable=not findings,
    )


def _checked_ids(ids: Any, vocab_size: int | None) -> list[int]:
    if not isinstance(ids, list) or not ids:
        raise EngineError("engine_error", "the engine returned no token ids")
    limit = _MAX_ID if vocab_size is None else vocab_size - 1
    if set(map(type, ids)) != {int} or min(ids) < 0 or max(ids) > limit:
        wrong = next(token for token in ids if type(token) is not int or not 0 <= token <= limit)
        raise EngineError("engine_error", f"the engine returned {wrong!r} as a token id")
    return ids


def _checked_logprobs(logprobs: list[Any], length: int) -> list[float]:
    if len(logprobs) != length:
        raise EngineError("engine_error", f"the engine returned {length} token ids and {len(logprobs)} logprobs")
    values = [math.nan if value is None else value for value in logprobs] if None in logprobs else logprobs
    if not set(map(type, values)) <= {float, int} or any(value > ROUNDING for value in values):
        raise EngineError("engine_error", "the engine returned something that is no log probability")
    return values


def _findings(logprobs: Sequence[float], sampling: SamplingParams, processed: bool) -> tuple[Finding, ...]:
    findings = []
    if not sum(logprobs) > FLOOR:
        lost = [position for position, value in enumerate(logprobs) if not FLOOR < value < math.inf]
        if lost:
            findings.append(Finding(NOT_FINITE, f"{len(lost)} of {len(logprobs)}, first at {lost[0]}"))
    plain = sampling.temperature == 1 and sampling.top_p >= 1 and sampling.top_k <= 0
    if sampling.temperature == 0:
        findings.append(Finding(BEFORE_SAMPLERS, "greedy tokens have no sampling distribution"))
    elif not processed and not plain:
        findings.append(Finding(BEFORE_SAMPLERS, "logprobs are of temperature 1, the tokens of another distribution"))
    return tuple(findings)


def sampling_fields(request: EngineRequest) -> dict[str, Any]:
    """The sampling distribution as vLLM and SGLang spell it.

    Every value is explicit: a model's generation_config would otherwise set what is left out.
    """
    sampling = request.sampling
    return {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "min_p": 0.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "repetition_penalty": 1.0,
        "stop_token_ids": list(request.stop_ids),
    }


def field_of(value: Any, name: str, kind: type) -> Any:
    """`value[name]` where `value` is an object and the field of the type expected; `engine_error` otherwise."""
    found = value.get(name) if isinstance(value, Mapping) else None
    if not isinstance(found, kind):
        raise EngineError("engine_error", f"the engine's answer has no usable {name!r}")
    return found
