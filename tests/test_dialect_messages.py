"""Anthropic Messages: what clients send, what the `anthropic` SDK reads, and how a wrong body is refused."""

from __future__ import annotations

from typing import Any

import anthropic
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harbor_env.errors import GatewayError
from harbor_env.gateway.dialects.messages import MESSAGES
from harbor_env.gateway.dialects.opaque import seal
from harbor_env.gateway.types import Call, Finding, Message, Reply, Sampling, Tool, ToolCall, ToolChoice, Usage
from tests.conversations import ODD_OBJECTS, replies
from tests.sdks import SSE, Wire, anthropic_client
from tests.strict_clients import events, read_messages

ASK = Call((Message("user", "go"),), stream=True)
GO: list[Any] = [{"role": "user", "content": "go"}]
WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}}
CALLED = Message("assistant", "", tool_calls=(ToolCall("c1", "weather", '{"city":"Paris"}'),))


def reply(message: Message, finish: Any = "stop", cached: int = 4) -> Reply:
    return Reply("r1", message, finish, Usage(10, 5, cached), "policy", 123)


def decode(messages: list[Any], **fields: Any) -> Call:
    return MESSAGES.decode({"model": "m", "messages": messages, "max_tokens": 9, **fields}, {})


def refusal(body: dict[str, Any]) -> str:
    with pytest.raises(GatewayError) as caught:
        MESSAGES.decode(body, {})
    assert caught.value.status == 400
    return caught.value.message


def test_the_sdk_builds_a_request_and_its_whole_meaning_is_decoded() -> None:
    wire = Wire(MESSAGES.encode(reply(Message("assistant", "hi")), ASK))
    anthropic_client(wire).messages.create(
        model="policy",
        max_tokens=77,
        system=[{"type": "text", "text": "S1"}, {"type": "text", "text": "S2", "cache_control": {"type": "ephemeral"}}],
        messages=[
            {"role": "user", "content": "a"},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "why", "signature": "s"},
                    {"type": "text", "text": "I "},
                    {"type": "text", "text": "look"},
                    {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Paris"}},
                ],
            },
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "sunny"}]},
        ],
        tools=[{"name": "weather", "description": "d", "input_schema": WEATHER}],
        tool_choice={"type": "tool", "name": "weather"},
        stop_sequences=["END"],
        extra_body={"temperature": 0.5, "top_p": 0.9, "top_k": 40},
        thinking={"type": "enabled", "budget_tokens": 1024},
        output_config={"format": {"type": "json_schema", "schema": WEATHER}},
    )
    assert wire.path == "/v1/messages"
    assert MESSAGES.decode(wire.body, {}) == Call(
        messages=(
            Message("system", "S1\nS2"),
            Message("user", "a"),
            Message("assistant", "I look", "why", (ToolCall("c1", "weather", '{"city":"Paris"}'),)),
            Message("tool", "sunny", tool_call_id="c1", name="weather"),
        ),
        tools=(Tool("weather", "d", WEATHER),),
        model="policy",
        max_tokens=77,
        sampling=Sampling(0.5, 0.9, 40, ("END",)),
        tool_choice=ToolChoice("named", "weather"),
        thinking=True,
        response_schema=WEATHER,
        findings=(Finding("effort_ignored", "thinking.budget_tokens: 1024"),),
    )


def test_the_sdk_counts_tokens() -> None:
    wire = Wire(MESSAGES.count(1234))
    counted = anthropic_client(wire).messages.count_tokens(
        model="m",
        system="S",
        messages=[{"role": "user", "content": "go"}],
        tools=[{"name": "f", "input_schema": WEATHER}],
    )
    assert counted.input_tokens == 1234
    assert wire.path == MESSAGES.routes[1].path
    call = MESSAGES.decode(wire.body, {})
    assert call.messages == (Message("system", "S"), Message("user", "go"))
    assert call.tools == (Tool("f", "", WEATHER),)


PARSED = st.sampled_from(['{"city":"Paris"}', "", *ODD_OBJECTS])


@settings(max_examples=40, deadline=None)
@given(answer=replies(PARSED), piece=st.integers(0, 4), chunk=st.integers(0, 40))
def test_the_sdk_reads_the_same_message_from_the_stream_and_from_the_body(
    answer: Reply, piece: int, chunk: int
) -> None:
    whole = anthropic_client(Wire(MESSAGES.encode(answer, ASK), chunk=chunk)).messages.create(
        model="policy", max_tokens=9, messages=GO
    )
    wire = Wire(b"".join(MESSAGES.stream(answer, ASK, piece)), kind=SSE, chunk=chunk)
    with anthropic_client(wire).messages.stream(model="policy", max_tokens=9, messages=GO) as stream:
        final = stream.get_final_message()
    assert final.model_dump(exclude_none=True) == whole.model_dump(exclude_none=True)
    calls = [block for block in whole.content if block.type == "tool_use"]
    assert [call.id for call in calls] == [call.id for call in answer.message.tool_calls]
    assert "".join(block.text for block in whole.content if block.type == "text") == answer.message.content


def test_any_event_left_out_fails_a_strict_client() -> None:
    chunks = list(MESSAGES.stream(reply(Message("assistant", "text", "why", CALLED.tool_calls)), ASK))
    whole = read_messages(b"".join(chunks))
    for left_out in range(len(chunks)):
        try:
            rebuilt = read_messages(b"".join(chunks[:left_out] + chunks[left_out + 1 :]))
        except (AssertionError, KeyError, ValueError, IndexError):
            continue
        assert rebuilt != whole


def test_a_call_without_arguments_is_an_empty_object() -> None:
    answer = reply(Message("assistant", tool_calls=(ToolCall("c1", "now", ""),)))
    deltas = [
        data["delta"] for name, data in events(b"".join(MESSAGES.stream(answer, ASK))) if name == "content_block_delta"
    ]
    assert deltas == [{"type": "input_json_delta", "partial_json": "{}"}]
    assert orjson.loads(MESSAGES.encode(answer, ASK))["content"][0]["input"] == {}


def test_arguments_that_are_no_object_stream_as_written_and_come_back_as_written() -> None:
    answer = reply(Message("assistant", tool_calls=(ToolCall("c1", "f", '{"a": nope'),)))
    rebuilt = read_messages(b"".join(MESSAGES.stream(answer, ASK, 3)))
    assert rebuilt == orjson.loads(MESSAGES.encode(answer, ASK))
    assert rebuilt["content"][0]["input"] == {"__unparsedToolInput": {"raw": '{"a": nope', "len": 10}}
    [message] = decode([{"role": "assistant", "content": rebuilt["content"]}]).messages
    assert message.tool_calls == answer.message.tool_calls


def test_long_numbers_leave_as_the_model_wrote_them() -> None:
    text = '{"n": 123456789012345678901234567890, "x": 20000.0}'
    assert text.encode() in MESSAGES.encode(reply(Message("assistant", tool_calls=(ToolCall("c", "f", text),))), ASK)


def test_an_input_of_any_json_type_is_kept_as_text() -> None:
    blocks = [{"type": "tool_use", "id": str(i), "name": "f", "input": v} for i, v in enumerate([[1], "x", None, 2.0])]
    [message] = decode([{"role": "assistant", "content": blocks}]).messages
    assert [call.arguments for call in message.tool_calls] == ["[1]", '"x"', "{}", "2.0"]


@pytest.mark.parametrize(
    ("message", "finish", "said"),
    [
        (Message("assistant", "x"), "stop", "end_turn"),
        (Message("assistant", ""), "stop", "end_turn"),
        (Message("assistant", "x"), "length", "max_tokens"),
        (CALLED, "stop", "tool_use"),
        (CALLED, "length", "max_tokens"),
    ],
)
def test_the_stop_reason_says_whether_calls_follow(message: Message, finish: str, said: str) -> None:
    answer = reply(message, finish)
    assert orjson.loads(MESSAGES.encode(answer, ASK))["stop_reason"] == said
    assert read_messages(b"".join(MESSAGES.stream(answer, ASK)))["stop_reason"] == said


def test_the_stream_starts_with_the_true_input_tokens() -> None:
    start = events(next(iter(MESSAGES.stream(reply(CALLED), ASK))))[0][1]
    assert start["message"]["usage"] == {
        "input_tokens": 6,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 4,
        "output_tokens": 0,
    }
    cached = events(next(iter(MESSAGES.stream(reply(CALLED, cached=10), ASK))))[0][1]
    assert cached["message"]["usage"]["input_tokens"] == 1


def test_a_reply_of_a_call_alone_has_no_text_block() -> None:
    assert b'"text"' not in MESSAGES.encode(reply(CALLED), ASK)
    assert b'"text"' not in b"".join(MESSAGES.stream(reply(CALLED), ASK))
    assert orjson.loads(MESSAGES.encode(reply(Message("assistant")), ASK))["content"] == []


def test_results_and_texts_of_one_message_stay_in_order() -> None:
    call = decode(
        [
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "A"}]},
                    {"type": "tool_result", "tool_use_id": "t2", "content": "B", "is_error": True},
                    {"type": "text", "text": "go"},
                    {"type": "text", "text": ""},
                    {"type": "text", "text": "on"},
                    {"type": "tool_result", "tool_use_id": "t3"},
                ],
            }
        ]
    )
    assert call.messages == (
        Message("tool", "A", tool_call_id="t1"),
        Message("tool", "B", tool_call_id="t2", is_error=True),
        Message("user", "go\non"),
        Message("tool", "", tool_call_id="t3"),
    )


def test_the_billing_header_is_removed_before_anything_else() -> None:
    header = {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.332.93a; cc_entrypoint=sdk-cli;"}
    both = decode(GO, system=[header, {"type": "text", "text": "S"}])
    assert both.messages[0] == Message("system", "S")
    assert decode(GO, system=[header]).messages == (Message("user", "go"),)
    assert decode(GO, system=header["text"]).messages == (Message("user", "go"),)
    joined = f"{header['text']}\nS1\nS2"
    for system in (joined, [{"type": "text", "text": joined}], [joined]):
        assert decode(GO, system=system).messages[0] == Message("system", "S1\nS2")


def test_a_system_message_in_mid_conversation_stays_where_it_is() -> None:
    call = decode(
        [*GO, {"role": "assistant", "content": "a"}, {"role": "system", "content": [{"type": "text", "text": "S"}]}]
    )
    assert call.messages[-1] == Message("system", "S")


def test_sealed_thinking_opens_and_foreign_thinking_is_a_finding() -> None:
    blocks = [{"type": "redacted_thinking", "data": seal("why")}, {"type": "redacted_thinking", "data": "opaque"}]
    call = decode([{"role": "assistant", "content": [*blocks, {"type": "thinking", "thinking": "and"}]}, *GO])
    assert call.messages[0].reasoning == "why\nand"
    assert [finding.code for finding in call.findings] == ["reasoning_undecodable"]


def test_a_deferred_tool_is_described_where_it_is_referenced() -> None:
    tools = [{"name": "Bash", "input_schema": WEATHER}, {"name": "Web", "input_schema": WEATHER, "defer_loading": True}]
    content = [{"type": "tool_reference", "tool_name": "Web"}, {"type": "tool_reference", "tool_name": "Gone"}]
    call = decode(
        [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": content}]}], tools=tools
    )
    assert [tool.name for tool in call.tools] == ["Bash"]
    assert [tool.name for tool in call.deferred_tools] == ["Web"]
    loaded, gone = call.messages[0].content.split("\n")
    assert orjson.loads(loaded.removeprefix("Tool loaded: "))["function"]["parameters"] == WEATHER
    assert gone == "Tool loaded: Gone"


IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}
PDF = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "AA=="}}
NOTE = {"type": "document", "title": "T", "source": {"type": "text", "media_type": "text/plain", "data": "D"}}


def test_images_and_files_are_refused_from_a_user_and_shown_as_left_out_from_a_tool() -> None:
    said = "messages[0].content[0]: this model reads text only, {} content is not supported."
    for block, what in [(IMAGE, "image"), (PDF, "document")]:
        assert refusal({"messages": [{"role": "user", "content": [block]}]}) == said.format(what)
    odd = {"type": "browser_state", "url": "x"}
    content = [{"type": "tool_result", "tool_use_id": "t", "content": [IMAGE, {"type": "text", "text": "A"}, PDF, odd]}]
    call = decode([{"role": "user", "content": content}])
    assert call.messages[0].content == (
        "[image omitted: this model reads text only]\nA\n[document omitted: this model reads text only]\n"
        "[browser_state omitted: this model cannot read it]"
    )
    assert [finding.code for finding in call.findings] == ["media_omitted", "media_omitted", "block_dropped"]


def test_media_a_tool_brought_are_left_out_up_to_the_next_reply_and_refused_after_it() -> None:
    nested = {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "A"}, IMAGE]}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": [nested]}
    brought = [{"role": "user", "content": [result, PDF]}, {"role": "user", "content": [IMAGE]}]
    call = decode(brought)
    assert [message.content for message in call.messages] == [
        "A\n[image omitted: this model reads text only]",
        "[document omitted: this model reads text only]",
        "[image omitted: this model reads text only]",
    ]
    assert [finding.code for finding in call.findings] == ["media_omitted"] * 3
    given = [*brought, {"role": "assistant", "content": "ok"}, {"role": "user", "content": [PDF]}]
    assert refusal({"messages": given}).startswith("messages[3].content[0]: this model reads text only")


def test_an_empty_document_is_text_all_the_same() -> None:
    assert decode([{"role": "user", "content": [{**NOTE, "source": {"type": "text", "data": ""}}]}]).messages == (
        Message("user", "T"),
    )


def test_documents_and_search_results_that_are_text_are_read() -> None:
    found = {"type": "search_result", "title": "T", "source": "u", "content": [{"type": "text", "text": "hit"}]}
    assert decode([{"role": "user", "content": [NOTE, found]}]).messages[0].content == "T\nD\nT (u)\nhit"


def test_blocks_of_hosted_tools_are_left_out_with_a_finding() -> None:
    blocks = [{"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}, {"type": "text", "text": "a"}]
    call = decode(
        [{"role": "assistant", "content": blocks}, *GO], tools=[{"type": "web_search_20250305", "name": "web_search"}]
    )
    assert call.messages[0] == Message("assistant", "a")
    assert [finding.code for finding in call.findings] == ["tool_dropped", "block_dropped"]


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "messages missing": ({}, "messages: must be a list of at least one message"),
    "unknown role": ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role: unknown role 'tool'"),
    "content a number": (
        {"messages": [{"role": "user", "content": 5}]},
        "messages[0].content: expected a string or a list of parts, got an integer",
    ),
    "block type missing": (
        {"messages": [{"role": "assistant", "content": [{"text": "x"}]}]},
        "messages[0].content[0].type: expected a string, got null",
    ),
    "a call from a user": (
        {"messages": [{"role": "user", "content": [{"type": "tool_use", "id": "c", "name": "f"}]}]},
        "messages[0].content[0].type: unknown type 'tool_use'",
    ),
    "call without an id": (
        {"messages": [{"role": "assistant", "content": [{"type": "tool_use", "name": "f"}]}]},
        "messages[0].content[0].id: expected a non-empty string, got null",
    ),
    "result without an id": (
        {"messages": [{"role": "user", "content": [{"type": "tool_result", "content": "x"}]}]},
        "messages[0].content[0].tool_use_id: expected a non-empty string, got null",
    ),
    "is_error a string": (
        {"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "is_error": "yes"}]}]},
        "messages[0].content[0].is_error: expected a boolean, got a string",
    ),
    "system a number": ({"messages": GO, "system": 3}, "system: expected a string or a list of parts, got an integer"),
    "tool without a name": ({"messages": GO, "tools": [{}]}, "tools[0].name: expected a non-empty string, got null"),
    "max_tokens zero": ({"messages": GO, "max_tokens": 0}, "max_tokens: must be at least 1, got 0"),
    "tool_choice a string": ({"messages": GO, "tool_choice": "auto"}, "tool_choice: expected an object, got a string"),
    "tool_choice unknown": ({"messages": GO, "tool_choice": {"type": "x"}}, "tool_choice.type: unknown type 'x'"),
}


@pytest.mark.parametrize(("body", "message"), WRONG.values(), ids=WRONG)
def test_a_wrong_type_is_refused_with_its_path(body: dict[str, Any], message: str) -> None:
    assert refusal(body) == f"{message}."


def test_an_input_nested_too_deeply_is_refused() -> None:
    deep: Any = {}
    for _ in range(400):
        deep = {"a": deep}
    block = {"type": "tool_use", "id": "c", "name": "f", "input": deep}
    assert refusal({"messages": [{"role": "assistant", "content": [block]}]}).endswith("is nested too deeply.")


@pytest.mark.parametrize(
    ("kind", "raised", "said"),
    [
        ("bad_request", anthropic.BadRequestError, "invalid_request_error"),
        ("unauthorized", anthropic.AuthenticationError, "authentication_error"),
        ("not_found", anthropic.NotFoundError, "not_found_error"),
        ("conflict", anthropic.ConflictError, "conflict_error"),
        ("too_large", anthropic.APIStatusError, "request_too_large"),
        ("rate_limited", anthropic.RateLimitError, "rate_limit_error"),
        ("engine_error", anthropic.InternalServerError, "api_error"),
        ("engine_down", anthropic.InternalServerError, "overloaded_error"),
        ("engine_timeout", anthropic.InternalServerError, "timeout_error"),
    ],
)
def test_the_sdk_raises_the_error_that_was_meant(kind: Any, raised: type[anthropic.APIStatusError], said: str) -> None:
    error = GatewayError(kind, "What went wrong.")
    status, body = MESSAGES.error(error)
    with pytest.raises(raised) as caught:
        anthropic_client(Wire(body, status=status)).messages.create(model="m", max_tokens=9, messages=GO)
    assert (caught.value.status_code, caught.value.type) == (error.status, said)


def test_an_overflow_is_the_one_claude_code_compacts_on() -> None:
    error = GatewayError("overflow", "Too long.", prompt_tokens=9000, window=8192)
    assert orjson.loads(MESSAGES.error(error)[1])["error"] == {
        "type": "invalid_request_error",
        "message": "prompt is too long: 9000 tokens > 8192 maximum",
    }
    assert b"prompt is too long: Too long." in MESSAGES.error(GatewayError("overflow", "Too long."))[1]


def test_a_failure_after_the_headers_is_raised_by_the_sdk_and_looks_like_no_end() -> None:
    stream = MESSAGES.keepalive + MESSAGES.stream_error(GatewayError("engine_down", "The engine went away."))
    assert b"message_stop" not in stream
    client = anthropic_client(Wire(stream, kind=SSE))
    with pytest.raises(anthropic.APIStatusError, match="went away"):
        list(client.messages.create(model="m", max_tokens=9, messages=GO, stream=True))


def test_a_keepalive_between_any_two_events_changes_nothing() -> None:
    chunks = list(MESSAGES.stream(reply(CALLED), ASK))
    kept = b"".join(MESSAGES.keepalive + chunk for chunk in chunks)
    with anthropic_client(Wire(kept, kind=SSE)).messages.stream(model="m", max_tokens=9, messages=GO) as stream:
        assert stream.get_final_message().stop_reason == "tool_use"
    assert read_messages(kept) == read_messages(b"".join(chunks))
