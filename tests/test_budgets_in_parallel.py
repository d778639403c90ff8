"""Budgets hold for calls that are on their way side by side, wherever on the way they are."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.serving import FakeEngine, serving

ASK = {"model": "m", "messages": [{"role": "user", "content": "Hi."}]}


async def test_parallel_calls_get_no_more_turns_than_the_budget(tmp_path: Path) -> None:
    async with serving(tmp_path, FakeEngine()) as served:
        key = await served.key(budget={"max_calls": 3})

        async def ask() -> int:
            headers = {"Authorization": f"Bearer {key}"}
            async with served.client.post("/v1/chat/completions", json=ASK, headers=headers) as response:
                return response.status

        assert set(await asyncio.gather(*(ask() for _ in range(24)))) == {200}
        counts = await served.counts(key)
        assert (counts["turns"], counts["findings"]["budget_calls"]) == (3, 21)


async def test_a_call_that_failed_gives_its_place_in_the_budget_back(tmp_path: Path) -> None:
    async with serving(tmp_path, FakeEngine([ValueError("broken")])) as served:
        key = await served.key(budget={"max_calls": 1})
        headers = {"Authorization": f"Bearer {key}"}
        for expected in (500, 200):
            async with served.client.post("/v1/chat/completions", json=ASK, headers=headers) as response:
                assert response.status == expected
        assert (await served.counts(key))["turns"] == 1
