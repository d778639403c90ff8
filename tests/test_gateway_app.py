"""The gateway over real sockets: what a harness sees, and what it leaves in the session."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import zstandard

from harbor_env.errors import EngineError, RenderingError
from harbor_env.gateway.engines import EngineInfo
from harbor_env.gateway.types import Finding, Generation, Message, Tool, ToolCall
from tests.fake_renderer import FakeRenderer
from tests.gateway_calls import ASK, ASK_MESSAGES, bearer, post
from tests.serving import FakeEngine, serving
from tests.waiting import until


class Refusing(FakeRenderer):
    """A fake whose chat template raises at every conversation."""

    def render(self, messages: Sequence[Message], tools: Sequence[Tool]) -> list[int]:
        raise RenderingError("the chat template takes no such order of messages")


async def test_a_call_is_answered_and_recorded_before_it_is_shown(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        key = await served.key()
        status, body = await post(served, "/v1/chat/completions", key, ASK)
        assert (status, body["choices"][0]["message"]["content"]) == (200, "Reply 1.")
        counts = await served.counts(key)
        assert (counts["turns"], counts["roots"], counts["rows"]) == (1, 1, 1)
        assert counts["tokens"]["sampled"] == counts["tokens"]["trainable"] > 0


@pytest.mark.parametrize("where", ["bearer", "x-api-key", "x-goog-api-key", "path", "id in path"])
async def test_a_key_is_taken_where_each_vendor_puts_it(tmp_path: Path, where: str) -> None:
    async with serving(tmp_path) as served:
        opened = await served.open()
        key = opened["api_key"]
        headers = {"bearer": bearer(key), "x-api-key": {where: key}, "x-goog-api-key": {where: key}}.get(where, {})
        prefix = {"path": f"/sessions/{key}", "id in path": f"/sessions/{opened['session_id']}"}.get(where, "")
        async with served.client.post(f"{prefix}/v1/messages", json=ASK_MESSAGES, headers=headers) as response:
            assert response.status == 200
        assert (await served.counts(key))["turns"] == 1


async def test_base_url_is_enough_for_a_harness_that_takes_only_a_base_url(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        opened = await served.open()
        async with served.client.post(f"{opened['base_url']}/v1/chat/completions", json=ASK) as response:
            assert response.status == 200


async def test_a_key_never_minted_here_is_unauthorized_in_the_dialects_shape(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        status, body = await post(served, "/v1/messages", "sk-real", ASK_MESSAGES)
        assert (status, body["type"], body["error"]["type"]) == (401, "error", "authentication_error")
        status, body = await post(served, "/v1/chat/completions", "", ASK)
        assert (status, "error" in body) == (401, True)


async def test_an_unknown_path_is_not_found_in_the_dialect_it_looks_like(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        status, body = await post(served, "/v1/messages/batches", "k", {})
        assert (status, body["type"], body["error"]["type"]) == (404, "error", "not_found_error")
        status, body = await post(served, "/v1/embeddings", "k", {})
        assert status == 404
        assert "/v1/embeddings" in body["error"]["message"]


@pytest.mark.parametrize("path", ["/v1/responses", "/sessions/s-1/v1/responses", "/v1/realtime"])
async def test_a_websocket_is_refused_by_the_one_status_that_means_plain_http_will_do(
    path: str, tmp_path: Path
) -> None:
    upgrade = {
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Key": "eA==",
        "Sec-WebSocket-Version": "13",
    }
    async with serving(tmp_path) as served:
        async with served.client.get(path, headers=upgrade) as response:
            assert response.status == 426
            assert "error" in await response.json(content_type=None)
        async with served.client.get(path) as response:
            assert response.status == 404


@pytest.mark.parametrize(
    ("data", "encoding", "status"),
    [
        (b"{", "", 400),
        (b"[]", "", 400),
        (b'{"messages": 3}', "", 400),
        (b'{"messages": [{"role": "wizard", "content": "x"}]}', "", 400),
        (b'{"model": "\xff"}', "", 400),
        (b"{}", "lzma", 415),
        (b"not zstd", "zstd", 400),
        (b'{"messages": "' + b"x" * 5000 + b'"}', "", 413),
        (zstandard.compress(b" " * 100_000), "zstd", 413),
    ],
)
async def test_bad_bodies_are_refused_and_change_nothing(
    tmp_path: Path, data: bytes, encoding: str, status: int
) -> None:
    async with serving(tmp_path, body_limit=4000) as served:
        key = await served.key()
        headers = {**bearer(key), "Content-Type": "application/json"}
        if encoding:
            headers["Content-Encoding"] = encoding
        for path in ("/v1/chat/completions", "/v1/messages"):
            async with served.client.post(path, data=data, headers=headers) as response:
                body = await response.json()
                assert (response.status, "message" in body["error"]) == (status, True)
        assert (await served.counts(key))["turns"] == 0


@pytest.mark.parametrize("kind", ["engine_down", "engine_error", "engine_timeout", "rate_limited"])
async def test_an_engine_failure_keeps_its_meaning_and_leaves_no_turn(tmp_path: Path, kind: Any) -> None:
    engine = FakeEngine([EngineError(kind, "The engine is not well.", retry_after=2)])
    async with serving(tmp_path, engine) as served:
        key = await served.key()
        async with served.client.post("/v1/chat/completions", json=ASK, headers=bearer(key)) as response:
            assert response.status == {"rate_limited": 429, "engine_down": 503, "engine_timeout": 504}.get(kind, 502)
            assert response.headers["retry-after"] == "2"
        assert (await served.counts(key))["turns"] == 0
        status, _ = await post(served, "/v1/chat/completions", key, ASK)
        assert (status, (await served.counts(key))["turns"]) == (200, 1)


async def test_a_generation_the_engine_aborted_is_asked_again_and_never_recorded(tmp_path: Path) -> None:
    engine = FakeEngine([Generation([1001], [-0.1], "abort")])
    async with serving(tmp_path, engine) as served:
        key = await served.key()
        assert (await post(served, "/v1/chat/completions", key, ASK))[0] == 502
        assert (await served.counts(key))["turns"] == 0


async def test_an_engine_that_was_down_is_probed_again(tmp_path: Path) -> None:
    engine = FakeEngine(down=EngineError("engine_down", "No answer."))
    async with serving(tmp_path, engine) as served:
        opened = await served.open()
        assert opened["level"] is None
        assert (await post(served, "/v1/chat/completions", opened["api_key"], ASK))[0] == 503
        engine.down = None
        assert (await post(served, "/v1/chat/completions", opened["api_key"], ASK))[0] == 200
        assert (await served.open())["level"] == "tokens"


async def test_a_prompt_over_the_window_is_what_each_harness_calls_too_long(tmp_path: Path) -> None:
    engine = FakeEngine(info=EngineInfo("tokens", "m", 4))
    async with serving(tmp_path, engine) as served:
        key = await served.key()
        status, body = await post(served, "/v1/messages", key, ASK_MESSAGES)
        assert (status, body["error"]["message"].startswith("prompt is too long: ")) == (400, True)
        status, body = await post(served, "/v1/chat/completions", key, ASK)
        assert (status, body["error"]["code"]) == (400, "context_length_exceeded")
        assert engine.requests == []


async def test_hanging_up_aborts_the_generation_and_leaves_no_turn(tmp_path: Path) -> None:
    engine = FakeEngine()
    engine.gate.clear()
    async with serving(tmp_path, engine) as served:
        key = await served.key()
        for stream in (False, True):
            engine.arrived.clear()
            asking = asyncio.create_task(post(served, "/v1/chat/completions", key, {**ASK, "stream": stream}))
            await engine.arrived.wait()
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
        await until(lambda: engine.aborted >= 2)
        engine.gate.set()
        assert (await served.counts(key))["turns"] == 0
        assert served.gateway.metrics.calls["chat", "gone"] == 2


async def test_a_waiting_stream_is_kept_alive_and_then_complete(tmp_path: Path) -> None:
    engine = FakeEngine([Message("assistant", "Done.")])
    engine.gate.clear()
    async with serving(tmp_path, engine, keepalive=0.02) as served:
        key = await served.key()
        body = {**ASK_MESSAGES, "stream": True}
        async with served.client.post("/v1/messages", json=body, headers=bearer(key)) as response:
            first = await response.content.readuntil(b"\n\n")
            assert b"event: ping" in first
            engine.gate.set()
            rest = await response.read()
        assert b"message_start" in rest
        assert rest.rstrip().endswith(b'{"type":"message_stop"}')


async def test_a_failure_after_the_first_byte_is_an_error_event_and_no_normal_end(tmp_path: Path) -> None:
    engine = FakeEngine([EngineError("engine_error", "Gone wrong.")])
    engine.gate.clear()
    async with serving(tmp_path, engine, keepalive=0.02) as served:
        key = await served.key()
        body = {**ASK_MESSAGES, "stream": True}
        async with served.client.post("/v1/messages", json=body, headers=bearer(key)) as response:
            assert response.status == 200
            await response.content.readuntil(b"\n\n")
            engine.gate.set()
            rest = await response.read()
        assert b"event: error" in rest
        assert b"message_stop" not in rest
        assert (await served.counts(key))["turns"] == 0


async def test_a_fast_failure_of_a_stream_has_its_real_status(tmp_path: Path) -> None:
    engine = FakeEngine([EngineError("rate_limited", "Slow down.")])
    async with serving(tmp_path, engine) as served:
        key = await served.key()
        assert (await post(served, "/v1/messages", key, {**ASK_MESSAGES, "stream": True}))[0] == 429


async def test_a_bug_of_ours_is_a_500_without_its_inside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    engine = FakeEngine([ZeroDivisionError("secret inside")])
    async with serving(tmp_path, engine) as served:
        key = await served.key()
        status, body = await post(served, "/v1/chat/completions", key, ASK)
        assert status == 500
        assert "secret inside" not in str(body)
        assert key not in caplog.text


async def test_a_budget_stop_is_a_normal_last_reply_and_no_turn(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        key = await served.key(budget={"max_calls": 1})
        await post(served, "/v1/messages", key, ASK_MESSAGES)
        status, body = await post(served, "/v1/messages", key, ASK_MESSAGES)
        assert (status, body["stop_reason"]) == (200, "end_turn")
        counts = await served.counts(key)
        assert (counts["turns"], counts["findings"]["budget_calls"]) == (1, 1)


async def test_a_call_counts_towards_the_budget_until_its_turn_is_written(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        key = await served.key(budget={"max_calls": 1})
        with closing(sqlite3.connect(tmp_path / "gateway.sqlite3", isolation_level=None)) as writing:
            writing.execute("BEGIN IMMEDIATE")  # no turn can be written until this ends
            first = asyncio.create_task(post(served, "/v1/chat/completions", key, ASK))
            await served.engine.arrived.wait()
            second = asyncio.create_task(post(served, "/v1/chat/completions", key, ASK))
            await until(lambda: served.gateway.metrics.in_flight >= 2)
            writing.execute("ROLLBACK")
            replies = [body["choices"][0]["message"]["content"] for _, body in (await first, await second)]
        assert "budget" in replies[1]
        assert (await served.counts(key))["turns"] == 1


async def test_token_counts_are_exact_and_no_turn(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        key = await served.key()
        status, counted = await post(served, "/v1/messages/count_tokens", key, ASK)
        assert status == 200
        assert (await served.counts(key))["turns"] == 0
        _, body = await post(served, "/v1/messages", key, ASK_MESSAGES)
        assert counted["input_tokens"] == body["usage"]["input_tokens"]


async def test_logprobs_that_are_no_numbers_are_a_finding_not_an_error(tmp_path: Path) -> None:
    bad = Generation([1001, 5], [float("nan"), -1.0], "stop", findings=(Finding("logprob_not_finite", "token 0"),))
    async with serving(tmp_path, FakeEngine([bad])) as served:
        key = await served.key()
        assert (await post(served, "/v1/chat/completions", key, ASK))[0] == 200
        counts = await served.counts(key)
        assert (counts["tokens"]["sampled"], counts["tokens"]["trainable"]) == (2, 0)
        for name in ("trace", "rows", "messages", "sft", "safetensors"):
            async with served.client.get(f"/sessions/{key}/export", params={"format": name}) as response:
                assert response.status == 200


async def test_a_conversation_the_template_refuses_is_the_callers_error_and_so_is_counting_it(tmp_path: Path) -> None:
    async with serving(tmp_path, renderer=Refusing()) as served:
        key = await served.key()
        for path in ("/v1/chat/completions", "/v1/messages", "/v1/messages/count_tokens"):
            status, body = await post(served, path, key, ASK)
            assert (status, "no such order" in body["error"]["message"]) == (400, True)
        assert (await served.counts(key))["turns"] == 0


async def test_parallel_calls_of_one_session_are_siblings(tmp_path: Path) -> None:
    engine = FakeEngine()
    engine.gate.clear()
    async with serving(tmp_path, engine) as served:
        key = await served.key()
        asking = [asyncio.create_task(post(served, "/v1/chat/completions", key, ASK)) for _ in range(3)]
        await until(lambda: len(engine.requests) >= 3)
        engine.gate.set()
        assert {status for status, _ in await asyncio.gather(*asking)} == {200}
        counts = await served.counts(key)
        assert (counts["turns"], counts["roots"]) == (3, 3)


async def test_the_gateway_does_not_take_a_broken_request_down(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.gateway.config.port)
        writer.write(b"POST /v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{")
        await writer.drain()
        writer.close()
        await writer.wait_closed()
        del reader
        async with served.client.get("/health", timeout=aiohttp.ClientTimeout(total=5)) as response:
            assert response.status == 200


@pytest.mark.parametrize("stream", [False, True])
async def test_a_reply_that_cannot_be_written_in_its_dialect_is_an_error_and_no_turn(
    tmp_path: Path, stream: bool
) -> None:
    deep = '{"command": ' + "[" * 600 + "]" * 600 + "}"
    engine = FakeEngine([Message("assistant", "", tool_calls=(ToolCall("", "local_shell", deep),))])
    async with serving(tmp_path, engine) as served:
        key = await served.key()
        body = {"model": "m", "input": "Hi.", "tools": [{"type": "local_shell"}], "stream": stream}
        async with served.client.post("/v1/responses", json=body, headers=bearer(key)) as response:
            shown = response.status == 200
            await response.read()
        assert (await served.counts(key))["turns"] == int(shown)
