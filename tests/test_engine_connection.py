"""What an HTTP failure at the engine means to a caller."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import orjson
import pytest
import pytest_asyncio

from harbor_env.errors import EngineError
from harbor_env.gateway.engines.connection import Connection, RefusedError, retry_after
from tests.fake_vllm import FakeVllm, serving

PATH = "/v1/chat/completions"


@pytest_asyncio.fixture
async def fake() -> AsyncIterator[FakeVllm]:
    async with serving() as fake:
        yield fake


@pytest_asyncio.fixture
async def connection(fake: FakeVllm) -> AsyncIterator[Connection]:
    connection = Connection(fake.url, api_key="secret")
    yield connection
    await connection.close()


async def failure(connection: Connection) -> EngineError:
    with pytest.raises(EngineError) as caught:
        await connection.post(PATH, {})
    return caught.value


OVERFLOWS = {
    "vLLM": "The decoder prompt (length 2050) is longer than the maximum model length of 2048",
    "vLLM, chat": "This model's maximum context length is 2048 tokens. However, you requested 9000 tokens",
    "llama.cpp": "request (9000 tokens) exceeds the available context size (8192 tokens), try increasing it",
    "SGLang": "The input (9000 tokens) is longer than the model's context length (8192 tokens).",
    "OpenAI": "Your input exceeds the context window: context_length_exceeded",
}
OTHERS = {
    400: "Token id 999999 is out of vocabulary",
    404: "The model `x` does not exist.",
    500: "Internal Server Error: maximum context length",
    503: "",
}


@pytest.mark.parametrize("engine", OVERFLOWS)
async def test_every_engines_overflow_is_an_overflow(connection: Connection, fake: FakeVllm, engine: str) -> None:
    fake.refuse = [(400, {}, orjson.dumps({"error": {"message": OVERFLOWS[engine], "code": 400}}))]
    error = await failure(connection)
    assert (error.kind, error.message) == ("overflow", OVERFLOWS[engine])


@pytest.mark.parametrize("status", OTHERS)
async def test_another_error_status_is_an_engine_error(connection: Connection, fake: FakeVllm, status: int) -> None:
    fake.refuse = [(status, {}, OTHERS[status].encode())]
    error = await failure(connection)
    assert (error.kind, isinstance(error, RefusedError) and error.http_status) == ("engine_error", status)


async def test_429_is_kept_with_its_retry_after(connection: Connection, fake: FakeVllm) -> None:
    fake.refuse = [(429, {"Retry-After": "7"}, b'{"error":{"message":"slow down"}}')]
    error = await failure(connection)
    assert (error.kind, error.retry_after, error.message) == ("rate_limited", 7.0, "slow down")


async def test_an_error_then_a_good_answer_needs_nothing_in_between(connection: Connection, fake: FakeVllm) -> None:
    fake.refuse = [(500, {}, b"oops")]
    assert (await failure(connection)).kind == "engine_error"
    assert (await connection.post(PATH, {}))["choices"]


@pytest.mark.parametrize("raw", [b"<html>gateway</html>", b"", b'{"choices": [', b"\xff\xfe"])
async def test_an_answer_that_is_no_json_is_an_engine_error(connection: Connection, fake: FakeVllm, raw: bytes) -> None:
    fake.raw = raw
    assert (await failure(connection)).kind == "engine_error"


async def test_a_long_error_page_is_cut_short(connection: Connection, fake: FakeVllm) -> None:
    fake.refuse = [(502, {}, b"<p>" + b"x" * 100_000)]
    assert len((await failure(connection)).message) < 400


async def test_nobody_listening_is_engine_down(connection: Connection, fake: FakeVllm) -> None:
    await fake.stop()
    assert (await failure(connection)).kind == "engine_down"


async def test_a_connection_that_dies_before_the_answer_is_engine_down(connection: Connection, fake: FakeVllm) -> None:
    fake.gate.clear()
    call = asyncio.create_task(failure(connection))
    await fake.wait_for_calls(1)
    await fake.drop_idle_connections()
    assert (await call).kind == "engine_down"


async def test_an_idle_connection_the_engine_closed_is_not_an_engine_that_is_down(
    connection: Connection, fake: FakeVllm
) -> None:
    await connection.post(PATH, {})
    await fake.drop_idle_connections()
    assert (await connection.post(PATH, {}))["choices"]


async def test_too_slow_is_engine_timeout_only_where_a_limit_was_set(fake: FakeVllm) -> None:
    fake.gate.clear()
    connection = Connection(fake.url, timeout=0.05)
    assert (await failure(connection)).kind == "engine_timeout"
    await connection.close()


async def test_a_url_that_is_none_is_an_engine_error() -> None:
    connection = Connection("localhost:8000")
    assert (await failure(connection)).kind == "engine_error"
    await connection.close()


async def test_the_key_is_sent_and_never_shown(connection: Connection, fake: FakeVllm) -> None:
    fake.refuse = [(401, {}, b'{"error":"bad key"}')]
    assert "secret" not in str(await failure(connection))


def test_retry_after_is_read_as_seconds_or_as_a_date() -> None:
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)
    assert retry_after({"Retry-After": "1.5"}) == 1.5
    assert 50 < (retry_after({"Retry-After": soon}) or 0) <= 60
    assert retry_after({"Retry-After": "-3"}) == 0
    assert retry_after({"Retry-After": "later"}) is None
    assert retry_after({}) is None
