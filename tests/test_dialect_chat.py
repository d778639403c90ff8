"""Chat Completions: what clients send, what the `openai` SDK reads, and how a wrong body is refused."""

from __future__ import annotations

from typing import Any

import openai
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harbor_env.errors import GatewayError
from harbor_env.gateway.dialects.chat import CHAT
from harbor_env.gateway.types import Call, Finding, Message, Reply, Sampling, Tool, ToolCall, ToolChoice, Usage
from tests.conversations import replies
from tests.sdks import SSE, Wire, openai_client, sent_only
from tests.strict_clients import events, read_chat

ASK = Call((Message("user", "go"),), stream=True)
WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}}
CALLED = Message("assistant", "", tool_calls=(ToolCall("c1", "weather", '{"city":"Paris"}'),))


def reply(message: Message, finish: Any = "stop") -> Reply:
    return Reply("r1", message, finish, Usage(10, 5, 4), "policy", 123)


def decode(messages: list[Any], **fields: Any) -> Call:
    return CHAT.decode({"model": "m", "messages": messages, **fields}, {})


def refusal(body: dict[str, Any]) -> str:
    with pytest.raises(GatewayError) as caught:
        CHAT.decode(body, {})
    assert caught.value.status == 400
    return caught.value.message


def test_the_sdk_builds_a_request_and_its_whole_meaning_is_decoded() -> None:
    wire = Wire(CHAT.encode(reply(Message("assistant", "hi")), ASK))
    openai_client(wire).chat.completions.create(
        model="policy",
        messages=[
            {"role": "developer", "content": "S"},
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            {
                "role": "assistant",
                "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Paris"}'}},
                    {"id": "c2", "type": "custom", "custom": {"name": "patch", "input": "*** Begin"}},
                ],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
            {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "done"}]},
        ],
        tools=[
            {"type": "function", "function": {"name": "weather", "description": "d", "parameters": WEATHER}},
            {
                "type": "custom",
                "custom": {
                    "name": "patch",
                    "format": {"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: x"}},
                },
            },
        ],
        tool_choice={"type": "function", "function": {"name": "weather"}},
        max_completion_tokens=77,
        temperature=0.5,
        top_p=0.9,
        stop=["END"],
        seed=3,
        reasoning_effort="high",
        response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": WEATHER}},
    )
    assert wire.path == CHAT.routes[0].path
    assert CHAT.decode(wire.body, {}) == Call(
        messages=(
            Message("system", "S"),
            Message("user", "a\nb"),
            Message(
                "assistant",
                tool_calls=(ToolCall("c1", "weather", '{"city": "Paris"}'), ToolCall("c2", "patch", "*** Begin")),
            ),
            Message("tool", "sunny", tool_call_id="c1", name="weather"),
            Message("tool", "done", tool_call_id="c2", name="patch"),
        ),
        tools=(
            Tool("weather", "d", WEATHER),
            Tool("patch", "The input follows this lark grammar:\nstart: x", kind="custom"),
        ),
        model="policy",
        max_tokens=77,
        sampling=Sampling(0.5, 0.9, None, ("END",), 3),
        tool_choice=ToolChoice("named", "weather"),
        thinking=True,
        response_schema=WEATHER,
        findings=(Finding("effort_ignored", "reasoning_effort: high"),),
    )


VALID = st.sampled_from(['{"city":"Paris"}', "{}", '{ "n": 20000.0 }', '{"a"', "", "nonsense"])


@settings(max_examples=40, deadline=None)
@given(answer=replies(VALID), piece=st.integers(0, 4), chunk=st.integers(0, 40))
def test_the_sdk_reads_the_same_message_from_the_stream_and_from_the_body(
    answer: Reply, piece: int, chunk: int
) -> None:
    whole = openai_client(Wire(CHAT.encode(answer, ASK), chunk=chunk)).chat.completions.create(
        model="policy", messages=[{"role": "user", "content": "go"}]
    )
    wire = Wire(b"".join(CHAT.stream(answer, ASK, piece)), kind=SSE, chunk=chunk)
    with openai_client(wire).chat.completions.stream(
        model="policy", messages=[{"role": "user", "content": "go"}], stream_options={"include_usage": True}
    ) as stream:
        final = stream.until_done().current_completion_snapshot
    assert sent_only(final.model_dump()) == sent_only(whole.model_dump())
    assert whole.choices[0].message.content == (answer.message.content or (None if answer.message.tool_calls else ""))
    assert [c.id for c in whole.choices[0].message.tool_calls or []] == [c.id for c in answer.message.tool_calls]


def test_a_custom_call_travels_as_one() -> None:
    call = Call(ASK.messages, tools=(Tool("patch", kind="custom"),), stream=True)
    answer = reply(
        Message("assistant", tool_calls=(ToolCall("c1", "patch", "*** {Begin"), ToolCall("c2", "patch", "")))
    )
    body = orjson.loads(CHAT.encode(answer, call))
    assert body["choices"][0]["message"]["tool_calls"][0] == {
        "id": "c1",
        "type": "custom",
        "custom": {"name": "patch", "input": "*** {Begin"},
    }
    assert read_chat(b"".join(CHAT.stream(answer, call, 3))) == body
    wire = Wire(CHAT.encode(answer, call))
    read = openai_client(wire).chat.completions.create(model="m", messages=[{"role": "user", "content": "go"}])
    assert read.choices[0].message.tool_calls
    assert read.choices[0].message.tool_calls[0].type == "custom"


def test_any_chunk_left_out_fails_a_strict_client() -> None:
    answer = reply(Message("assistant", "text", "why", CALLED.tool_calls))
    chunks = list(CHAT.stream(answer, ASK))
    whole = read_chat(b"".join(chunks))
    for left_out in range(len(chunks)):
        try:
            rebuilt = read_chat(b"".join(chunks[:left_out] + chunks[left_out + 1 :]))
        except (AssertionError, KeyError, ValueError):
            continue
        assert rebuilt != whole


@pytest.mark.parametrize(
    ("message", "finish", "said"),
    [
        (Message("assistant", "x"), "stop", "stop"),
        (Message("assistant", "x"), "length", "length"),
        (CALLED, "stop", "tool_calls"),
        (CALLED, "length", "length"),
    ],
)
def test_the_finish_reason_says_whether_calls_follow(message: Message, finish: str, said: str) -> None:
    answer = reply(message, finish)
    assert orjson.loads(CHAT.encode(answer, ASK))["choices"][0]["finish_reason"] == said
    assert read_chat(b"".join(CHAT.stream(answer, ASK)))["choices"][0]["finish_reason"] == said


def test_a_text_reply_never_mentions_tool_calls() -> None:
    answer = reply(Message("assistant", "x"))
    assert b"tool_calls" not in CHAT.encode(answer, ASK)
    assert b"tool_calls" not in b"".join(CHAT.stream(answer, ASK))


def test_usage_is_streamed_only_where_asked_for() -> None:
    silent = decode([{"role": "user", "content": "x"}], stream=True)
    asked = decode([{"role": "user", "content": "x"}], stream=True, stream_options={"include_usage": True})
    answer = reply(Message("assistant", "x"))
    assert b'"usage"' not in b"".join(CHAT.stream(answer, silent))
    assert events(b"".join(CHAT.stream(answer, asked)))[-2][1]["usage"] == {
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "total_tokens": 15,
        "prompt_tokens_details": {"cached_tokens": 4},
    }


def test_arguments_that_are_not_json_are_kept_as_written() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": nope'}}
    [message] = decode([{"role": "assistant", "content": None, "tool_calls": [call]}]).messages
    assert message.tool_calls == (ToolCall("c1", "f", '{"a": nope'),)


def test_arguments_sent_as_an_object_become_json_text() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": {"a": [1, None]}}}
    [message] = decode([{"role": "assistant", "tool_calls": [call]}]).messages
    assert message.tool_calls[0].arguments == '{"a":[1,null]}'


def test_a_result_of_an_unknown_call_stays_a_result() -> None:
    [_, message] = decode(
        [{"role": "user", "content": "x"}, {"role": "tool", "tool_call_id": "gone", "content": "r"}]
    ).messages
    assert message == Message("tool", "r", tool_call_id="gone")


def test_an_image_is_refused_from_a_user_and_shown_as_left_out_from_a_tool() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    asked = {"messages": [{"role": "user", "content": [{"type": "text", "text": "see"}, image]}]}
    assert refusal(asked) == "messages[0].content[1]: this model reads text only, image content is not supported."
    call = decode([{"role": "tool", "tool_call_id": "c", "content": [image, {"type": "text", "text": "after"}]}])
    assert call.messages[0].content == "[image omitted: this model reads text only]\nafter"
    assert [finding.code for finding in call.findings] == ["media_omitted"]


def test_an_image_a_tool_brought_is_left_out_up_to_the_next_reply_and_refused_after_it() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    result, note = {"role": "tool", "tool_call_id": "c", "content": "see"}, {"role": "system", "content": "S"}
    brought = [result, note, {"role": "user", "content": [{"type": "text", "text": "Attached:"}, image]}]
    call = decode(brought)
    assert call.messages[2].content == "Attached:\n[image omitted: this model reads text only]"
    assert [finding.code for finding in call.findings] == ["media_omitted"]
    given = [*brought, {"role": "assistant", "content": "ok"}, {"role": "user", "content": [image]}]
    assert refusal({"messages": given}).startswith("messages[4].content[0]: this model reads text only")


@pytest.mark.parametrize(
    ("fields", "thinking"),
    [
        ({}, None),
        ({"reasoning_effort": "none"}, False),
        ({"reasoning_effort": "low"}, True),
        ({"enable_thinking": False}, False),
        ({"thinking": {"type": "disabled"}}, False),
        ({"thinking": {"type": "enabled"}}, True),
        ({"reasoning": {"effort": "none"}}, False),
        ({"reasoning": {"effort": "low"}}, True),
        ({"reasoning": {"summary": "auto"}}, None),
        ({"chat_template_kwargs": {"thinking": True}}, True),
        ({"chat_template_kwargs": {"enable_thinking": False}, "reasoning_effort": "high"}, False),
    ],
)
def test_every_spelling_of_thinking_is_read(fields: dict[str, Any], thinking: bool | None) -> None:
    assert decode([{"role": "user", "content": "x"}], **fields).thinking is thinking


def test_hosted_tools_are_left_out_with_a_finding() -> None:
    call = decode([{"role": "user", "content": "x"}], tools=[{"type": "web_search"}])
    assert call.tools == ()
    assert [finding.code for finding in call.findings] == ["tool_dropped"]


USER = {"role": "user", "content": "x"}
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no messages": ({}, "messages: must be a list of at least one message"),
    "messages not a list": ({"messages": {}}, "messages: expected a list, got an object"),
    "no message": ({"messages": []}, "messages: must be a list of at least one message"),
    "message not an object": ({"messages": [USER, "x"]}, "messages[1]: expected an object, got a string"),
    "unknown role": ({"messages": [{"role": "robot"}]}, "messages[0].role: unknown role 'robot'"),
    "role missing": ({"messages": [{"content": "x"}]}, "messages[0].role: expected a non-empty string, got null"),
    "content a number": (
        {"messages": [{"role": "user", "content": 5}]},
        "messages[0].content: expected a string or a list of parts, got an integer",
    ),
    "text a number": (
        {"messages": [{"role": "user", "content": [{"type": "text", "text": 1.5}]}]},
        "messages[0].content[0].text: expected a string, got a number",
    ),
    "unknown part": (
        {"messages": [{"role": "user", "content": [{"type": "smell"}]}]},
        "messages[0].content[0].type: unknown type 'smell'",
    ),
    "call without a name": (
        {"messages": [{"role": "assistant", "tool_calls": [{"id": "c", "function": {"arguments": "{}"}}]}]},
        "messages[0].tool_calls[0].function.name: expected a string, got null",
    ),
    "tool without a name": (
        {"messages": [USER], "tools": [{"type": "function", "function": {}}]},
        "tools[0].function.name: expected a non-empty string, got null",
    ),
    "tool name empty": (
        {"messages": [USER], "tools": [{"type": "function", "function": {"name": ""}}]},
        "tools[0].function.name: is empty",
    ),
    "max_tokens a string": ({"messages": [USER], "max_tokens": "9"}, "max_tokens: expected an integer, got a string"),
    "max_tokens a boolean": (
        {"messages": [USER], "max_tokens": True},
        "max_tokens: expected an integer, got a boolean",
    ),
    "max_tokens negative": ({"messages": [USER], "max_tokens": -1}, "max_tokens: must be at least 1, got -1"),
    "stream a string": ({"messages": [USER], "stream": "yes"}, "stream: expected a boolean, got a string"),
    "temperature a list": ({"messages": [USER], "temperature": []}, "temperature: expected a number, got a list"),
    "two choices": ({"messages": [USER], "n": 2}, "n: only one choice is served"),
    "tool_choice odd": ({"messages": [USER], "tool_choice": "maybe"}, "tool_choice: expected an object, got a string"),
}


@pytest.mark.parametrize(("body", "message"), WRONG.values(), ids=WRONG)
def test_a_wrong_type_is_refused_with_its_path(body: dict[str, Any], message: str) -> None:
    assert refusal(body) == f"{message}."


OVERFLOW = GatewayError("overflow", "Too long.", prompt_tokens=9000, window=8192)


def test_an_overflow_is_the_one_agents_recognise() -> None:
    status, body = CHAT.error(OVERFLOW)
    wire = Wire(body, status=status)
    with pytest.raises(openai.BadRequestError) as caught:
        openai_client(wire).chat.completions.create(model="m", messages=[{"role": "user", "content": "go"}])
    assert caught.value.code == "context_length_exceeded"
    assert "maximum context length is 8192 tokens" in caught.value.message
    assert "exceeds the context window" in CHAT.error(GatewayError("overflow", "Too long."))[1].decode()


@pytest.mark.parametrize(
    ("kind", "raised", "code"),
    [
        ("unauthorized", openai.AuthenticationError, "invalid_api_key"),
        ("not_found", openai.NotFoundError, "not_found"),
        ("conflict", openai.ConflictError, "conflict"),
        ("too_large", openai.APIStatusError, "request_too_large"),
        ("rate_limited", openai.RateLimitError, "rate_limit_exceeded"),
        ("engine_error", openai.InternalServerError, "engine_error"),
        ("internal", openai.InternalServerError, "server_error"),
    ],
)
def test_the_sdk_raises_the_error_that_was_meant(kind: Any, raised: type[openai.APIStatusError], code: str) -> None:
    error = GatewayError(kind, "What went wrong.")
    status, body = CHAT.error(error)
    with pytest.raises(raised) as caught:
        openai_client(Wire(body, status=status)).chat.completions.create(
            model="m", messages=[{"role": "user", "content": "go"}]
        )
    assert (caught.value.status_code, caught.value.code) == (error.status, code)


def test_a_failure_after_the_headers_is_raised_by_the_sdk_and_looks_like_no_end() -> None:
    stream = CHAT.keepalive + CHAT.stream_error(GatewayError("engine_down", "The engine went away."))
    assert b"[DONE]" not in stream
    answers = openai_client(Wire(stream, kind=SSE)).chat.completions.create(
        model="m", messages=[{"role": "user", "content": "go"}], stream=True
    )
    with pytest.raises(openai.APIError, match="went away"):
        list(answers)


def test_a_keepalive_between_any_two_events_changes_nothing() -> None:
    chunks = list(CHAT.stream(reply(CALLED), ASK))
    kept = b"".join(CHAT.keepalive + chunk for chunk in chunks)
    answers = openai_client(Wire(kept, kind=SSE)).chat.completions.create(
        model="m", messages=[{"role": "user", "content": "go"}], stream=True
    )
    assert len(list(answers)) == len(chunks) - 1


def test_a_wish_for_one_call_at_a_time_is_a_finding_and_a_wish_for_many_is_none() -> None:
    for wish, codes in ((False, ["parallel_calls_not_prevented"]), (True, []), (None, [])):
        body = {"model": "m", "messages": [{"role": "user", "content": "x"}], "parallel_tool_calls": wish}
        assert [finding.code for finding in CHAT.decode(body, {}).findings] == codes
