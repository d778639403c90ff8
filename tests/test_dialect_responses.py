"""OpenAI Responses: what clients and Codex send, what the `openai` SDK reads, and how a wrong body is refused."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from harbor_env.errors import GatewayError
from harbor_env.gateway.dialects.responses import RESPONSES
from harbor_env.gateway.types import Call, Finding, Message, Sampling, Tool, ToolCall, ToolChoice
from tests.responses_items import (
    ASK,
    WEATHER,
    call_item,
    codes,
    decode,
    items_of,
    output_item,
    refusal,
    reply,
    user,
)
from tests.sdks import Wire, openai_client


def test_the_sdk_builds_a_request_and_its_whole_meaning_is_decoded() -> None:
    wire = Wire(RESPONSES.encode(reply(Message("assistant", "hi")), ASK))
    openai_client(wire).responses.create(
        model="policy",
        instructions="I",
        input=[
            {"role": "developer", "content": "D"},
            {"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]},
            {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"city": "Paris"}'},
            {"type": "custom_tool_call", "call_id": "c2", "name": "apply_patch", "input": "*** Begin Patch"},
            {"type": "function_call_output", "call_id": "c1", "output": "sunny"},
            {"type": "custom_tool_call_output", "call_id": "c2", "output": "done"},
        ],
        tools=[
            {"type": "function", "name": "weather", "description": "d", "parameters": WEATHER, "strict": False},
            {
                "type": "custom",
                "name": "apply_patch",
                "description": "Edits files.",
                "format": {"type": "grammar", "syntax": "lark", "definition": "start: x"},
            },
        ],
        tool_choice={"type": "function", "name": "weather"},
        max_output_tokens=77,
        temperature=0.5,
        top_p=0.9,
        reasoning={"effort": "high", "summary": "auto"},
        text={"format": {"type": "json_schema", "name": "x", "schema": WEATHER}},
        previous_response_id="turn_1",
        store=False,
        include=["reasoning.encrypted_content"],
    )
    assert wire.path == RESPONSES.routes[0].path
    assert RESPONSES.decode(wire.body, {}) == Call(
        messages=(
            Message("system", "I"),
            Message("system", "D"),
            Message("user", "a\nb"),
            Message(
                "assistant",
                tool_calls=(
                    ToolCall("c1", "weather", '{"city": "Paris"}'),
                    ToolCall("c2", "apply_patch", "*** Begin Patch"),
                ),
            ),
            Message("tool", "sunny", tool_call_id="c1", name="weather"),
            Message("tool", "done", tool_call_id="c2", name="apply_patch"),
        ),
        tools=(
            Tool("weather", "d", WEATHER),
            Tool("apply_patch", "Edits files.\n\nThe input follows this lark grammar:\nstart: x", kind="custom"),
        ),
        model="policy",
        max_tokens=77,
        sampling=Sampling(0.5, 0.9),
        tool_choice=ToolChoice("named", "weather"),
        thinking=True,
        response_schema=WEATHER,
        previous_id="turn_1",
        findings=(Finding("effort_ignored", "reasoning.effort: high"),),
    )


def test_a_history_out_of_order_with_an_image_keeps_results_together() -> None:
    image = [{"type": "input_image", "image_url": "data:image/png;base64,AA=="}, {"type": "input_text", "text": "A"}]
    call = decode(
        [
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "why"}]},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Part 1"}]},
            call_item("c1", "see"),
            call_item("c2", "look"),
            output_item("c2", "B"),
            output_item("c1", image),
            {"type": "message", "role": "developer", "content": "note"},
        ]
    )
    assert call.messages == (
        Message("assistant", "Part 1", "why", (ToolCall("c1", "see", "{}"), ToolCall("c2", "look", "{}"))),
        Message("tool", "B", tool_call_id="c2", name="look"),
        Message("tool", "[image omitted: this model reads text only]\nA", tool_call_id="c1", name="see"),
        Message("system", "note"),
    )
    assert codes(call) == ["media_omitted"]


def test_a_call_without_output_gets_a_placeholder_behind_the_others() -> None:
    call = decode([user("go"), call_item("c1"), call_item("c2"), output_item("c2", "B"), user("on")])
    assert call.messages[2:] == (
        Message("tool", "B", tool_call_id="c2", name="f"),
        Message("tool", "[this call returned no output]", tool_call_id="c1", name="f"),
        Message("user", "on"),
    )
    assert codes(call) == ["missing_output"]


def test_a_late_output_is_no_missing_one() -> None:
    call = decode([user("go"), call_item("c1"), user("meanwhile"), output_item("c1", "A")])
    assert [message.role for message in call.messages] == ["user", "assistant", "user", "tool"]
    assert codes(call) == []


def test_an_output_sent_twice_is_read_once_and_a_second_one_of_other_text_stays() -> None:
    call = decode([user("go"), call_item("c1"), output_item("c1", "A"), output_item("c1", "A"), output_item("c1", "B")])
    assert [message.content for message in call.messages[2:]] == ["A", "B"]
    assert codes(call) == ["duplicate_output"]


def test_an_item_whose_type_is_null_is_a_message() -> None:
    assert decode([{"type": None, "role": "user", "content": "go"}]).messages == (Message("user", "go"),)


def test_an_orphan_output_becomes_user_text() -> None:
    call = decode([user("go"), output_item("gone", "late")])
    assert call.messages[1].role == "user"
    assert "late" in call.messages[1].content
    assert codes(call) == ["orphan_output"]


def test_with_a_previous_response_its_calls_may_be_answered() -> None:
    call = decode([output_item("c1", "A")], previous_response_id="r1")
    assert call.messages == (Message("tool", "A", tool_call_id="c1"),)
    assert call.previous_id == "r1"
    assert codes(call) == []


def test_instructions_and_developer_items_stay_in_place() -> None:
    note = {"role": "developer", "content": "N"}
    call = decode([{"role": "developer", "content": "D"}, user("U"), note, user("V")], instructions="I")
    said = [(message.role, message.content) for message in call.messages]
    assert said == [("system", "I"), ("system", "D"), ("user", "U"), ("system", "N"), ("user", "V")]


def test_foreign_sealed_reasoning_is_a_finding() -> None:
    call = decode([{"type": "reasoning", "summary": [], "encrypted_content": "gAAAA=="}, user("go")])
    assert call.messages[0] == Message("assistant")
    assert codes(call) == ["reasoning_undecodable"]


NAMESPACE = {
    "type": "namespace",
    "name": "agents",
    "description": "Subagents.",
    "tools": [
        {"type": "function", "name": "spawn", "description": "d", "parameters": WEATHER},
        {"type": "function", "name": "shell", "parameters": WEATHER},
    ],
}


def test_tools_of_a_namespace_go_out_and_come_back_under_their_own_names() -> None:
    ask = decode([user("go")], tools=[{"type": "function", "name": "shell", "parameters": {}}, NAMESPACE])
    assert [tool.name for tool in ask.tools] == ["shell", "spawn", "agents__shell"]
    assert ask.tools[1].description == "d\n\nagents: Subagents."
    made = tuple(ToolCall(f"c{i}", name, "{}") for i, name in enumerate(["shell", "spawn", "agents__shell"]))
    items = items_of(reply(Message("assistant", tool_calls=made)), ask)
    assert [(item["name"], item.get("namespace")) for item in items] == [
        ("shell", None),
        ("spawn", "agents"),
        ("shell", "agents"),
    ]
    back = decode([user("go"), *items], tools=[{"type": "function", "name": "shell"}, NAMESPACE])
    assert back.messages[1].tool_calls == made


def test_a_free_text_call_goes_out_and_comes_back() -> None:
    ask = decode([user("go")], tools=[{"type": "custom", "name": "apply_patch"}])
    message = Message("assistant", tool_calls=(ToolCall("c1", "apply_patch", "*** Begin {Patch"),))
    [item] = items_of(reply(message), ask)
    assert (item["type"], item["input"]) == ("custom_tool_call", "*** Begin {Patch")
    assert decode([item, {"type": "custom_tool_call_output", "call_id": "c1", "output": "ok"}]).messages[0] == message


BUILTIN: dict[str, tuple[dict[str, Any], str, dict[str, Any], dict[str, Any], str]] = {
    "local_shell": (
        {"type": "local_shell"},
        '{"command":["ls","-l"]}',
        {"type": "local_shell_call", "action": {"type": "exec", "env": {}, "command": ["ls", "-l"]}},
        {"type": "local_shell_call_output", "call_id": "c1", "output": "a.txt"},
        "a.txt",
    ),
    "shell": (
        {"type": "shell", "environment": {"type": "local"}},
        '{"commands":["ls"],"timeout_ms":5}',
        {"type": "shell_call", "action": {"commands": ["ls"], "timeout_ms": 5}},
        {
            "type": "shell_call_output",
            "call_id": "c1",
            "output": [{"stdout": "a", "stderr": "b", "outcome": {"type": "exit", "exit_code": 2}}],
        },
        "a\nb\n[exit code 2]",
    ),
    "apply_patch": (
        {"type": "apply_patch"},
        '{"type":"delete_file","path":"a"}',
        {"type": "apply_patch_call", "operation": {"type": "delete_file", "path": "a"}},
        {"type": "apply_patch_call_output", "call_id": "c1", "status": "completed", "output": "gone"},
        "gone",
    ),
    "tool_search": (
        {"type": "tool_search", "execution": "client", "parameters": WEATHER},
        '{"query":"x"}',
        {"type": "tool_search_call", "arguments": {"query": "x"}, "execution": "client"},
        {"type": "tool_search_output", "call_id": "c1", "tools": [{"type": "function", "name": "new"}]},
        'Tool loaded: {"type":"function","function":{"name":"new","description":"","parameters":{}}}',
    ),
}


@pytest.mark.parametrize("name", BUILTIN)
def test_a_tool_the_api_defines_is_called_and_answered_in_its_own_items(name: str) -> None:
    tool, arguments, sent, output, text = BUILTIN[name]
    ask = decode([user("go")], tools=[tool])
    assert [(t.name, t.kind) for t in ask.tools] == [(name, "builtin")]
    message = Message("assistant", tool_calls=(ToolCall("c1", name, arguments),))
    [item] = items_of(reply(message), ask)
    assert sent.items() <= item.items()
    back = decode([user("go"), item, output], tools=[tool])
    assert back.messages[1] == message
    assert back.messages[2] == Message("tool", text, tool_call_id="c1", name=name)
    odd = reply(Message("assistant", tool_calls=(ToolCall("c1", name, "nonsense"),)))
    assert items_of(odd, ask)[0]["type"] == "function_call"


def test_tools_that_ride_in_the_input_are_the_requests_own_before_any_message_and_loaded_after() -> None:
    ride = {"type": "additional_tools", "role": "developer", "tools": [{"type": "function", "name": "f"}, NAMESPACE]}
    later = {"type": "additional_tools", "role": "developer", "tools": [{"type": "function", "name": "late"}]}
    call = decode([ride, user("go"), later])
    assert [tool.name for tool in call.tools] == ["f", "spawn", "shell"]
    assert [tool.name for tool in call.deferred_tools] == ["late"]
    assert call.messages[1].role == "system"
    assert "late" in call.messages[1].content


def test_hosted_tools_and_their_items_are_left_out_with_findings() -> None:
    call = decode(
        [user("go"), {"type": "web_search_call", "id": "ws", "status": "completed"}, {"type": "of_tomorrow"}],
        tools=[{"type": "web_search"}, {"type": "tool_search"}],
    )
    assert call.tools == ()
    assert call.messages == (Message("user", "go"),)
    assert codes(call) == ["tool_dropped", "tool_dropped", "item_dropped", "item_dropped"]


def test_codex_compacts_by_a_trigger_and_reads_its_summary_back() -> None:
    call = decode([user("go"), {"type": "compaction_trigger"}], stream=True)
    assert call.compaction == "inline"
    assert call.messages[-1].role == "user"
    [item] = items_of(reply(Message("assistant", "the summary", "why")), call)
    assert item["type"] == "compaction"
    back = decode([item, user("on")])
    assert "the summary" in back.messages[0].content
    assert back.messages[1] == Message("user", "on")
    assert codes(decode([{"type": "compaction", "encrypted_content": "foreign"}, user("on")])) == [
        "compaction_undecodable"
    ]


def test_the_compaction_endpoint_keeps_what_the_user_said() -> None:
    call = RESPONSES.decode(
        {"model": "m", "input": [user("go"), call_item("c1"), output_item("c1", "A")]}, {"compact": "yes"}
    )
    wire = Wire(RESPONSES.encode(reply(Message("assistant", "the summary")), call))
    compacted = openai_client(wire).responses.compact(model="m", input="go")
    assert wire.path == RESPONSES.routes[1].path
    assert compacted.object == "response.compaction"
    assert [item.type for item in compacted.output] == ["message", "compaction"]
    kept = decode(orjson.loads(RESPONSES.encode(reply(Message("assistant", "S")), call))["output"])
    assert kept.messages[0] == Message("user", "go")


def test_the_sdk_counts_tokens() -> None:
    wire = Wire(RESPONSES.count(1234))
    assert openai_client(wire).responses.input_tokens.count(model="m", input="go").input_tokens == 1234
    assert wire.path == RESPONSES.routes[2].path
    assert RESPONSES.decode(wire.body, {}).messages == (Message("user", "go"),)


def test_a_user_image_is_refused_unless_a_tool_brought_it() -> None:
    image = {"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,AA=="}]}
    call = decode([user("go"), call_item("c1"), output_item("c1", "attached"), image])
    assert call.messages[3] == Message("user", "[image omitted: this model reads text only]")
    assert codes(call) == ["media_omitted"]
    said = {"role": "assistant", "content": "ok"}
    with pytest.raises(GatewayError):
        decode([user("go"), call_item("c1"), output_item("c1", "attached"), said, image])
    assert refusal({"input": [image]}) == (
        "input[0].content[0]: this model reads text only, image content is not supported."
    )


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no input": ({}, "input: must be a string or a list of items"),
    "empty input": ({"input": []}, "input: must say something"),
    "input a number": ({"input": 3}, "input: expected a list, got an integer"),
    "item a string": ({"input": ["x"]}, "input[0]: expected an object, got a string"),
    "type a number": ({"input": [{"type": 5}]}, "input[0].type: expected a string, got an integer"),
    "unknown role": ({"input": [{"role": "robot", "content": "x"}]}, "input[0].role: unknown role 'robot'"),
    "call without an id": (
        {"input": [{"type": "function_call", "name": "f"}]},
        "input[0].call_id: expected a non-empty string, got null",
    ),
    "a reference": (
        {"input": [{"type": "item_reference", "id": "msg_1"}]},
        "input[0].type: stored items cannot be referenced here, send them in full",
    ),
    "tool without a name": (
        {"input": "x", "tools": [{"type": "function"}]},
        "tools[0].name: expected a non-empty string, got null",
    ),
    "max_output_tokens negative": (
        {"input": "x", "max_output_tokens": -5},
        "max_output_tokens: must be at least 1, got -5",
    ),
    "instructions a list": ({"input": "x", "instructions": []}, "instructions: expected a string, got a list"),
}


@pytest.mark.parametrize(("body", "message"), WRONG.values(), ids=WRONG)
def test_a_wrong_type_is_refused_with_its_path(body: dict[str, Any], message: str) -> None:
    assert refusal(body) == f"{message}."
