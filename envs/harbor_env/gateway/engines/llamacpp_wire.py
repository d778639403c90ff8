"""llama.cpp's `/completion` as data: what is sent, and how an answer becomes a `Sample`.

Source: llama.cpp's server README. Its log probabilities are of temperature 1, so at any other the probability after its
samplers is asked for. Invariant: a log probability that may belong to another token is left out and looked up instead.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from harbor_env.errors import EngineError
from harbor_env.gateway.engines import EngineRequest
from harbor_env.gateway.engines.connection import wire_ids
from harbor_env.gateway.engines.sample import Sample, field_of

PATH = "/completion"
UNKNOWN = object()
"""Stands for a log probability that the answer does not hold."""


def body(request: EngineRequest, top: int = 1) -> dict[str, Any]:
    sampling = request.sampling
    cutting = [name for name, on in (("top_k", sampling.top_k > 0), ("top_p", sampling.top_p < 1)) if on]
    values: dict[str, Any] = {
        "prompt": wire_ids(request.prompt_ids),
        "n_predict": sampling.max_tokens,
        "temperature": sampling.temperature,
        "samplers": [*cutting, "temperature"],
        "top_k": max(0, sampling.top_k),
        "top_p": sampling.top_p,
        "min_p": 0.0,
        "n_probs": top,
        "post_sampling_probs": sampling.temperature not in (0, 1) or bool(cutting),
        "return_tokens": True,
        "cache_prompt": True,
    }
    if sampling.seed is not None:
        values["seed"] = sampling.seed % 2**32
    return values


def read(answer: Any) -> Sample:
    """`completion_probabilities` holds `{id, logprob}`, or `{id, prob}` after samplers, for most of `tokens`.

    llama.cpp leaves out the entry of a token that ends inside a UTF-8 character; which one it was follows from the
    others, or is left `UNKNOWN` too.
    """
    ids = field_of(answer, "tokens", list)
    entries = field_of(answer, "completion_probabilities", list)
    try:
        values = [_logprob(entry) for entry in entries]
        places = aligned(ids, [entry["id"] for entry in entries])
        first = entries[0] if entries else {}
        top = {item["id"]: _logprob(item) for item in first.get("top_logprobs") or first.get("top_probs") or ()}
    except (KeyError, TypeError, AttributeError) as error:
        raise EngineError("engine_error", "the engine's completion_probabilities cannot be read") from error
    return Sample(
        ids=ids,
        logprobs=[UNKNOWN if place is None else values[place] for place in places],
        finish=str(answer.get("stop_type")),
        cached_tokens=(answer.get("timings") or {}).get("cache_n") or 0,
        top=top,
    )


def aligned(ids: Sequence[Any], entries: Sequence[Any]) -> list[int | None]:
    """For each id the index of its entry, None where there is none or it could be one of two.

    Entries keep the ids' order; matching from the left and from the right differs only where an entry is ambiguous.
    """
    left = _matched(ids, entries)
    last = len(entries) - 1
    right = [None if place is None else last - place for place in _matched(ids[::-1], entries[::-1])][::-1]
    if len(ids) - left.count(None) != len(entries):
        raise EngineError("engine_error", "the engine returned log probabilities of tokens it did not sample")
    return [one if one == other else None for one, other in zip(left, right, strict=True)]


def missing(sample: Sample) -> list[int]:
    return [position for position, value in enumerate(sample.logprobs) if value is UNKNOWN]


def cut(sample: Sample, stop_ids: Sequence[int]) -> Sample:
    """`sample` up to its first stop token: llama.cpp itself stops only on those its model file names."""
    finish = "length" if sample.finish == "limit" else sample.finish
    end = next((index for index, token in enumerate(sample.ids) if token in stop_ids), None)
    if end is None:
        return replace(sample, finish=finish)
    return replace(sample, ids=sample.ids[: end + 1], logprobs=sample.logprobs[: end + 1], finish="stop")


def lookup_body(prompt_ids: list[int], vocab_size: int) -> dict[str, Any]:
    """Ask for the whole distribution after `prompt_ids`.

    The first token of the vocabulary is forced, because llama.cpp shows a distribution only with a sampled token whose
    text is whole; the forcing does not enter the log probabilities.
    """
    return {
        "prompt": prompt_ids,
        "n_predict": 1,
        "temperature": 1.0,
        "samplers": ["temperature"],
        "n_probs": vocab_size,
        "logit_bias": [[0, 1000.0]],
        "return_tokens": True,
        "cache_prompt": True,
    }


def read_lookup(answer: Any, token: int, temperature: float) -> float:
    """The log probability of `token` at `temperature` in the answer to `lookup_body`."""
    entries = field_of(answer, "completion_probabilities", list)
    values = {item["id"]: item["logprob"] for item in field_of(entries[0] if entries else None, "top_logprobs", list)}
    if token not in values:
        raise EngineError("engine_error", f"the engine returned no log probability for its sampled token {token}")
    if temperature == 0:
        return float(values[token])
    norm = math.log(math.fsum(math.exp(value / temperature) for value in values.values()))
    return float(values[token] / temperature - norm)


def _matched(ids: Sequence[Any], entries: Sequence[Any]) -> list[int | None]:
    places: list[int | None] = []
    found = 0
    for token in ids:
        if found < len(entries) and entries[found] == token:
            places.append(found)
            found += 1
        else:
            places.append(None)
    return places


def _logprob(entry: Any) -> Any:
    if "logprob" in entry:
        return entry["logprob"]
    return math.log(entry["prob"]) if entry["prob"] > 0 else None
