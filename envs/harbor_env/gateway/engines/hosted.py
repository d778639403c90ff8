"""Engines that give no token ids: an OpenAI-compatible chat endpoint, for evaluation through the same harnesses.

Invariant: a generation from here has no ids and is never trainable.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from harbor_env.errors import EngineError
from harbor_env.gateway.engines import EngineInfo, EngineRequest, EngineSpec
from harbor_env.gateway.engines.chat_wire import chat_body, read_chat
from harbor_env.gateway.engines.connection import Connection, RefusedError
from harbor_env.gateway.engines.probe import PLAIN_PROMPT, ProbedEngine, probe_request
from harbor_env.gateway.types import Finding, Generation

PARAMETER_REFUSED = "parameter_refused"
_OPTIONAL = ("temperature", "top_p", "seed", "logprobs")


class HostedEngine(ProbedEngine):
    """`prefix` is the part of the path before `/chat/completions`.

    Parameters the endpoint refuses by name (reasoning models take no temperature, some want `max_completion_tokens`)
    are left out from then on, with a finding on every generation.
    """

    kind = "hosted"

    def __init__(self, connection: Connection, *, model: str = "", prefix: str = "") -> None:
        super().__init__(connection, model=model, prompt_ids=PLAIN_PROMPT)
        self._path = f"{prefix}/chat/completions"
        self._left_out: set[str] = set()

    async def measure(self) -> EngineInfo:
        if not self.model:
            raise EngineError("engine_error", "a chat engine needs the name of a model (--model)")
        answer = await self._ask(probe_request(PLAIN_PROMPT, 1.0), logprobs=True)
        read_chat(answer, ())
        level = "logprobs" if (answer["choices"][0].get("logprobs") or {}).get("content") else "text"
        return EngineInfo("logprobs" if level == "logprobs" else "text", self.model, 0, self._path, self._findings())

    async def sample(self, request: EngineRequest, info: EngineInfo) -> Generation:
        return read_chat(await self._ask(request, logprobs=False), request.call.tools, self._findings())

    async def _ask(self, request: EngineRequest, *, logprobs: bool) -> Any:
        while True:
            body = chat_body(request, self.model, logprobs=logprobs, left_out=self._left_out)
            try:
                return await self.connection.post(self._path, body)
            except RefusedError as error:
                refused = _refused_parameter(error, body)
                if refused is None:
                    raise
                self._left_out.add(refused)

    def _findings(self) -> tuple[Finding, ...]:
        names = sorted(self._left_out - {"max_tokens", "logprobs"})
        return tuple(Finding(PARAMETER_REFUSED, f"the engine takes no {name}") for name in names)


def _refused_parameter(error: RefusedError, body: dict[str, Any]) -> str | None:
    """The parameter of `body` a 400 complains about, None where it is about something else."""
    if error.http_status not in (400, 422) or error.kind != "engine_error":
        return None
    if "max_tokens" in body and "max_completion_tokens" in error.message:
        return "max_tokens"
    return next((name for name in _OPTIONAL if name in body and name in error.message), None)


def open_hosted(spec: EngineSpec) -> HostedEngine:
    """A chat API at the spec's URL. UsageError: the spec has options, of which there are none."""
    spec.only()
    url = spec.base_url()
    connection = Connection(url, api_key=spec.api_key, timeout=spec.timeout, proxies=True)
    return HostedEngine(connection, model=spec.model, prefix="" if urlsplit(url).path else "/v1")
