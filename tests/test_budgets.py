"""Budgets hold for calls side by side, in one gateway process and in several over one store."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from harbor_env.gateway.types import Generation, Message
from tests.play import logprobs
from tests.serving import FakeEngine, Served, serving
from tests.waiting import until

ASK = {"model": "m", "messages": [{"role": "user", "content": "Hi."}]}
BODIES = {
    "/v1/chat/completions": ASK,
    "/v1/responses": {"model": "m", "input": "Hi."},
    "/v1/messages": {**ASK, "max_tokens": 100},
    "/v1beta/models/m:generateContent": {"contents": [{"role": "user", "parts": [{"text": "Hi."}]}]},
}


async def ask(served: Served, key: str, path: str = "/v1/chat/completions") -> str:
    """The whole answer as text, its status being 200."""
    headers = {"Authorization": f"Bearer {key}"}
    async with served.client.post(path, json=BODIES[path], headers=headers) as response:
        assert response.status == 200
        return await response.text()


def replies(length: int, count: int) -> list[Message | Generation | Exception]:
    ids = [*range(1001, 1000 + length), 5]
    return [Generation(ids, logprobs(ids), "stop") for _ in range(count)]


async def test_parallel_calls_get_no_more_turns_than_the_budget(tmp_path: Path) -> None:
    async with serving(tmp_path, FakeEngine()) as served:
        key = await served.key(budget={"max_calls": 3})
        await asyncio.gather(*(ask(served, key) for _ in range(24)))
        counts = await served.counts(key)
        assert (counts["turns"], counts["findings"]["budget_calls"]) == (3, 21)
        assert len(served.engine.requests) == 3


async def test_parallel_calls_sample_no_more_tokens_than_the_budget(tmp_path: Path) -> None:
    async with serving(tmp_path, FakeEngine(replies(8, 12))) as served:
        key = await served.key(budget={"max_output_tokens": 20})
        served.engine.gate.clear()
        asking = [asyncio.create_task(ask(served, key)) for _ in range(12)]
        await until(lambda: len(served.engine.requests) >= 12)
        served.engine.gate.set()
        await asyncio.gather(*asking)
        counts = await served.counts(key)
        assert (counts["turns"], counts["tokens"]["sampled"]) == (3, 20)
        assert (counts["findings"]["max_tokens_clamped"], counts["findings"]["budget_output_tokens"]) == (1, 9)


@pytest.mark.parametrize(
    ("budget", "turns", "sampled"), [({"max_calls": 3}, 3, 24), ({"max_output_tokens": 20}, 3, 20)]
)
async def test_several_gateways_over_one_store_keep_one_budget(
    tmp_path: Path, budget: dict[str, Any], turns: int, sampled: int
) -> None:
    async with AsyncExitStack() as stack:
        gateways = [await stack.enter_async_context(serving(tmp_path, FakeEngine(replies(8, 6)))) for _ in range(3)]
        key = await gateways[0].key(budget=budget)
        for served in gateways:
            served.engine.gate.clear()
        asking = [asyncio.create_task(ask(served, key)) for served in gateways for _ in range(2)]
        await until(lambda: all(len(served.engine.requests) >= 2 for served in gateways))
        for served in gateways:
            served.engine.gate.set()
        said = await asyncio.gather(*asking)
        assert sum("budget" in text for text in said) == 6 - turns
        for served in gateways:
            counts = await served.counts(key)
            assert (counts["turns"], counts["tokens"]["sampled"]) == (turns, sampled)


@pytest.mark.parametrize("path", BODIES)
async def test_wall_time_ends_a_generation_and_stops_the_agent_in_its_own_dialect(tmp_path: Path, path: str) -> None:
    engine = FakeEngine(holds_from=2)
    async with serving(tmp_path, engine) as served:
        key = await served.key(budget={"max_seconds": 0.3})
        assert "Reply 1." in await ask(served, key, path)
        assert "0.3 seconds" in await ask(served, key, path)
        assert engine.aborted == 1
        assert "0.3 seconds" in await ask(served, key, path)
        assert len(engine.requests) == 2
        counts = await served.counts(key)
        assert (counts["turns"], counts["findings"]["budget_seconds"]) == (1, 2)


async def test_wall_time_begins_with_the_first_call_and_outlives_the_gateway(tmp_path: Path) -> None:
    opened = time.time()
    async with serving(tmp_path) as served:
        served.gateway.sessions.clock = lambda: opened + 3600
        key = await served.key(budget={"max_seconds": 600})
        assert "Reply 1." in await ask(served, key)
    async with serving(tmp_path) as served:
        served.gateway.sessions.clock = lambda: opened + 3600 + 601
        assert "600.0 seconds" in await ask(served, key)


async def test_a_call_that_failed_gives_its_place_in_the_budget_back(tmp_path: Path) -> None:
    async with serving(tmp_path, FakeEngine([ValueError("broken")])) as served:
        key = await served.key(budget={"max_calls": 1})
        headers = {"Authorization": f"Bearer {key}"}
        for expected in (500, 200):
            async with served.client.post("/v1/chat/completions", json=ASK, headers=headers) as response:
                assert response.status == expected
        assert (await served.counts(key))["turns"] == 1


async def test_a_stop_is_no_turn_in_any_export(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        key = await served.key(budget={"max_calls": 1})
        for _ in range(3):
            await ask(served, key)
        async with served.client.get(f"/sessions/{key}/export?format=trace") as response:
            trace = await response.json()
        assert Counter(turn["reply"]["content"] for turn in trace["turns"]) == {"Reply 1.": 1}
