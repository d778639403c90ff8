"""One pooled HTTP client per engine: JSON both ways, every failure named as an `EngineError`.

Nothing is limited that was not configured: no pool size, no total time. A cancelled call closes its connection, which
is how engines learn that nobody waits for the tokens any more.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from types import SimpleNamespace
from typing import Any

import aiohttp
import numpy as np
import orjson

from harbor_env.errors import EngineError, ErrorKind
from harbor_env.gateway.pace import Pace
from harbor_env.gateway.types import Ids

CONNECT_SECONDS = 10.0
KEEPALIVE_SECONDS = 4.0  # below the 5 s after which uvicorn, which vLLM serves with, drops an idle connection
EXCERPT = 240
READ_AT_ONCE = 8
"""Answers decoded in one pass of the event loop: an engine may finish hundreds in one step."""
_OVERFLOW = re.compile(
    r"maximum model length|maximum context length|context_length_exceeded|exceeds the available context size"
    r"|longer than the model's context length|prompt is too long|input is too long|too many (input )?tokens",
    re.IGNORECASE,
)


class RefusedError(EngineError):
    """The engine answered with an HTTP error; `http_status` is the engine's own."""

    def __init__(self, kind: ErrorKind, message: str, http_status: int, retry_after: float | None = None) -> None:
        super().__init__(kind, message, retry_after=retry_after)
        self.http_status = http_status


def wire_ids(ids: Ids) -> Any:
    """`ids` in a form that `orjson` writes as a JSON array without a Python loop."""
    return ids if isinstance(ids, list) else np.asarray(ids, dtype=np.int32)


class Connection:
    """Requests to the engine at `url`.

    `timeout` is in seconds for a whole call, None for no limit. `proxies` lets the environment name a proxy, which only
    engines outside this machine's network need.
    """

    def __init__(self, url: str, *, api_key: str = "", timeout: float | None = None, proxies: bool = False) -> None:
        self.url = url.rstrip("/")
        self._headers = {"content-type": "application/json"}
        if api_key:
            self._headers["authorization"] = f"Bearer {api_key}"
        self._timeout = timeout
        self._proxies = proxies
        self._session: aiohttp.ClientSession | None = None
        self._pace = Pace(READ_AT_ONCE)

    async def get(self, path: str) -> Any:
        return await self._call("GET", path, None)

    async def post(self, path: str, body: Mapping[str, Any]) -> Any:
        return await self._call("POST", path, orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY))

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _call(self, method: str, path: str, data: bytes | None) -> Any:
        try:
            status, headers, body = await self._exchange(method, path, data)
        except aiohttp.ConnectionTimeoutError as error:
            raise EngineError("engine_down", f"the engine at {self.url} did not accept a connection") from error
        except TimeoutError as error:
            raise EngineError("engine_timeout", f"no answer from {self.url}{path} in {self._timeout} s") from error
        except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError) as error:
            raise EngineError("engine_error", f"{self.url} is not an engine's URL") from error
        except (aiohttp.ClientError, OSError) as error:
            raise EngineError("engine_down", f"the engine at {self.url} is down: {_reason(error)}") from error
        if status >= 400:
            raise refusal(status, headers, body, f"{self.url}{path}")
        await self._pace.turn()
        return decoded(body, f"{self.url}{path}")

    async def _exchange(self, method: str, path: str, data: bytes | None) -> tuple[int, Mapping[str, str], bytes]:
        """Status, headers and body. A pooled connection that the engine had closed meanwhile is tried once more."""
        while True:
            seen = SimpleNamespace(reused=False)
            try:
                async with self._open().request(method, self.url + path, data=data, trace_request_ctx=seen) as response:
                    return response.status, response.headers, await response.read()
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
                if not seen.reused:
                    raise

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE_SECONDS),
                timeout=aiohttp.ClientTimeout(total=self._timeout, sock_connect=CONNECT_SECONDS),
                headers=self._headers,
                trust_env=self._proxies,
                trace_configs=[_reuse_trace()],
            )
        return self._session


def decoded(body: bytes, where: str) -> Any:
    """`body` as JSON. `NaN` and `Infinity`, which some servers write, are read as floats."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        pass
    try:
        return json.loads(body)
    except ValueError as error:
        raise EngineError("engine_error", f"{where} did not answer with JSON: {_excerpt(body)}") from error


def refusal(status: int, headers: Mapping[str, str], body: bytes, where: str) -> RefusedError:
    """The engine's HTTP error in our terms: overflow, rate_limited (with its Retry-After), or engine_error."""
    text = _excerpt(body)
    if status == 429:
        return RefusedError("rate_limited", text or "the engine is busy", status, retry_after(headers))
    if status in (400, 413, 422) and _OVERFLOW.search(body.decode(errors="replace")):
        return RefusedError("overflow", text, status)
    return RefusedError("engine_error", f"{where} answered {status}: {text}", status, retry_after(headers))


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds a `Retry-After` header asks to wait, given as seconds or as an HTTP date; None without a usable one."""
    value = headers.get("Retry-After", "")
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        moment = parsedate_to_datetime(value)
    except ValueError:
        return None
    return max(0.0, (moment - datetime.now(moment.tzinfo or UTC)).total_seconds()) if moment.tzinfo else None


def _excerpt(body: bytes) -> str:
    """The message of a JSON error body, else its text, on one line and short."""
    text = body.decode(errors="replace")
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        value = None
    while isinstance(value, dict):
        value = next((value[key] for key in ("error", "message", "detail") if value.get(key)), None)
    line = " ".join((value if isinstance(value, str) else text).split())
    return line if len(line) <= EXCERPT else line[:EXCERPT] + "..."


def _reason(error: BaseException) -> str:
    return str(error) or type(error).__name__


def _reuse_trace() -> aiohttp.TraceConfig:
    async def note(_session: aiohttp.ClientSession, context: SimpleNamespace, _params: object) -> None:
        context.trace_request_ctx.reused = True

    trace = aiohttp.TraceConfig()
    trace.on_connection_reuseconn.append(note)
    return trace
