"""Telling the conversations of one harness apart."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harbor_env.gateway.roles import ANY_HARNESS, conversation_role, markers_of
from harbor_env.gateway.session import Recorded
from harbor_env.gateway.types import Call, ConversationRole, Generation, Message, Tool
from harbor_env.harnesses import HARNESSES, find
from tests.play import BASH, player, said, system, user
from tests.serving import serving

SHAPES: list[dict[str, Any]] = json.loads((Path(__file__).parent / "data" / "conversations.json").read_text())
"""How conversations begin: the headers, some tools and the opening words of what harnesses send, cut short."""
CLAUDE = markers_of("claude-code")
MAIN = Call((system("You are an agent."), user("Fix it.")), (BASH,))


@pytest.mark.parametrize(
    ("headers", "call", "role"),
    [
        ({}, MAIN, "main"),
        ({"x-claude-code-agent-id": "a1"}, MAIN, "subagent"),
        ({}, Call((user("CRITICAL: Respond with TEXT ONLY. Summarise."),), (BASH,)), "compaction"),
        ({}, Call((user("CRITICAL: Respond with TEXT ONLY."), said("x"), user("Go on.")), (BASH,)), "main"),
        ({}, Call((user("Title?"),)), "auxiliary"),
        ({}, replace(MAIN, compaction="inline"), "compaction"),
    ],
)
def test_a_marker_of_the_harness_decides(headers: dict[str, str], call: Call, role: ConversationRole) -> None:
    assert conversation_role(CLAUDE, headers, call, None) == role


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: f"{shape['harness']}-{shape['role']}")
def test_every_conversation_of_every_harness_is_told_by_how_it_begins_on_the_wire(shape: dict[str, Any]) -> None:
    messages = tuple(Message(role, text) for role, text in shape["messages"])
    call = Call(messages, tuple(Tool(name) for name in shape["tools"]))
    assert conversation_role(markers_of(shape["harness"]), shape["headers"], call, None) == shape["role"]


def test_each_described_harness_has_a_main_conversation_and_one_for_each_of_its_markers_in_the_shapes() -> None:
    known = {(shape["harness"], shape["role"]) for shape in SHAPES}
    assert {(name, role) for name in HARNESSES for role in ("main", *(m.role for m in find(name).roles))} <= known


def test_a_harness_nobody_named_is_read_by_headers_alone() -> None:
    assert markers_of(None) == markers_of("some-agent") == ANY_HARNESS
    assert conversation_role(ANY_HARNESS, {}, Call((user("x"),)), None) == "main"


def test_what_continues_a_subagent_is_the_subagents() -> None:
    play = player()
    first = play.finish(play.plan(user("Explore.")), said("Done."))
    for role, expected in (("subagent", "subagent"), ("compaction", "main"), ("main", "main")):
        parent = play.session.record(
            play.plan(user("Explore.")), _generation(first), turn_id=role, mint=str, created=0, role=role
        ).turn
        assert conversation_role(ANY_HARNESS, {}, MAIN, parent) == expected


async def test_roles_are_counted_and_only_trained_roles_carry_mask(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        key = await served.key(metadata={"harness": "claude-code"})
        for tools in ([], [{"name": "bash", "input_schema": {}}]):
            body = {"max_tokens": 9, "tools": tools, "messages": [{"role": "user", "content": "Hi."}], "model": "m"}
            async with served.client.post("/v1/messages", json=body, headers={"x-api-key": key}) as response:
                assert response.status == 200
        assert (await served.counts(key))["roles"] == {"auxiliary": 1, "main": 1}
        async with served.client.get(f"/sessions/{key}/export?format=rows") as response:
            lines = (await response.text()).splitlines()
        assert ['"trained_tokens":0' in line for line in lines] == [True, False]


def _generation(recorded: Recorded) -> Generation:
    return Generation(recorded.turn.sampled, recorded.turn.logprobs, "stop")
