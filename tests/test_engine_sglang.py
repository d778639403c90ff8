"""The SGLang engine against a fake that answers as SGLang's documentation says."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio

from harbor_env.errors import EngineError
from harbor_env.gateway.engines import Engine, open_engine
from harbor_env.gateway.types import WeightSpan
from tests.engine_requests import STOP, engine_request
from tests.fake_vllm import CACHED, FakeVllm, distribution, serving


@pytest_asyncio.fixture
async def fake() -> AsyncIterator[FakeVllm]:
    async with serving() as fake:
        yield fake


@pytest_asyncio.fixture
async def engine(fake: FakeVllm) -> AsyncIterator[Engine]:
    engine = open_engine("sglang", url=fake.url)
    yield engine
    await engine.close()


async def test_ids_go_in_and_come_out_with_their_logprobs(engine: Engine, fake: FakeVllm) -> None:
    generation = await engine.generate(engine_request(temperature=0.6))
    values = distribution(0.6)
    assert list(generation.ids) == [100, 101, 102, STOP]
    assert list(generation.logprobs)[:3] == [values[100], values[101], values[102]]
    assert (generation.finish, generation.trainable, generation.cached_tokens) == ("stop", True, CACHED)
    assert generation.weight_versions == (WeightSpan("v1", 0, 4),)
    path, body = fake.calls[-1]
    assert (path, body["input_ids"], body["return_logprob"]) == ("/generate", [5, 6, 7], True)
    assert body["sampling_params"]["stop_token_ids"] == [STOP]
    assert body["sampling_params"]["no_stop_trim"] is True


async def test_raw_logprobs_are_seen(engine: Engine, fake: FakeVllm) -> None:
    fake.processed = False
    info = await engine.probe()
    assert (info.level, [finding.code for finding in info.findings]) == ("tokens", ["logprobs_raw"])
    assert not (await engine.generate(engine_request(temperature=0.6))).trainable


def drop_row(answer: Any) -> None:
    answer["meta_info"]["output_token_logprobs"].pop()


def other_token(answer: Any) -> None:
    answer["meta_info"]["output_token_logprobs"][0][1] = 104


def no_rows(answer: Any) -> None:
    answer["meta_info"]["output_token_logprobs"] = None


def short_row(answer: Any) -> None:
    answer["meta_info"]["output_token_logprobs"][0] = [-0.1]


@pytest.mark.parametrize("change", [drop_row, other_token, no_rows, short_row])
async def test_an_answer_that_cannot_be_what_was_sampled_is_refused(
    engine: Engine, fake: FakeVllm, change: Callable[[Any], None]
) -> None:
    await engine.probe()

    def mangle(answer: Any) -> Any:
        change(answer)
        return answer

    fake.mangle = mangle
    with pytest.raises(EngineError) as caught:
        await engine.generate(engine_request())
    assert caught.value.kind == "engine_error"
