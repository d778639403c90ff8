"""One client's rollout is nobody else's: neither another client's, who has the server's key, nor a stranger's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest
import pytest_asyncio

from harbor_env.gateway.types import Message
from tests.env_serving import ACTION, Environments, environments
from tests.tiny_harness import write_task
from tests.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

PLAN = "a plan only its own client may read"
PUBLIC = {"/", "/health", "/schema", "/metadata", "/openapi.json", "/docs", "/redoc", "/list_environments"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Environments]:
    folder = tmp_path_factory.mktemp("server")
    write_task(folder / "tasks" / "one")
    async with environments(folder, folder / "tasks", admin_key="secret") as running:
        running.engine.answers[:] = [Message("assistant", PLAN)]
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def owned(server: Environments) -> AsyncIterator[dict[str, str]]:
    """What a client's rollout could be asked for by, while it still runs and when it has ended."""
    async with server.client(admin_key="secret") as env:
        await env.reset(episode_id="mine")
        step = await env.step(ACTION)
        result = step.observation.result
        assert result is not None
        assert PLAN in str(result.compact_trace())
        session = server.gateway.gateway.store.sessions()[0]
        yield {"rollout": result.id, "session": session.id, "episode": "mine"}


async def routes(http: aiohttp.ClientSession) -> list[tuple[str, str]]:
    async with http.get("/openapi.json") as response:
        paths = (await response.json())["paths"]
    return [(method.upper(), path) for path, methods in paths.items() for method in methods]


async def test_a_stranger_is_refused_everywhere_but_at_what_describes_the_environment(server: Environments) -> None:
    async with aiohttp.ClientSession(server.url) as http:
        found = await routes(http)
        assert len(found) > 10
        for method, path in found:
            if path in PUBLIC:
                continue
            async with http.request(method, path, json={}) as response:
                answer = await response.text()
                assert response.status == 401 or "needs the admin key" in answer, path
        for path in ("/ws", "/mcp"):
            with pytest.raises(aiohttp.WSServerHandshakeError, match="401"):
                await http.ws_connect(path)


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer secret"}, {"Authorization": "Bearer guess"}])
async def test_no_route_tells_of_a_rollout_by_any_name_it_goes_by(
    server: Environments, owned: dict[str, str], headers: dict[str, str]
) -> None:
    names = owned.values()
    asked = [f"{path}/{name}" for name in names for path in ("/state", "/sessions", "/capture/sessions", "/rollouts")]
    asked += [f"/capture/sessions/{name}/export?format=messages" for name in names]
    asked += [f"/state?session_id={name}&episode_id={name}" for name in names]
    asked += ["/metrics", "/capture/metrics", "/info", "/state"]
    async with aiohttp.ClientSession(server.url, headers=headers) as http:
        for path in asked:
            async with http.get(path) as response:
                answer = await response.text()
            assert PLAN not in answer, path
            assert not any(name in answer for name in (owned["rollout"], owned["session"])), path


async def test_another_client_s_state_and_reset_are_its_own(server: Environments, owned: dict[str, str]) -> None:
    async with server.client(admin_key="secret") as other:
        state = await other.state()
        assert (state.phase, state.turns, state.tokens) == ("idle", 0, 0)
        reset = await other.reset(episode_id=owned["episode"])
        state = await other.state()
        assert (reset.observation.result, state.phase, state.turns) == (None, "ready", 0)
    async with aiohttp.ClientSession(server.url, headers={"Authorization": "Bearer secret"}) as http:
        for method in ("openenv/session/close", "tools/list"):
            for name in owned.values():
                call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"session_id": name}}
                async with http.post("/mcp", json=call) as response:
                    assert "error" in await response.json(), method


async def test_a_running_step_is_told_to_its_own_connection_alone(server: Environments) -> None:
    server.engine.gate.clear()
    server.engine.arrived.clear()
    async with server.client(admin_key="secret") as mine, server.client(admin_key="secret") as other:
        await mine.reset()
        await other.reset()
        step = asyncio.create_task(mine.step(ACTION))
        await server.engine.arrived.wait()
        assert (await mine.state()).phase == "agent"
        assert (await other.state()).phase == "ready"
        server.engine.gate.set()
        await step
    await until(lambda: server.backend.pool.busy == 0)


async def test_names_of_rollouts_and_sessions_cannot_be_guessed(owned: dict[str, str]) -> None:
    assert len(owned["rollout"].removeprefix("r-")) >= 32
    assert len(owned["session"]) >= 32
