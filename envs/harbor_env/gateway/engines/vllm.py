"""vLLM, or anything that answers as it does: token ids in, token ids and log probabilities out.

Invariant: ids come from the best route the server really has; one without such a route is used as a chat model, and
graded as one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from harbor_env.errors import EngineError
from harbor_env.gateway.engines import EngineInfo, EngineRequest, EngineSpec
from harbor_env.gateway.engines.connection import Connection, RefusedError
from harbor_env.gateway.engines.hosted import HostedEngine
from harbor_env.gateway.engines.probe import PLAIN_PROMPT, TOP, ProbedEngine, grade, probe_request, prompt_of
from harbor_env.gateway.engines.sample import Sample, accepted
from harbor_env.gateway.engines.vllm_wire import GENERATE, ROUTES, TokenRoute
from harbor_env.gateway.types import Generation, Ids


class VllmEngine(ProbedEngine):
    """`model` "" takes the first the server lists. `vocab_size`, where known, bounds the ids it may return.

    Serve with `--enable-scale-out --logprobs-mode processed_logprobs`; without the first `/v1/completions` is used,
    without the second only temperature 1 can be trained on.
    """

    kind = "vllm"

    def __init__(
        self, connection: Connection, *, model: str = "", prompt_ids: Ids = PLAIN_PROMPT, vocab_size: int | None = None
    ) -> None:
        super().__init__(connection, model=model, prompt_ids=prompt_ids)
        self.vocab_size = vocab_size
        self._chat = HostedEngine(connection, model=model, prefix="/v1")

    async def measure(self) -> EngineInfo:
        card = model_card(await self.connection.get("/v1/models"), self.model)
        model, window = str(card["id"]), int(card.get("max_model_len") or 0)
        reasons: list[str] = []
        for route in ROUTES.values():
            try:
                found = await grade(partial(self._probe_sample, route, model), self.prompt_ids)
            except EngineError as error:
                if not _unfit(error):
                    raise
                reasons.append(error.message)
                continue
            details = {"path": route.path, "processed_logprobs": found.processed}
            return EngineInfo("tokens", model, window, _because(route.path, reasons), found.findings, details)
        self._chat.model = model
        info = await self._chat.measure()
        return replace(info, max_model_len=window, route=_because(info.route, reasons))

    async def sample(self, request: EngineRequest, info: EngineInfo) -> Generation:
        if info.level != "tokens":
            return await self._chat.sample(request, info)
        route = ROUTES[info.details["path"]]
        sample = route.read(await self.connection.post(route.path, route.body(request, info.model, 0)))
        return accepted(
            sample,
            request.sampling,
            processed=info.details["processed_logprobs"],
            vocab_size=self.vocab_size,
        )

    async def _probe_sample(self, route: TokenRoute, model: str, temperature: float) -> Sample:
        body = route.body(probe_request(self.prompt_ids, temperature), model, TOP)
        return route.read(await self.connection.post(route.path, body))


def model_card(answer: Any, model: str) -> Mapping[str, Any]:
    """The entry of `/v1/models` for `model`, the first for ""; an adapter takes its window from its base model."""
    cards = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(cards, list) or not cards or not all(isinstance(card, dict) and "id" in card for card in cards):
        raise EngineError("engine_error", "the engine lists no models at /v1/models")
    named: dict[Any, dict[str, Any]] = {card["id"]: card for card in cards}
    if model and model not in named:
        raise EngineError("engine_error", f"the engine serves {', '.join(sorted(named))}; not {model}")
    card: dict[str, Any] = named[model] if model else cards[0]
    if not card.get("max_model_len") and card.get("parent") in named:
        return {**named[card["parent"]], "id": card["id"]}
    return card


def _unfit(error: EngineError) -> bool:
    """Whether a probe's failure says that the route is not for us, rather than that the engine is in trouble."""
    return error.kind == "engine_error" and not (isinstance(error, RefusedError) and error.http_status >= 500)


def _because(path: str, reasons: list[str]) -> str:
    hint = f" (vLLM opens {GENERATE} with --enable-scale-out)" if reasons and path in ROUTES else ""
    return f"{path}, because {'; '.join(reasons)}{hint}" if reasons else path


def open_vllm(spec: EngineSpec) -> VllmEngine:
    """The server at the spec's URL; its one option is `vocab_size`, in tokens. UsageError: there is another."""
    spec.only("vocab_size")
    connection = Connection(spec.base_url().removesuffix("/v1"), api_key=spec.api_key, timeout=spec.timeout)
    vocab_size = int(spec.number("vocab_size", 0)) or None
    return VllmEngine(connection, model=spec.model, prompt_ids=prompt_of(spec.renderer), vocab_size=vocab_size)
