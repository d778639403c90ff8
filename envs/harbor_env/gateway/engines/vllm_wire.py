"""vLLM's two token routes as data: what is sent, and how an answer becomes a `Sample`.

Sources: vLLM's `entrypoints/scale_out/token_in_token_out/protocol.py` and `entrypoints/openai/completion/protocol.py`.
Invariant: a log probability is taken by the sampled token's id, never by its place among alternatives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from harbor_env.errors import EngineError
from harbor_env.gateway.engines import EngineRequest
from harbor_env.gateway.engines.connection import wire_ids
from harbor_env.gateway.engines.sample import Sample, field_of, sampling_fields
from harbor_env.gateway.types import WeightSpan

GENERATE = "/inference/v1/generate"
COMPLETIONS = "/v1/completions"


@dataclass(frozen=True, slots=True)
class TokenRoute:
    """`body(request, model, top)` asks for `top` alternatives a token; `read` raises `EngineError` on nonsense."""

    path: str
    body: Callable[[EngineRequest, str, int], dict[str, Any]]
    read: Callable[[Any], Sample]


def _sampling(request: EngineRequest, top: int) -> dict[str, Any]:
    sampling = request.sampling
    values = {**sampling_fields(request), "max_tokens": sampling.max_tokens, "logprobs": top}
    if sampling.seed is not None:
        values["seed"] = sampling.seed
    return values


def generate_body(request: EngineRequest, model: str, top: int) -> dict[str, Any]:
    return {"model": model, "token_ids": wire_ids(request.prompt_ids), "sampling_params": _sampling(request, top)}


def completions_body(request: EngineRequest, model: str, top: int) -> dict[str, Any]:
    return {
        "model": model,
        "prompt": wire_ids(request.prompt_ids),
        "return_token_ids": True,
        "return_tokens_as_token_ids": True,
        **_sampling(request, top),
    }


def read_generate(answer: Any) -> Sample:
    """An answer of `/inference/v1/generate`: `logprobs.content[i]` is `{token_id, logprob, top_logprobs}`."""
    choice = _choice(answer)
    ids = field_of(choice, "token_ids", list)
    entries = field_of(field_of(choice, "logprobs", dict), "content", list)
    if len(entries) != len(ids):
        raise EngineError("engine_error", f"the engine returned {len(ids)} token ids and {len(entries)} logprobs")
    logprobs = _aligned_logprobs(entries, ids) or [_entry_logprob(*row) for row in zip(entries, ids, strict=True)]
    first = entries[0].get("top_logprobs") or [] if entries else []
    top = {item["token_id"]: item["logprob"] for item in first if item.get("logprob") is not None}
    return _sample(answer, choice, ids, logprobs, top)


def read_completions(answer: Any) -> Sample:
    """An answer of `/v1/completions`: parallel lists, tokens spelled `token_id:N`."""
    choice = _choice(answer)
    ids = field_of(choice, "token_ids", list)
    listed = field_of(choice, "logprobs", dict)
    tokens, values = field_of(listed, "tokens", list), field_of(listed, "token_logprobs", list)
    tops = listed.get("top_logprobs") or [None] * len(tokens)
    if not len(tokens) == len(values) == len(tops) == len(ids):
        raise EngineError("engine_error", f"the engine returned {len(ids)} token ids and {len(values)} logprobs")
    logprobs = [_named_logprob(*row) for row in zip(ids, tokens, values, tops, strict=True)]
    top = {int(name.removeprefix("token_id:")): value for name, value in (tops[0] or {}).items()} if tops else {}
    return _sample(answer, choice, ids, logprobs, top)


def _choice(answer: Any) -> Mapping[str, Any]:
    choices = field_of(answer, "choices", list)
    if len(choices) != 1 or not isinstance(choices[0], dict):
        raise EngineError("engine_error", f"the engine returned {len(choices)} choices where one was asked for")
    return choices[0]


def _aligned_logprobs(entries: list[Any], ids: list[Any]) -> list[Any] | None:
    """The log probabilities, where each entry is plainly that of its token, as nearly always; else None."""
    try:
        return [entry["logprob"] for entry in entries] if [entry["token_id"] for entry in entries] == ids else None
    except (KeyError, TypeError):
        return None


def _entry_logprob(entry: Any, token: Any) -> Any:
    if type(entry) is dict and entry.get("token_id") == token:
        return entry.get("logprob")
    for candidate in (entry, *(entry.get("top_logprobs") or ())) if isinstance(entry, dict) else ():
        if candidate.get("token_id") == token:
            return candidate.get("logprob")
    raise EngineError("engine_error", f"the engine returned no log probability for its sampled token {token!r}")


def _named_logprob(token: Any, name: Any, value: Any, top: Any) -> Any:
    wanted = f"token_id:{token}"
    if name == wanted:
        return value
    if isinstance(top, dict) and wanted in top:
        return top[wanted]
    raise EngineError("engine_error", f"the engine returned no log probability for its sampled token {token!r}")


def _sample(
    answer: Any, choice: Mapping[str, Any], ids: list[Any], logprobs: list[Any], top: dict[int, float]
) -> Sample:
    details = (answer.get("usage") or {}).get("prompt_tokens_details") or {}
    spans = choice.get("weight_versions") or ()
    return Sample(
        ids=ids,
        logprobs=logprobs,
        finish=str(choice.get("finish_reason")),
        weight_versions=tuple(WeightSpan(str(span["version"]), span["start"], span["end"]) for span in spans),
        cached_tokens=details.get("cached_tokens") or 0,
        top=top,
        prompt_ids=answer.get("prompt_token_ids") or choice.get("prompt_token_ids"),
    )


ROUTES: Mapping[str, TokenRoute] = {
    GENERATE: TokenRoute(GENERATE, generate_body, read_generate),
    COMPLETIONS: TokenRoute(COMPLETIONS, completions_body, read_completions),
}
