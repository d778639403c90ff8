"""The gateway as an ASGI app: thin routes over sessions, dialects and exports."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from harbor_env.config import GatewayConfig
from harbor_env.errors import GatewayError
from harbor_env.gateway import control
from harbor_env.gateway.bodies import read_body, read_raw
from harbor_env.gateway.dialects import DIALECTS, Dialect
from harbor_env.gateway.dialects import Route as DialectRoute
from harbor_env.gateway.engine_pool import EnginePool, MakeParts
from harbor_env.gateway.garbage import search_all_in_pauses
from harbor_env.gateway.parts import make_parts
from harbor_env.gateway.respond import Connection, as_gateway_error, respond, send_error
from harbor_env.gateway.running import Gateway
from harbor_env.gateway.sessions import LiveSession
from harbor_env.gateway.store import Store
from harbor_env.gateway.take_turn import count, take_turn
from harbor_env.gateway.types import Call

log = logging.getLogger(__name__)

KEPT_HEADERS = (
    "user-agent",
    "x-claude-code-agent-id",
    "x-openai-subagent",
    "x-codex-parent-thread-id",
    "thread-id",
    "x-codex-window-id",
    "x-parent-session-id",
    "x-session-id",
    "x-stainless-retry-count",
)
"""Request headers kept with a turn: they tell conversations of one harness apart. None carries a key."""
UPGRADE_REQUIRED = 426
BELOW_SESSION = "/sessions/"


class ModelRoute:
    """One dialect route: body to `Call`, a turn, and the reply on its way back."""

    def __init__(self, gateway: Gateway, dialect: Dialect, route: DialectRoute) -> None:
        self._gateway = gateway
        self._dialect = dialect
        self._action = route.action
        self._facts = route.params

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        metrics = self._gateway.metrics
        connection = Connection(receive, send)
        began = time.perf_counter()
        metrics.in_flight += 1
        outcome = "gone"
        try:
            outcome = await self._serve(Request(scope, receive), connection)
        except ClientDisconnect:
            pass
        except Exception as error:  # noqa: BLE001 - the boundary to the harness: every failure is answered in its dialect
            outcome = await send_error(connection, self._dialect, as_gateway_error(error))
        finally:
            metrics.in_flight -= 1
            metrics.calls[self._dialect.name, outcome] += 1
            metrics.call_seconds += time.perf_counter() - began

    async def _serve(self, request: Request, connection: Connection) -> str:
        gateway, dialect = self._gateway, self._dialect
        await gateway.pace.turn()
        live = await gateway.sessions.live(session_secret(request))
        raw = await read_raw(request.stream(), gateway.config.body_limit)
        body = read_body(raw, request.headers.get("content-encoding", ""), gateway.config.body_limit)
        call = dialect.decode(body, {**self._facts, **request.path_params})
        if self._action == "count":
            await connection.whole(200, dialect.count(count(live, call)))
            return "ok"
        headers = {name: value for name in KEPT_HEADERS if (value := request.headers.get(name))}
        return await respond(connection, dialect, call, self._take(live, call, headers), gateway.config.keepalive)

    async def _take(self, live: LiveSession, call: Call, headers: Mapping[str, str]) -> bytes:
        store, pace, metrics = self._gateway.store, self._gateway.pace, self._gateway.metrics
        answer = await take_turn(store, pace, live, call, dialect=self._dialect, headers=headers)
        metrics.prompt_tokens += answer.reply.usage.prompt_tokens
        metrics.sampled_tokens += answer.reply.usage.completion_tokens
        return answer.data


def session_secret(request: Request) -> str:
    """The session named by path, `Authorization: Bearer`, `x-api-key`, `x-goog-api-key` or Google's `key` parameter."""
    in_path = request.path_params.get("session")
    if in_path:
        return str(in_path)
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    headers = request.headers
    return headers.get("x-api-key") or headers.get("x-goog-api-key") or request.query_params.get("key", "")


def dialect_of(path: str, headers: Mapping[str, str]) -> Dialect:
    """The dialect a request to an unknown path most likely speaks."""
    signs = {
        "gemini": "/v1beta/" in path or "x-goog-api-key" in headers,
        "messages": "/messages" in path or "anthropic-version" in headers,
        "responses": "/responses" in path,
    }
    name = next((name for name, seen in signs.items() if seen and name in DIALECTS), "chat")
    return DIALECTS[name]


async def unknown_path(request: Request, _: Exception) -> Response:
    error = GatewayError("not_found", f"{request.method} {request.url.path}: this gateway has no such route.")
    status, body = dialect_of(request.url.path, request.headers).error(error)
    if request.headers.get("upgrade", "").lower() == "websocket":
        status = UPGRADE_REQUIRED  # the one refusal after which Codex speaks plain HTTP at once, without trying again
    return Response(body, status, media_type="application/json")


class GatewayApp(Starlette):
    """Starlette, with a short way to the routes that are called once a turn: those whose path has no parameters."""

    def __init__(self, gateway: Gateway, lifespan: Callable[[Starlette], AbstractAsyncContextManager[None]]) -> None:
        self._direct: dict[tuple[str, str], ASGIApp] = {}
        super().__init__(
            routes=[*self._model_routes(gateway), *control.routes(gateway)],
            lifespan=lifespan,
            exception_handlers={404: unknown_path, 405: unknown_path},
        )
        self.state.gateway = gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not scope["root_path"]:
            path: str = scope["path"]
            params: dict[str, str] = {}
            if path.startswith(BELOW_SESSION):
                params["session"], slash, rest = path[len(BELOW_SESSION) :].partition("/")
                path = slash + rest if params["session"] else ""
            endpoint = self._direct.get((scope["method"], path))
            if endpoint is not None:
                scope["path_params"] = params
                await endpoint(scope, receive, send)
                return
        await super().__call__(scope, receive, send)

    def _model_routes(self, gateway: Gateway) -> list[BaseRoute]:
        """Every dialect's routes, at the root and below `/sessions/{session}`."""
        found: list[BaseRoute] = []
        for dialect in DIALECTS.values():
            for route in dialect.routes:
                endpoint: ASGIApp = ModelRoute(gateway, dialect, route)
                if "{" not in route.path:
                    self._direct[route.method, route.path] = endpoint
                for prefix in ("", f"{BELOW_SESSION}{{session}}"):
                    found.append(Route(prefix + route.path, endpoint, methods=[route.method]))
        return found


def create_app(
    config: GatewayConfig,
    ready: Callable[[Gateway], Awaitable[None]] | None = None,
    make: MakeParts | None = None,
) -> Starlette:
    """The app for one process. Its store and engines open with the app's lifespan; `ready` runs when they are.

    `make` makes engines and renderers, by default as the settings say.
    """
    gateway = Gateway(config)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        store = Store.open(config.data)
        engines = EnginePool(make or make_parts(config), window=config.window)
        gateway.start(store, engines)
        searching = asyncio.create_task(search_all_in_pauses(gateway.metrics))
        try:
            if ready is not None:
                await ready(gateway)
            yield
        finally:
            searching.cancel()
            await engines.close()
            store.close()

    return GatewayApp(gateway, lifespan)
