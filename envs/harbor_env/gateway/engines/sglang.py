"""SGLang's native `/generate`: token ids in, token ids and log probabilities out.

Source: SGLang's documentation of sampling parameters and native APIs. Tested against a fake that answers as documented,
not against a running SGLang. Invariant: a log probability is taken together with its token's id.
"""

from __future__ import annotations

from typing import Any

from harbor_env.errors import EngineError
from harbor_env.gateway.engines import EngineInfo, EngineRequest, EngineSpec
from harbor_env.gateway.engines.connection import Connection, wire_ids
from harbor_env.gateway.engines.probe import TOP, ProbedEngine, grade, probe_request, prompt_of
from harbor_env.gateway.engines.sample import Sample, accepted, field_of, sampling_fields
from harbor_env.gateway.engines.vllm import model_card
from harbor_env.gateway.types import Generation, WeightSpan

PATH = "/generate"


class SglangEngine(ProbedEngine):
    kind = "sglang"

    async def measure(self) -> EngineInfo:
        card = model_card(await self.connection.get("/v1/models"), self.model)
        found = await grade(self._probe_sample, self.prompt_ids)
        details = {"path": PATH, "processed_logprobs": found.processed}
        return EngineInfo("tokens", str(card["id"]), card.get("max_model_len") or 0, PATH, found.findings, details)

    async def sample(self, request: EngineRequest, info: EngineInfo) -> Generation:
        sample = read(await self.connection.post(PATH, body(request)))
        return accepted(sample, request.sampling, processed=info.details["processed_logprobs"])

    async def _probe_sample(self, temperature: float) -> Sample:
        return read(await self.connection.post(PATH, body(probe_request(self.prompt_ids, temperature), TOP)))


def body(request: EngineRequest, top: int = 0) -> dict[str, Any]:
    """The request; `no_stop_trim` keeps the stop token among the sampled ids."""
    sampling = request.sampling
    values = sampling_fields(request)
    values |= {"max_new_tokens": sampling.max_tokens, "skip_special_tokens": False, "no_stop_trim": True}
    if sampling.seed is not None:
        values["sampling_seed"] = sampling.seed
    return {
        "input_ids": wire_ids(request.prompt_ids),
        "sampling_params": values,
        "return_logprob": True,
        "top_logprobs_num": top,
    }


def read(answer: Any) -> Sample:
    """`meta_info.output_token_logprobs` is a list of `[logprob, token_id, text]`, one a sampled token."""
    meta = field_of(answer, "meta_info", dict)
    rows = field_of(meta, "output_token_logprobs", list)
    ids = answer.get("output_ids")
    if ids is None:
        ids = [_pair(row)[1] for row in rows]
    if len(ids) == len(rows) and any(_pair(row)[1] != token for row, token in zip(rows, ids, strict=True)):
        raise EngineError("engine_error", "the engine returned log probabilities of tokens it did not sample")
    finish = field_of(meta, "finish_reason", dict)
    version = meta.get("weight_version")
    first: Any = next(iter(meta.get("output_top_logprobs") or ()), None) or ()
    return Sample(
        ids=ids,
        logprobs=[_pair(row)[0] for row in rows],
        finish=str(finish.get("type")),
        weight_versions=(WeightSpan(str(version), 0, len(ids)),) if version is not None else (),
        cached_tokens=meta.get("cached_tokens") or 0,
        top={token: value for value, token in map(_pair, first) if value is not None},
    )


def _pair(row: Any) -> tuple[Any, Any]:
    if not isinstance(row, list) or len(row) < 2:
        raise EngineError("engine_error", f"the engine returned {row!r} as a log probability")
    return row[0], row[1]


def open_sglang(spec: EngineSpec) -> SglangEngine:
    """The server at the spec's URL. UsageError: the spec has options, of which there are none."""
    spec.only()
    connection = Connection(spec.base_url().removesuffix("/v1"), api_key=spec.api_key, timeout=spec.timeout)
    return SglangEngine(connection, model=spec.model, prompt_ids=prompt_of(spec.renderer))
