"""Counting what trainers get of the same rollouts: pure counts, and a rollout sent through OpenEnv's capture proxy."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import orjson
import pytest
import uvicorn
from aiohttp import web
from openenv.core.harness.capture.server import create_app

from harbor_env.errors import UsageError
from harbor_env.gateway.export import rows as rows_format
from harbor_env.gateway.export import trace
from harbor_env.gateway.export.session_export import SessionExport
from harbor_env.gateway.types import Message, ToolCall, Turn
from harbor_env.outcome import RolloutResult
from harbor_env.records import append_result
from tests.bench_scripts import compare_rows, recorded, replay, replay_engine, rows, tap, vllm_chat
from tests.fake_server import serving
from tests.turns import make_turn

Row, Step, Taken = rows.Row, rows.Step, rows.Taken
END, PAIRS = ord("\1"), 1000
CALL = '<tool_call>\n{"name": "bash", "arguments": {"command": "ls"}}\n</tool_call>'


# -- counts ------------------------------------------------------------------------------------------------------------


def test_a_turn_whose_prompt_begins_with_the_row_so_far_goes_on_in_it_and_any_other_opens_one() -> None:
    steps = [
        Step("a", [1, 2], [3], True),
        Step("b", [1, 2, 3, 4], [5], True),
        Step("c", [1, 2, 9, 4, 5], [6], True),
        Step("d", [1, 2], [7], True),
    ]
    found = rows.chained(steps)
    assert [(list(row.ids), list(row.trained)) for row in found] == [
        ([1, 2, 3, 4, 5], ["a", "b"]),
        ([1, 2, 9, 4, 5, 6], ["c"]),
        ([1, 2, 7], ["d"]),
    ]


def test_a_row_that_trains_nothing_is_no_row() -> None:
    assert rows.chained([Step("a", [1], [2], False), Step("b", [5], [], True)]) == []
    assert [list(row.trained) for row in rows.chained([Step("a", [1], [2], False), Step("b", [1, 2], [3], True)])] == [
        ["b"]
    ]


def test_sampled_tokens_are_told_apart_by_how_many_rows_train_them() -> None:
    rollout = Taken({"a": 1, "b": 2, "c": 4}, [Row([1, 2, 3], ["a"]), Row([1, 2, 3, 4, 5], ["a", "b"])], refused=1)
    counts = rows.measured([rollout], batch=2)
    assert (counts["trained"], counts["trained_once"], counts["trained_more"]) == (4, 2, 1)
    assert (counts["sampled"], counts["turns"], counts["refused"]) == (7, 3, 1)
    assert (counts["rows"], counts["tokens"]) == (2, 8)


def test_padding_is_counted_batch_by_batch_and_a_last_batch_that_is_not_full_as_it_is() -> None:
    taken = [Taken({}, [Row([1], []), Row([1, 2, 3], [])]), Taken({}, []), Taken({}, [Row([7, 8], [])])]
    counts = rows.measured(taken, batch=2)
    assert (counts["padded"], counts["rollouts"], counts["without_a_row"]) == (2 * 3 + 2, 3, 1)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([[1, 2, 3]], 3),
        ([[1, 2, 3], [1, 2, 3]], 3),
        ([[1, 2, 3], [1, 2, 4]], 5),
        ([[1, 2], [1, 2, 3]], 4),
        ([[1, 2], [3, 4], [1, 2, 5]], 6),
        ([], 0),
    ],
)
def test_packed_rows_share_a_token_as_long_as_they_agree_on_it_and_the_next(
    given: list[list[int]], expected: int
) -> None:
    assert rows.distinct(given) == expected


# -- what vLLM says ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "content", "calls"),
    [
        ("Done.", "Done.", []),
        (f"Let me see.\n{CALL} and more", "Let me see.\n", [("bash", '{"command": "ls"}')]),
        (CALL, None, [("bash", '{"command": "ls"}')]),
        (f"{CALL}\n{CALL}", None, [("bash", '{"command": "ls"}')] * 2),
        (CALL.removesuffix("</tool_call>"), None, [("bash", '{"command": "ls"}')]),
        (f"{CALL}<tool_call>{{", f"{CALL}<tool_call>{{", []),
        ('<tool_call>{"name": "bash"}</tool_call>', '<tool_call>{"name": "bash"}</tool_call>', []),
    ],
)
def test_text_before_a_call_is_kept_to_the_letter_and_one_call_that_cannot_be_read_makes_all_of_it_text(
    text: str, content: str | None, calls: list[tuple[str, str]]
) -> None:
    message = vllm_chat.read_reply(text)
    functions = [call["function"] for call in message.get("tool_calls", [])]
    assert message["content"] == content
    assert [(function["name"], function["arguments"]) for function in functions] == calls


# -- a batch and the proxy ---------------------------------------------------------------------------------------------


class Letters:
    """A tokenizer of letters, in which ids from PAIRS on are two letters that encoding never joins."""

    eos_token_id = END

    @property
    def backend_tokenizer(self) -> Letters:
        return self

    def encode(self, text: str, add_special_tokens: bool) -> SimpleNamespace:
        return SimpleNamespace(ids=list(map(ord, text)))

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(chr(id // PAIRS) + chr(id % PAIRS) if id >= PAIRS else chr(id) for id in ids)

    def apply_chat_template(self, messages: Sequence[dict[str, Any]], **_: Any) -> str:
        return "".join(f"{m['role']}:{m['content']}{self.calls(m)}\1" for m in messages) + "assistant:"

    def calls(self, message: dict[str, Any]) -> str:
        names = [call["function"]["name"] for call in message.get("tool_calls", ())]
        return "".join(f'<tool_call>{{"name": "{name}", "arguments": {{}}}}</tool_call>' for name in names)


TOKENIZER = Letters()


def ids_of(text: str) -> list[int]:
    return list(map(ord, text))


def conversation(*replies: tuple[str, list[int]]) -> list[Turn]:
    """Turns that call a tool, each sampled as given: a text before the call, and the ids of it all."""
    turns: list[Turn] = []
    for place, (said, sampled) in enumerate(replies):
        delta = Message("tool", "ok", tool_call_id=f"call_{place - 1}", name="bash") if place else Message("user", "go")
        reply = Message("assistant", said, tool_calls=(ToolCall(f"call_{place}", "bash", "{}"),))
        turns.append(
            make_turn(
                f"turn_{place}",
                turns[-1].id if turns else None,
                ids_of(f"{delta.role}:{delta.content}\1assistant:"),
                sampled,
                delta=(delta,),
                reply=reply,
                facts={"began": place},
            )
        )
    return turns


def sampled(said: str, *, odd: bool = False, joint: str = "") -> tuple[str, list[int]]:
    """A text and a call, with its last two letters as one id if it is odd."""
    text = f'{said}{joint}<tool_call>{{"name": "bash", "arguments": {{}}}}</tool_call>'
    ids = ids_of(text)
    return said, [*([*ids[:-2], ids[-2] * PAIRS + ids[-1]] if odd else ids), END]


def batch_of(folder: Path, turns: list[Turn]) -> Path:
    """A batch's folder with one rollout, which scored, and one that did not."""
    session = SessionExport("s", turns)
    (folder / "a.trace.json").write_bytes(trace.encode(session))
    (folder / "a.rows.jsonl").write_bytes(rows_format.json_lines(session))
    files = {"trace": "a.trace.json", "rows": "a.rows.jsonl", "level": "tokens"}
    append_result(folder, RolloutResult("a", "task", "pi", "local", ok=True, reward=1.0, **files))
    append_result(folder, RolloutResult("b", "task", "pi", "local", ok=False, reward=None, **files))
    return folder


@asynccontextmanager
async def proxied() -> AsyncIterator[Any]:
    """OpenEnv's proxy in front of an engine that replays."""
    engine = replay_engine.ReplayEngine(TOKENIZER)
    app = web.Application()
    app.router.add_post("/v1/chat/completions", engine.chat)
    async with serving(app) as url:
        listening = socket.create_server(("127.0.0.1", 0))
        proxy = create_app(llm_url=url, model="fake", admin_key="admin")
        server = uvicorn.Server(uvicorn.Config(proxy, log_level="warning", lifespan="off"))
        serve = asyncio.create_task(server.serve([listening]))
        try:
            async with aiohttp.ClientSession() as http:
                yield replay.Peer(f"http://127.0.0.1:{listening.getsockname()[1]}", engine, http)
        finally:
            server.should_exit = True
            await serve


async def through_both(folder: Path, turns: list[Turn]) -> dict[tuple[str, str], dict[str, float]]:
    (rollout,) = recorded.scored(batch_of(folder, turns))
    async with proxied() as peer:
        found = await compare_rows.taken_of(rollout, peer, None)
    return {(capture, table): rows.measured([taken], 24) for capture, table, taken in found}


async def test_a_conversation_whose_tokens_are_canonical_is_the_same_row_in_every_capture(tmp_path: Path) -> None:
    found = await through_both(tmp_path, conversation(sampled(""), sampled(""), sampled("")))
    assert len(found) == 6
    assert {tuple(counts.items()) for counts in found.values()} == {
        tuple(found[compare_rows.GATEWAY, compare_rows.EXPORTED].items())
    }
    counts = found[compare_rows.GATEWAY, compare_rows.EXPORTED]
    assert (counts["rows"], counts["refused"], counts["trained_once"]) == (1, 0, counts["sampled"])


async def test_an_odd_token_costs_the_proxy_the_turn_it_is_in_and_the_gateway_nothing(tmp_path: Path) -> None:
    turns = conversation(sampled(""), sampled("", odd=True), sampled(""), sampled(""))
    found = await through_both(tmp_path, turns)
    gateway, peer = (found[name, compare_rows.EXPORTED] for name in (compare_rows.GATEWAY, compare_rows.SAME))
    assert (gateway["rows"], gateway["trained_once"]) == (1, gateway["sampled"])
    assert peer["sampled"] - peer["trained_once"] == len(turns[1].sampled)


async def test_the_proxys_rows_hang_on_how_a_harness_was_told_the_words_before_a_call(tmp_path: Path) -> None:
    found = await through_both(tmp_path, conversation(*[sampled("hm", joint="\n") for _ in range(3)]))
    captures = (compare_rows.GATEWAY, compare_rows.SAME, compare_rows.WORDED)
    assert [found[capture, compare_rows.EXPORTED]["rows"] for capture in captures] == [1, 3, 1]


async def test_a_turn_the_proxy_does_not_answer_is_counted_and_the_rest_goes_on(tmp_path: Path) -> None:
    (rollout,) = recorded.scored(batch_of(tmp_path, conversation(sampled(""), sampled(""))))
    asked = dict(rollout.requests())
    path, body = asked["turn_1"]
    asked["turn_1"] = (path, {**body, "n": 2})
    async with proxied() as peer:
        exported, traced = await peer.replayed(rollout, asked)
    assert exported.refused == traced.refused == 1
    assert [list(row.trained) for row in exported.rows] == [["turn_0"]]


def test_a_folder_without_a_batch_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no batch"):
        recorded.batches(tmp_path)


async def test_the_tap_notes_what_a_turn_was_asked_and_passes_everything_on(tmp_path: Path) -> None:
    turn, out = f"turn_{'0' * 24}", tmp_path / "requests.jsonl"

    async def answered(request: web.Request) -> web.Response:
        return web.json_response({"id": turn, "key": request.headers["authorization"]})

    gateway = web.Application()
    gateway.router.add_route("*", "/{path:.*}", answered)
    async with serving(gateway) as url, serving(tap.app(url, out)) as tapped, aiohttp.ClientSession() as http:
        headers = {"authorization": "Bearer k"}
        async with http.get(f"{tapped}/sessions/k", headers=headers) as response:
            assert (await response.json())["key"] == "Bearer k"
        async with http.post(f"{tapped}/sessions/k/v1/chat/completions", json={"a": 1}, headers=headers) as response:
            assert response.status == 200
    assert tap.noted(out) == {turn: ("/v1/chat/completions", {"a": 1})}
    assert orjson.loads(out.read_bytes())["turn"] == turn
