"""A client of the environment server, on openenv's own: async, and sync through `HarborEnv(url).sync()`.

    async with HarborEnv("http://127.0.0.1:8000") as env:
        await env.reset(split="train", seed=7)
        result = await env.step(HarborAction(harness="mini-swe-agent"))

Invariant: a step may take any time; it ends in an observation, or in ConnectionError once the server is not heard.
"""

from __future__ import annotations

import harbor_env.light_openenv  # noqa: F401  # first: it keeps openenv's web interface out

# isort: split
import asyncio
import json
from collections.abc import Callable
from typing import Any

import aiohttp
from openenv.core.client_types import StepResult
from openenv.core.env_client import EnvClient
from websockets.exceptions import ConnectionClosed

from harbor_env.models import HarborAction, HarborObservation, HarborState, TaskRef

HEARTBEAT = 15.0
"""Seconds between the frames a server sends while a step runs: below what proxies and tunnels cut."""
MISSED_BEATS = 6
MESSAGE_TIMEOUT = 120.0
ENVIRONMENT = "harbor_env"


class HarborEnv(EnvClient[HarborAction, HarborObservation, HarborState]):  # type: ignore[misc]
    """One episode at a time over one WebSocket.

    `admin_key` is the server's, where it has one. `message_timeout_s` bounds everything but a step. `on_state` hears
    where a running step is, every `heartbeat_s` seconds.
    """

    _ws: Any
    _ws_url: Any

    def __init__(
        self,
        base_url: str | None = None,
        *,
        admin_key: str = "",
        heartbeat_s: float = HEARTBEAT,
        message_timeout_s: float = MESSAGE_TIMEOUT,
        on_state: Callable[[HarborState], None] | None = None,
        headers: dict[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        self._heartbeat = heartbeat_s
        self._on_state = on_state
        self._stepping = False
        self._asked: list[asyncio.Future[HarborState]] = []
        self._key_header = {"Authorization": f"Bearer {admin_key}"} if admin_key else {}
        given = {**self._key_header, **(headers or {})}
        super().__init__(base_url, message_timeout_s=message_timeout_s, headers=given, **kwargs)

    def _set_base_url(self, base_url: str) -> None:
        super()._set_base_url(base_url)
        self._ws_url = f"{self._ws_url}?heartbeat={self._heartbeat:g}"

    def _step_payload(self, action: HarborAction) -> dict[str, Any]:
        payload: dict[str, Any] = action.model_dump(exclude_defaults=True)
        return payload

    def _parse_result(self, payload: dict[str, Any]) -> StepResult[HarborObservation]:
        fields = {**payload.get("observation", {}), "reward": payload.get("reward"), "done": payload.get("done", False)}
        observation = HarborObservation.model_validate(fields)
        return StepResult(observation, observation.reward, observation.done, payload.get("metadata"))

    def _parse_state(self, payload: dict[str, Any]) -> HarborState:
        state: HarborState = HarborState.model_validate(payload)
        return state

    async def _step_async(self, action: HarborAction, **kwargs: Any) -> StepResult[HarborObservation]:
        """Run the step, reading what the server says of it meanwhile. ConnectionError: it was not heard any more."""
        await self._send({"type": "step", "data": self._step_payload(action)})
        self._stepping = True
        try:
            result = None
            while result is None or self._asked:
                frame = await self._next_frame()
                if frame["type"] in ("heartbeat", "state"):
                    self._heard(frame)
                elif result is None:
                    result = self._parse_result(frame.get("data", {}))
            return result
        finally:
            self._stepping = False
            for asked in self._asked:
                if not asked.done():
                    asked.set_exception(ConnectionError("The step ended before the server told its state."))
            self._asked.clear()

    async def _next_frame(self) -> dict[str, Any]:
        silence = self._heartbeat * MISSED_BEATS if self._heartbeat else None
        if self._ws is None:
            raise ConnectionError("The connection was closed while a step ran.")
        ws = self._ws
        try:
            async with asyncio.timeout(silence):
                raw = await ws.recv()
        except TimeoutError:
            await self._drop()
            raise ConnectionError(f"The server at {self.base_url} was not heard for {silence:.0f} s.") from None
        except ConnectionClosed as error:
            await self._drop()
            raise ConnectionError(f"The server at {self.base_url} closed the connection: {error}.") from error
        except asyncio.CancelledError:
            await self._drop()
            raise
        frame: dict[str, Any] = json.loads(raw)
        if frame.get("type") == "error":
            told = frame.get("data", {})
            raise RuntimeError(f"Server error: {told.get('message')} (code: {told.get('code')})")
        return frame

    async def _drop(self) -> None:
        """Leave the socket: a reply still to come would be taken for that of the next request."""
        ws, self._ws, self._ws_loop = self._ws, None, None
        if ws is not None:
            self._schedule_socket_close(ws)

    def _heard(self, frame: dict[str, Any]) -> None:
        state = self._parse_state(frame.get("data", {}))
        if frame["type"] == "state" and self._asked:
            asked = self._asked.pop(0)
            if not asked.done():
                asked.set_result(state)
        elif self._on_state is not None:
            self._on_state(state)

    async def _state_async(self) -> HarborState:
        """The episode's state; also while another task or thread is in `step`."""
        if not self._stepping or self._ws is None:
            state: HarborState = await super()._state_async()
            return state
        asked: asyncio.Future[HarborState] = asyncio.get_running_loop().create_future()
        self._asked.append(asked)
        await self._ws.send(json.dumps({"type": "state"}))
        async with asyncio.timeout(self._message_timeout):
            return await asked

    async def splits(self) -> list[dict[str, Any]]:
        """The server's splits, each with name, type and num_tasks."""
        found: list[dict[str, Any]] = await self._http("GET", "splits")
        return found

    async def num_tasks(self, split: str) -> int:
        return int((await self._http("POST", "num_tasks", {"split": split}))["num_tasks"])

    async def task(self, split: str, index: int) -> TaskRef:
        answer = await self._http("POST", "task", {"split": split, "index": index})
        return TaskRef.model_validate(answer["task"])

    async def tasks(self, split: str, start: int | None = None, stop: int | None = None) -> list[TaskRef]:
        answer = await self._http("POST", "task_range", {"split": split, "start": start, "stop": stop})
        return [TaskRef.model_validate(task) for task in answer["tasks"]]

    async def _http(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        self._start_provider_if_needed()
        url = str(self.base_url)
        url = f"http{url.removeprefix('ws')}" if url.startswith("ws") else url
        timeout = aiohttp.ClientTimeout(total=self._message_timeout)
        async with (
            aiohttp.ClientSession(headers=self._headers, timeout=timeout) as http,
            http.request(method, f"{url}/{ENVIRONMENT}/{path}", json=body) as response,
        ):
            answer = await response.json(content_type=None)
            if response.status >= 400:
                raise RuntimeError(f"Server error: {answer.get('detail') or answer} (status {response.status})")
            return answer
