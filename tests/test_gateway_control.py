"""The gateway's own routes: sessions, their counts and exports, health and metrics."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

from harbor_env.config import GatewayConfig
from harbor_env.gateway.parts import make_parts
from harbor_env.gateway.types import Generation, Message, ToolCall
from tests.gateway_calls import ASK, bearer, post
from tests.serving import FakeEngine, serving


async def test_control_routes_need_the_admin_key_and_model_routes_do_not(tmp_path: Path) -> None:
    async with serving(tmp_path, admin_key="adm") as served:
        for method, path in (("POST", "/sessions"), ("GET", "/metrics"), ("GET", "/sessions/x/export")):
            async with served.client.request(method, path, headers=bearer("wrong")) as response:
                assert response.status == 401
        async with served.client.post("/sessions", json={}, headers=bearer("adm")) as response:
            key = (await response.json())["api_key"]
        assert (await post(served, "/v1/chat/completions", key, ASK))[0] == 200
        async with served.client.get(f"/sessions/{key}", headers=bearer(key)) as response:
            assert response.status == 401


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"budget": {"max_calls": -1}}, "budget.max_calls"),
        ({"nope": 1}, "nope"),
        ({"history": "x"}, "history"),
        ({"sampling": {"seed": 10**30}}, "64 bits"),
        ({"sampling": {"temperature": float("inf")}}, "body"),
    ],
)
async def test_a_wrong_session_body_names_the_field(tmp_path: Path, body: Any, says: str) -> None:
    async with serving(tmp_path) as served, served.client.post("/sessions", json=body) as response:
        assert response.status == 400, await response.text()
        assert says in (await response.json())["error"]["message"]


@pytest.mark.parametrize(
    ("engine", "says"),
    [
        ({"kind": "nope", "url": "http://x"}, "vllm"),
        ({"kind": "vllm"}, "URL"),
        ({"kind": "os:system"}, "vllm, sglang, llamacpp, hosted"),
        ({"kind": "antigravity:Engine"}, "vllm, sglang, llamacpp, hosted"),
        ({"kind": "scripted:tests.policies:is_empty"}, "vllm, sglang, llamacpp, hosted"),
        ({"kind": "llamacpp:/etc/passwd"}, "vllm, sglang, llamacpp, hosted"),
    ],
)
async def test_a_session_with_an_engine_that_cannot_be_is_refused_when_it_is_opened(
    tmp_path: Path, engine: dict[str, str], says: str
) -> None:
    make = make_parts(GatewayConfig(llm_url="http://127.0.0.1:1"))
    body = {"engine": engine}
    async with serving(tmp_path, make=make) as served, served.client.post("/sessions", json=body) as refused:
        assert refused.status == 400, await refused.text()
        assert says in (await refused.json())["error"]["message"]
    assert "antigravity" not in sys.modules


async def test_an_engine_of_code_named_on_the_command_line_may_be_named_by_a_session(tmp_path: Path) -> None:
    spec = "tests.test_engine_table:OutsidersEngine"
    make = make_parts(GatewayConfig(engine=spec))
    async with serving(tmp_path, None, make=make, engine=spec) as served:
        assert (await served.open(engine={"kind": spec, "model": "m"}))["level"] is None


async def test_an_unknown_export_format_names_those_that_exist(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        key = await served.key()
        async with served.client.get(f"/sessions/{key}/export?format=xml") as response:
            assert response.status == 400
            assert "rows" in (await response.json())["error"]["message"]


@pytest.mark.parametrize(
    ("query", "says"),
    [("roles=main,boss", "boss"), ("discarded=maybe", "maybe"), ("format=antigravity:Format", "safetensors")],
)
async def test_an_export_asked_for_what_is_none_is_refused(tmp_path: Path, query: str, says: str) -> None:
    async with serving(tmp_path) as served:
        key = await served.key()
        async with served.client.get(f"/sessions/{key}/export?{query}") as response:
            assert response.status == 400
            assert says in (await response.json())["error"]["message"]


async def test_no_export_holds_the_sessions_secrets(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        opened = await served.open()
        await post(served, "/v1/chat/completions", opened["api_key"], ASK)
        for name in ("trace", "rows", "messages", "sft", "safetensors"):
            async with served.client.get(f"/sessions/{opened['api_key']}/export?format={name}") as response:
                data = await response.read()
            assert opened["session_id"].encode() not in data
            assert opened["api_key"].encode() not in data


async def test_a_deleted_session_is_gone(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        key = await served.key()
        await post(served, "/v1/chat/completions", key, ASK)
        async with served.client.delete(f"/sessions/{key}") as response:
            assert response.status == 200
        assert (await post(served, "/v1/chat/completions", key, ASK))[0] == 401
        async with served.client.get(f"/sessions/{key}") as response:
            assert response.status == 404


async def test_a_session_goes_on_after_a_restart(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        key = await served.key()
        _, body = await post(served, "/v1/chat/completions", key, ASK)
    history = [*ASK["messages"], body["choices"][0]["message"], {"role": "user", "content": "More."}]
    async with serving(tmp_path) as served:
        await post(served, "/v1/chat/completions", key, {**ASK, "messages": history})
        counts = await served.counts(key)
        assert (counts["turns"], counts["roots"], counts["rows"]) == (2, 1, 1)


async def test_two_gateways_on_one_store_serve_alternating_turns_as_one_chain(tmp_path: Path) -> None:
    call = Message("assistant", "", tool_calls=(ToolCall("", "bash", "{}"),))
    async with serving(tmp_path, FakeEngine([call] * 3)) as one, serving(tmp_path, FakeEngine([call] * 3)) as two:
        key = await one.key()
        history: list[Any] = list(ASK["messages"])
        for served in (one, two, one, two, two, one):
            _, body = await post(served, "/v1/chat/completions", key, {**ASK, "messages": history})
            message = body["choices"][0]["message"]
            answer = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "ok"}
            history += [message, answer]
        counts = await two.counts(key)
        assert (counts["turns"], counts["roots"], counts["rows"]) == (6, 1, 1)


async def test_health_models_and_metrics_answer(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        key = await served.key()
        await post(served, "/v1/chat/completions", key, ASK)
        async with served.client.get("/health") as response:
            health = await response.json()
        assert (health["status"], health["engine"]["level"], health["engine"]["tito"]) == ("ok", "tokens", "exact")
        assert health["control"] == "open"
        async with served.client.get("/v1/models") as response:
            assert (await response.json())["data"][0]["id"] == "fake-model"
        async with served.client.get("/metrics") as response:
            metrics = await response.text()
        assert 'harbor_gateway_calls_total{dialect="chat",outcome="ok"} 1' in metrics
        tokens = (await served.counts(key))["tokens"]["sampled"]
        assert f"harbor_gateway_sampled_tokens_total {tokens}\n" in metrics
        assert f"harbor_gateway_prompt_tokens_total {len(served.engine.requests[0].prompt_ids)}\n" in metrics
        async with served.client.head("/") as response:
            assert response.status == 200


async def test_counts_and_exports_mean_the_same_rows_and_trained_tokens(tmp_path: Path) -> None:
    untrained = Generation([1001, 5], [-0.5, -0.5], "stop", trainable=False)
    title = {"role": "user", "content": "Write a title."}
    async with serving(tmp_path, FakeEngine([Message("assistant", "One."), untrained])) as served:
        key = await served.key(metadata={"harness": "opencode"})
        tools = [{"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}]
        for body in ({**ASK, "tools": tools}, {**ASK, "tools": tools}, {**ASK, "messages": [title]}):
            assert (await post(served, "/v1/chat/completions", key, body))[0] == 200
        counts = await served.counts(key)
        async with served.client.get(f"/sessions/{key}/export?format=rows") as response:
            rows = [orjson.loads(line) for line in (await response.read()).splitlines()]
        assert (counts["turns"], counts["leaves"], len(rows)) == (3, 3, 3)
        assert counts["rows"] == sum(row["trained_tokens"] > 0 for row in rows) == 1
        assert counts["tokens"]["trainable"] == sum(row["trained_tokens"] for row in rows)


async def test_a_template_variable_the_model_has_not_is_refused_as_soon_as_the_engine_is_known(tmp_path: Path) -> None:
    wrong = {"template_kwargs": {"unknown": 1}}
    async with serving(tmp_path) as served:
        early = await served.open(**wrong)
        status, body = await post(served, "/v1/chat/completions", early["api_key"], ASK)
        assert status == 400
        assert "template_kwargs" in body["error"]["message"]
        async with served.client.post("/sessions", json=wrong) as refused:
            assert refused.status == 400
