"""The vLLM engine against a running vLLM: VLLM_URL names it (scripts/serve_vllm.sh starts one)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from harbor_env.errors import EngineError
from harbor_env.gateway.engines import Engine, open_engine
from tests.engine_requests import STOP, engine_request

URL = os.environ.get("VLLM_URL", "")
PROMPT = [1, 4093, 198, 1780, 314, 260, 3575, 282, 4649, 47, 2, 198, 1, 520, 9531, 198]
pytestmark = [
    pytest.mark.live,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not URL, reason="VLLM_URL is not set: start scripts/serve_vllm.sh and name its URL"),
]


@pytest_asyncio.fixture
async def engine() -> AsyncIterator[Engine]:
    engine = open_engine("vllm", url=URL)
    yield engine
    await engine.close()


async def test_it_is_graded_tokens_and_says_by_which_route(engine: Engine) -> None:
    info = await engine.probe()
    assert (info.level, info.findings) == ("tokens", ())
    assert info.route.startswith(("/inference/v1/generate", "/v1/completions, because"))
    assert info.max_model_len > 0


@pytest.mark.parametrize("temperature", [1.0, 0.6])
async def test_one_seed_has_one_answer_to_the_bit(engine: Engine, temperature: float) -> None:
    asked = engine_request(PROMPT, max_tokens=24, temperature=temperature, seed=5)
    first, again = await engine.generate(asked), await engine.generate(asked)
    assert list(first.ids) == list(again.ids)
    assert list(first.logprobs) == list(again.logprobs)
    assert first.trainable


async def test_the_stop_token_is_sampled_and_carries_its_logprob(engine: Engine) -> None:
    for seed in range(20):
        generation = await engine.generate(engine_request(PROMPT, max_tokens=64, temperature=0.5, seed=seed))
        if generation.finish == "stop":
            assert generation.ids[-1] == STOP
            return
    pytest.fail("no reply ended by itself")


async def test_a_prompt_seen_before_is_cached_and_changes_nothing(engine: Engine) -> None:
    asked = engine_request([1000 + n for n in range(300)], max_tokens=4)
    first, again = await engine.generate(asked), await engine.generate(asked)
    assert again.cached_tokens >= 256
    assert list(first.ids) == list(again.ids)
    assert list(first.logprobs) == pytest.approx(list(again.logprobs), abs=1e-3)


async def test_a_prompt_beyond_the_window_is_an_overflow(engine: Engine) -> None:
    window = (await engine.probe()).max_model_len
    with pytest.raises(EngineError) as caught:
        await engine.generate(engine_request([100] * (window + 1)))
    assert caught.value.kind == "overflow"


async def test_cancelling_a_call_aborts_it_at_the_engine(engine: Engine) -> None:
    await engine.probe()
    task: asyncio.Task[Any] = asyncio.create_task(
        engine.generate(engine_request([100, 200], max_tokens=2000, stop_ids=()))
    )
    await asyncio.wait_for(_running(1), 60)
    task.cancel()
    await asyncio.wait_for(_running(0), 5)


async def _running(count: int) -> None:
    """Wait until vLLM says that it runs so many requests."""
    async with aiohttp.ClientSession() as session:
        while True:
            async with session.get(f"{URL}/metrics") as response:
                lines = (await response.text()).splitlines()
            values = [float(line.split()[-1]) for line in lines if line.startswith("vllm:num_requests_running")]
            if sum(values) == count:
                return
