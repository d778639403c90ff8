"""llama.cpp: embedded through the package xllamacpp, or a llama-server somewhere else.

Invariant: every sampled id comes with its log probability under the distribution sampled from. llama.cpp does not
notice that a caller left before it is done, so a generation is asked for in pieces, each continuing the last exactly.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from harbor_env.errors import EngineError
from harbor_env.gateway.engines import EngineInfo, EngineRequest, EngineSpec, SamplingParams
from harbor_env.gateway.engines.connection import Connection
from harbor_env.gateway.engines.llamacpp_server import EmbeddedServer, model_file
from harbor_env.gateway.engines.llamacpp_wire import PATH, body, cut, lookup_body, missing, read, read_lookup
from harbor_env.gateway.engines.probe import PLAIN_PROMPT, TOP, ProbedEngine, grade, probe_request, prompt_of
from harbor_env.gateway.engines.sample import Sample, accepted, field_of
from harbor_env.gateway.types import Generation, Ids

PIECE = 32
"""Tokens asked for at a time, so at most this many are sampled for nobody after a cancelled call."""


class LlamaCppEngine(ProbedEngine):
    """With `server`, llama.cpp is started inside this process at the first probe and stopped by `close`."""

    kind = "llamacpp"

    def __init__(
        self, connection: Connection, *, server: EmbeddedServer | None = None, prompt_ids: Ids = PLAIN_PROMPT
    ) -> None:
        super().__init__(connection, prompt_ids=prompt_ids)
        self._server = server
        self._vocab_size = 0
        self._slots = asyncio.Semaphore(1)

    async def measure(self) -> EngineInfo:
        if self._server is not None:
            self.connection.url = await self._server.started()
        cards = field_of(await self.connection.get("/v1/models"), "data", list)
        self._vocab_size = field_of(field_of(cards[0], "meta", dict), "n_vocab", int)
        properties = await self.connection.get("/props")
        settings = field_of(properties, "default_generation_settings", dict)
        self._slots = asyncio.Semaphore(field_of(properties, "total_slots", int))
        found = await grade(self._probe_sample, self.prompt_ids)
        details = {"path": PATH, "processed_logprobs": found.processed}
        name = str(cards[0].get("id")).rsplit("/", 1)[-1]
        return EngineInfo("tokens", name, field_of(settings, "n_ctx", int), PATH, found.findings, details)

    async def sample(self, request: EngineRequest, info: EngineInfo) -> Generation:
        # A generation keeps its place until it is done: between pieces, another's prompt would take its cache.
        async with self._slots:
            sample = await self._pieces(request, info.max_model_len)
        return accepted(
            sample,
            request.sampling,
            processed=info.details["processed_logprobs"],
            vocab_size=self._vocab_size,
        )

    async def _pieces(self, request: EngineRequest, window: int) -> Sample:
        prompt = list(request.prompt_ids)
        if len(prompt) >= window:
            raise _overflow(len(prompt), window)
        sample = Sample([], [], "length")
        while (left := request.sampling.max_tokens - len(sample.ids)) > 0 and len(prompt) < window:
            asked = replace(request, prompt_ids=prompt, sampling=_piece(request.sampling, left, len(sample.ids)))
            piece = cut(read(await self.connection.post(PATH, body(asked))), request.stop_ids)
            await self._complete(asked, piece)
            sample = _joined(sample, piece)
            prompt += piece.ids
            if piece.finish != "length" or len(piece.ids) < asked.sampling.max_tokens:
                break
        return sample

    async def lookup(self, prompt_ids: list[int], token: int, temperature: float) -> float:
        """The log probability of `token` after `prompt_ids`, from the whole distribution: slow, and exact."""
        answer = await self.connection.post(PATH, lookup_body(prompt_ids, self._vocab_size))
        return read_lookup(answer, token, temperature)

    async def close(self) -> None:
        await super().close()
        if self._server is not None:
            await self._server.stop()

    async def _complete(self, request: EngineRequest, piece: Sample) -> None:
        """Ask for the log probabilities llama.cpp leaves out: those of tokens that end inside a character."""
        for position in missing(piece):
            prefix = [*request.prompt_ids, *piece.ids[:position]]
            piece.logprobs[position] = await self.lookup(prefix, piece.ids[position], request.sampling.temperature)

    async def _probe_sample(self, temperature: float) -> Sample:
        request = probe_request(self.prompt_ids, temperature)
        sample = cut(read(await self.connection.post(PATH, body(request, TOP))), ())
        await self._complete(request, sample)
        return sample


def _piece(sampling: SamplingParams, left: int, done: int) -> SamplingParams:
    """The next piece's sampling; each has a seed of its own, or all would draw the same numbers."""
    seed = None if sampling.seed is None else (sampling.seed + done) % 2**32
    return replace(sampling, max_tokens=min(PIECE, left), seed=seed)


def _joined(before: Sample, piece: Sample) -> Sample:
    cached = piece.cached_tokens if not before.ids else before.cached_tokens
    ids, logprobs = [*before.ids, *piece.ids], [*before.logprobs, *piece.logprobs]
    return Sample(ids, logprobs, piece.finish, cached_tokens=cached)


def open_llamacpp(spec: EngineSpec) -> LlamaCppEngine:
    """A URL names a llama-server; otherwise the argument is a GGUF file, by default the packaged SmolLM2.

    Options of the embedded one: `context` tokens for each of `slots` conversations, `threads` (0: half the cores).
    """
    prompt_ids = prompt_of(spec.renderer)
    if spec.url or "://" in spec.argument:
        spec.only()
        connection = Connection(spec.base_url(), api_key=spec.api_key, timeout=spec.timeout)
        return LlamaCppEngine(connection, prompt_ids=prompt_ids)
    spec.only("context", "slots", "threads")
    server = EmbeddedServer(
        model_file(spec.argument),
        context=int(spec.number("context", 8192)),
        slots=int(spec.number("slots", 4)),
        threads=int(spec.number("threads", 0)),
    )
    return LlamaCppEngine(Connection("", timeout=spec.timeout), server=server, prompt_ids=prompt_ids)


def _overflow(length: int, window: int) -> EngineError:
    message = f"the prompt is {length} tokens long, the window {window}"
    return EngineError("overflow", message, prompt_tokens=length, window=window)
