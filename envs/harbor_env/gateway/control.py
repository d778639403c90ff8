"""The gateway's own routes: sessions, exports, health, metrics and the model list."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, get_args

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from harbor_env.errors import GatewayError, UsageError
from harbor_env.gateway.bodies import read_body, read_raw
from harbor_env.gateway.engines import check_remote
from harbor_env.gateway.export import FORMATS, TRAINED_ROLES, Format
from harbor_env.gateway.options import Budget, EngineOptions, PinnedSampling, SessionOptions, refuse_deep
from harbor_env.gateway.respond import as_gateway_error
from harbor_env.gateway.running import Gateway
from harbor_env.gateway.store import SessionRecord
from harbor_env.gateway.stored_export import stored_counts, stored_export
from harbor_env.gateway.types import ConversationRole

Endpoint = Callable[[Request], Awaitable[Response]]
ROLES: tuple[str, ...] = get_args(ConversationRole)


class _Wire(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Engine(_Wire):
    kind: str = "vllm"
    url: str = ""
    model: str = ""
    api_key: str = ""


_INTEGERS = 2**63
"""Integers are kept as SQLite and JSON writers keep them: in 64 bits."""
_Whole = Annotated[int, Field(ge=-_INTEGERS, lt=_INTEGERS)]


class _Sampling(_Wire):
    temperature: float | None = Field(default=None, ge=0)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: _Whole | None = None
    max_tokens: _Whole | None = Field(default=None, ge=1)
    seed: _Whole | None = None


class _Budget(_Wire):
    max_calls: _Whole | None = Field(default=None, ge=0)
    max_output_tokens: _Whole | None = Field(default=None, ge=0)
    max_seconds: float | None = Field(default=None, ge=0, allow_inf_nan=False)


class CreateSession(_Wire):
    """The body of `POST /sessions`; every field may be left out."""

    metadata: dict[str, Any] = Field(default_factory=dict)
    engine: _Engine | None = None
    sampling: _Sampling = Field(default_factory=_Sampling)
    budget: _Budget = Field(default_factory=_Budget)
    history: Literal["tree", "as_sent"] = "tree"
    template_kwargs: dict[str, Any] = Field(default_factory=dict)
    purpose: Literal["train", "eval"] = "train"

    def options(self, defaults: Mapping[str, Any]) -> SessionOptions:
        return SessionOptions(
            metadata=self.metadata,
            engine=EngineOptions(**self.engine.model_dump()) if self.engine else None,
            sampling=PinnedSampling(**self.sampling.model_dump()),
            budget=Budget(**self.budget.model_dump()),
            history=self.history,
            template_kwargs={**defaults, **self.template_kwargs},
            purpose=self.purpose,
        )


def routes(gateway: Gateway) -> list[BaseRoute]:
    """Control routes need the admin key where one is set; health and the model list never do."""
    control = Control(gateway)
    found: list[BaseRoute] = [
        Route("/", control.hello, methods=["GET"]),
        Route("/health", control.health, methods=["GET"]),
        Route("/metrics", control.guarded(control.metrics), methods=["GET"]),
        Route("/sessions", control.guarded(control.create), methods=["POST"]),
        Route("/sessions/{session}", control.guarded(control.counts), methods=["GET"]),
        Route("/sessions/{session}", control.guarded(control.delete), methods=["DELETE"]),
        Route("/sessions/{session}/export", control.guarded(control.export), methods=["GET"]),
    ]
    for prefix in ("", "/sessions/{session}"):
        found += [Route(f"{prefix}/{version}/models", control.models, methods=["GET"]) for version in ("v1", "v1beta")]
    return found


class Control:
    """Endpoints over one gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def guarded(self, endpoint: Endpoint) -> Endpoint:
        """Refuse a caller without the admin key, and answer errors as JSON."""

        async def checked(request: Request) -> Response:
            try:
                self._check_admin(request)
                return await endpoint(request)
            except Exception as failure:  # noqa: BLE001 - the boundary to the client: every failure is answered as JSON
                error = as_gateway_error(failure)
                body = {"error": {"type": error.kind, "message": error.message}}
                return _json(body, error.status)

        return checked

    def _check_admin(self, request: Request) -> None:
        key = self._gateway.config.admin_key
        if not key:
            return
        _, _, bearer = request.headers.get("authorization", "").partition(" ")
        given = bearer or request.headers.get("x-api-key", "")
        if not secrets.compare_digest(given.encode(), key.encode()):
            raise GatewayError("unauthorized", "This route needs the admin key: Authorization: Bearer KEY.")

    async def hello(self, _: Request) -> Response:
        return _json({"service": "openenv-harbor gateway", "health": "/health"})

    async def health(self, _: Request) -> Response:
        opened = self._gateway.engines.known(None)
        engine = {"ready": True, **opened.facts()} if opened is not None else {"ready": False}
        control = "key" if self._gateway.config.admin_key else "open"
        in_flight = self._gateway.metrics.in_flight
        return _json({"status": "ok", "engine": engine, "control": control, "in_flight": in_flight})

    async def metrics(self, _: Request) -> Response:
        text = self._gateway.metrics.text(sessions=len(self._gateway.sessions))
        return Response(text, media_type="text/plain; version=0.0.4")

    async def models(self, _: Request) -> Response:
        opened = self._gateway.engines.known(None)
        name = opened.info.model if opened else (self._gateway.config.model or "policy")
        window = opened.info.max_model_len if opened else None
        entry = {"id": name, "object": "model", "type": "model", "created": 0, "owned_by": "policy"}
        entry |= {"display_name": name, "max_model_len": window, "name": f"models/{name}"}
        return _json({"object": "list", "data": [entry], "models": [entry], "has_more": False})

    async def create(self, request: Request) -> Response:
        """Open a session. `level` is null while its engine has not been reached."""
        limit = self._gateway.config.body_limit
        raw = await read_raw(request.stream(), limit)
        encoding = request.headers.get("content-encoding", "")
        wanted = _read_create(read_body(raw, encoding, limit, exact=True) if raw else {})
        options = wanted.options(self._gateway.config.template_kwargs)
        try:
            if options.engine is not None and options.engine.kind != self._gateway.config.engine_spec:
                check_remote(options.engine.kind)
            await self._gateway.engines.make(options.engine)
        except UsageError as error:
            raise GatewayError("bad_request", f"engine: {error}") from error
        engine = self._gateway.engines.known(options.engine)
        if engine is not None and engine.renderer is not None and options.template_kwargs:
            try:
                await asyncio.to_thread(engine.renderer.bind, options.template_kwargs)
            except UsageError as error:
                raise GatewayError("bad_request", f"template_kwargs: {error}") from error
        opened = await self._gateway.sessions.open(options)
        return _json(
            {
                "session_id": opened.id,
                "api_key": opened.key,
                "base_url": f"{self._gateway.config.url}/sessions/{opened.key}",
                "level": engine.info.level if engine else None,
            }
        )

    async def counts(self, request: Request) -> Response:
        record = self._record(request)
        counts = await asyncio.to_thread(stored_counts, self._gateway.store, record.id)
        return _json({**counts, "idle_s": round(self._gateway.store.idle_seconds(record.id), 3)})

    async def export(self, request: Request) -> Response:
        """The session in one format; `roles=main,subagent` and `discarded=train` say what is trained."""
        record = self._record(request)
        name = request.query_params.get("format", "trace")
        if name not in FORMATS:
            raise GatewayError("bad_request", f"format: {name!r} is none of {', '.join(FORMATS)}")
        wanted = FORMATS[name]
        query = request.query_params
        roles = tuple(query["roles"].split(",")) if "roles" in query else TRAINED_ROLES
        if unknown := [role for role in roles if role not in ROLES]:
            raise GatewayError("bad_request", f"roles: {unknown[0]!r} is none of {', '.join(ROLES)}")
        if query.get("discarded", "train") != "train":
            raise GatewayError("bad_request", f"discarded: expected train, got {query['discarded']!r}")
        everything = "discarded" in query
        body = await asyncio.to_thread(self._export, record, roles, everything, wanted)
        return Response(body, media_type=wanted.media_type)

    def _export(self, record: SessionRecord, roles: Sequence[str], train_discarded: bool, wanted: Format) -> bytes:
        store = self._gateway.store
        return wanted.encode(stored_export(store, record, trained_roles=roles, train_discarded=train_discarded))

    async def delete(self, request: Request) -> Response:
        await self._gateway.sessions.delete(self._record(request).id)
        return _json({"deleted": True})

    def _record(self, request: Request) -> SessionRecord:
        record = self._gateway.sessions.find(request.path_params["session"])
        if record is None:
            raise GatewayError("not_found", "There is no such session.")
        return record


def _read_create(body: Mapping[str, Any]) -> CreateSession:
    for name in ("metadata", "template_kwargs"):
        refuse_deep(name, body.get(name))
    try:
        return CreateSession.model_validate(body)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "body"
        raise GatewayError("bad_request", f"{field}: {first['msg']}") from error


def _json(document: Mapping[str, Any], status: int = 200) -> Response:
    return Response(orjson.dumps(document), status, media_type="application/json")
