"""Google's generateContent: what clients send, what the `google-genai` SDK reads, and how a wrong body is refused."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from google.genai import errors
from google.genai import types as google
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.routing import compile_path

from harbor_env.errors import GatewayError
from harbor_env.gateway.dialects import DIALECTS
from harbor_env.gateway.dialects.gemini import GEMINI
from harbor_env.gateway.dialects.opaque import seal
from harbor_env.gateway.types import Call, Message, Reply, Sampling, Tool, ToolCall, ToolChoice, Usage
from tests.conversations import replies
from tests.sdks import SSE, Wire, google_client, sent_only
from tests.strict_clients import read_gemini

ASK = Call((Message("user", "go"),), stream=True, model="policy")
WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}}
CALLED = Message("assistant", "", tool_calls=(ToolCall("c1", "weather", '{"city":"Paris"}'),))
GO = {"role": "user", "parts": [{"text": "go"}]}


def reply(message: Message, finish: Any = "stop") -> Reply:
    return Reply("r1", message, finish, Usage(10, 5, 4), "policy", 123)


def decode(*contents: Any, **fields: Any) -> Call:
    return GEMINI.decode({"contents": list(contents), **fields}, {"model": "m"})


def codes(call: Call) -> list[str]:
    return [finding.code for finding in call.findings]


def refusal(body: dict[str, Any]) -> str:
    with pytest.raises(GatewayError) as caught:
        GEMINI.decode(body, {"model": "m"})
    assert caught.value.status == 400
    return caught.value.message


def parts_of(answer: Reply) -> list[Any]:
    body = orjson.loads(GEMINI.encode(answer, ASK))
    assert read_gemini(b"".join(GEMINI.stream(answer, ASK, 2))) == body
    return list(body["candidates"][0]["content"]["parts"])


def answer_part(name: str, text: str, **extra: Any) -> dict[str, Any]:
    return {"functionResponse": {"name": name, "response": {"output": text}, **extra}}


def test_the_sdk_builds_a_request_and_its_whole_meaning_is_decoded() -> None:
    wire = Wire(GEMINI.encode(reply(Message("assistant", "hi")), ASK))
    google_client(wire).models.generate_content(
        model="policy",
        contents=[
            google.Content(role="user", parts=[google.Part(text="a"), google.Part(text="b")]),
            google.Content(
                role="model",
                parts=[
                    google.Part(text="why", thought=True, thought_signature=b"sig"),
                    google.Part(function_call=google.FunctionCall(id="c1", name="weather", args={"city": "Paris"})),
                ],
            ),
            google.Content(
                role="user",
                parts=[
                    google.Part(
                        function_response=google.FunctionResponse(id="c1", name="weather", response={"result": "sunny"})
                    )
                ],
            ),
        ],
        config=google.GenerateContentConfig(
            system_instruction="S",
            temperature=0.5,
            top_p=0.9,
            top_k=40,
            max_output_tokens=77,
            stop_sequences=["END"],
            seed=3,
            response_mime_type="application/json",
            response_json_schema=WEATHER,
            thinking_config=google.ThinkingConfig(thinking_budget=0),
            tools=[
                google.Tool(
                    function_declarations=[
                        google.FunctionDeclaration(name="weather", description="d", parameters_json_schema=WEATHER),
                        google.FunctionDeclaration(
                            name="older",
                            parameters=google.Schema(
                                type=google.Type.OBJECT, properties={"n": google.Schema(type=google.Type.INTEGER)}
                            ),
                        ),
                    ]
                )
            ],
            tool_config=google.ToolConfig(
                function_calling_config=google.FunctionCallingConfig(
                    mode=google.FunctionCallingConfigMode.ANY, allowed_function_names=["weather"]
                )
            ),
        ),
    )
    assert wire.path == "/v1/models/policy:generateContent"
    assert GEMINI.decode(wire.body, {"model": "policy"}) == Call(
        messages=(
            Message("system", "S"),
            Message("user", "a\nb"),
            Message("assistant", "", "why", (ToolCall("c1", "weather", '{"city":"Paris"}'),)),
            Message("tool", "sunny", tool_call_id="c1", name="weather"),
        ),
        tools=(
            Tool("weather", "d", WEATHER),
            Tool("older", "", {"type": "object", "properties": {"n": {"type": "integer"}}}),
        ),
        model="policy",
        max_tokens=77,
        sampling=Sampling(0.5, 0.9, 40, ("END",), 3),
        tool_choice=ToolChoice("named", "weather"),
        thinking=False,
        response_schema=WEATHER,
    )


def test_the_sdk_counts_tokens() -> None:
    wire = Wire(GEMINI.count(1234))
    assert google_client(wire).models.count_tokens(model="policy", contents="go").total_tokens == 1234
    assert wire.path == "/v1/models/policy:countTokens"
    assert GEMINI.decode(wire.body, {"model": "policy"}).messages == (Message("user", "go"),)
    wrapped = {
        "generateContentRequest": {"model": "models/policy", "contents": [GO], "systemInstruction": {"parts": []}}
    }
    assert GEMINI.decode(wrapped, {}).messages == (Message("user", "go"),)


PATHS = [
    ("/v1beta/models/qwen3-8b:generateContent", "qwen3-8b", "generate", False),
    ("/v1beta/models/qwen3-8b:streamGenerateContent", "qwen3-8b", "generate", True),
    ("/v1beta/models/Qwen/Qwen3-8B:streamGenerateContent", "Qwen/Qwen3-8B", "generate", True),
    ("/v1/models/a/b:c/d:countTokens", "a/b:c/d", "count", False),
]


@pytest.mark.parametrize(("path", "model", "action", "streamed"), PATHS)
def test_a_path_says_the_model_and_whether_to_stream(path: str, model: str, action: str, streamed: bool) -> None:
    patterns = [(route, compile_path(route.path)[0]) for route in GEMINI.routes]
    [(route, match)] = [(route, found) for route, pattern in patterns if (found := pattern.fullmatch(path))]
    call = GEMINI.decode({"contents": [GO]}, {**route.params, **match.groupdict()})
    assert (route.action, call.model, call.stream) == (action, model, streamed)


@settings(max_examples=40, deadline=None)
@given(answer=replies(), piece=st.integers(0, 4), chunk=st.integers(0, 40))
def test_the_sdk_reads_the_same_parts_from_the_stream_and_from_the_body(answer: Reply, piece: int, chunk: int) -> None:
    whole = google_client(Wire(GEMINI.encode(answer, ASK), chunk=chunk)).models.generate_content(
        model="policy", contents="go"
    )
    wire = Wire(b"".join(GEMINI.stream(answer, ASK, piece)), kind=SSE, chunk=chunk)
    chunks = list(google_client(wire).models.generate_content_stream(model="policy", contents="go"))
    assert joined(chunks) == joined([whole])
    assert [c.id for c in whole.function_calls or []] == [c.id for c in answer.message.tool_calls]
    assert sent_only(chunks[-1].usage_metadata.model_dump()) == sent_only(whole.usage_metadata.model_dump())
    assert chunks[-1].candidates[0].finish_reason == whole.candidates[0].finish_reason


def joined(chunks: list[Any]) -> list[tuple[Any, ...]]:
    """The parts of all chunks, with neighbouring texts of one kind joined."""
    found: list[list[Any]] = []
    for part in [part for chunk in chunks for part in chunk.candidates[0].content.parts or []]:
        if part.function_call:
            found.append(["call", part.function_call.id, part.function_call.name, part.function_call.args])
        elif found and found[-1][:2] == ["text", part.thought]:
            found[-1][2] += part.text
        else:
            found.append(["text", part.thought, part.text])
    return [tuple(part) for part in found]


def test_the_reasoning_a_client_drops_comes_back_from_the_next_part() -> None:
    message = Message("assistant", "text", "why", CALLED.tool_calls)
    thought, text, called = parts_of(reply(message))
    assert (thought["thought"], thought["text"]) == (True, "why")
    assert decode(GO, {"role": "model", "parts": [thought, text, called]}).messages[1] == message
    assert decode(GO, {"role": "model", "parts": [text, called]}).messages[1] == message
    [_, alone] = parts_of(reply(Message("assistant", "text", "why")))
    assert decode(GO, {"role": "model", "parts": [alone]}).messages[1] == Message("assistant", "text", "why")


def test_signatures_of_others_mean_nothing() -> None:
    part = {"functionCall": {"name": "f", "args": {}}, "thoughtSignature": "skip_thought_signature_validator"}
    assert decode(GO, {"role": "model", "parts": [part]}).messages[1] == Message(
        "assistant", tool_calls=(ToolCall("", "f", "{}"),)
    )


def test_every_reply_has_a_part_and_its_last_chunk_the_finish() -> None:
    assert parts_of(reply(Message("assistant"))) == [{"text": ""}]
    body = read_gemini(b"".join(GEMINI.stream(reply(CALLED, "length"), ASK)))
    assert body["candidates"][0]["finishReason"] == "MAX_TOKENS"
    assert orjson.loads(GEMINI.encode(reply(CALLED), ASK))["candidates"][0]["finishReason"] == "STOP"


def test_arguments_that_are_no_object_go_out_wrapped_and_come_back_as_written() -> None:
    message = Message("assistant", tool_calls=(ToolCall("c1", "f", '{"a": nope'),))
    parts = parts_of(reply(message))
    assert parts[0]["functionCall"]["args"] == {"__unparsedToolInput": {"raw": '{"a": nope', "len": 10}}
    assert decode(GO, {"role": "model", "parts": parts}).messages[1] == message


def test_line_breaks_between_tokens_of_arguments_do_not_break_an_event() -> None:
    message = Message("assistant", tool_calls=(ToolCall("c1", "f", '{\n"a":\r\n[1,\n2]}'),))
    assert parts_of(reply(message))[0]["functionCall"]["args"] == {"a": [1, 2]}


def test_results_without_ids_take_the_order_of_their_calls() -> None:
    calls = {"role": "model", "parts": [{"functionCall": {"name": n, "args": {}}} for n in ("f", "g", "f")]}
    results = {"role": "user", "parts": [answer_part("g", "G"), answer_part("f", "F1"), answer_part("f", "F2")]}
    call = decode(GO, calls, results)
    assert [(m.name, m.content) for m in call.messages[2:]] == [("f", "F1"), ("g", "G"), ("f", "F2")]


def test_results_with_ids_name_the_call_they_answer() -> None:
    calls = [{"functionCall": {"id": i, "name": "f", "args": {}}} for i in ("f_1", "f_2")]
    results = [answer_part("f", "2", id="f_2"), answer_part("f", "1", id="f_1")]
    call = decode(GO, {"role": "model", "parts": calls}, {"role": "user", "parts": results})
    assert [(m.tool_call_id, m.content) for m in call.messages[2:]] == [("f_2", "2"), ("f_1", "1")]


@pytest.mark.parametrize("ids", [{"id": "f_1"}, {}], ids=["by id", "by name"])
def test_a_result_sent_twice_is_read_once(ids: dict[str, str]) -> None:
    calls = {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}, **ids}}]}
    once = {"role": "user", "parts": [answer_part("f", "1", **ids)]}
    for results in ([{"role": "user", "parts": once["parts"] * 2}], [once, once]):
        call = decode(GO, calls, *results)
        assert [m.content for m in call.messages[2:]] == ["1"]
        assert codes(call) == ["duplicate_output"]
    twice = {"role": "model", "parts": calls["parts"] * 2}
    if not ids:
        assert len(decode(GO, twice, {"role": "user", "parts": once["parts"] * 2}).messages) == 4
        both = [*once["parts"], answer_part("f", "2")]
        assert [m.content for m in decode(GO, twice, {"parts": both * 2}).messages[2:]] == ["1", "2"]


@pytest.mark.parametrize("role", ["user", "function", "tool"])
@pytest.mark.parametrize("apart", [False, True], ids=["in one content", "each in its own"])
def test_results_whose_ids_no_call_has_take_the_order_of_the_calls_by_name(role: str, apart: bool) -> None:
    calls = [{"functionCall": {"name": "f", "args": {}, "id": "a"}}, {"functionCall": {"name": "g", "args": {}}}]
    parts = [answer_part("g", "G", id="x"), answer_part("f", "F", id="a")]
    contents = [{"role": role, "parts": [part]} for part in parts] if apart else [{"role": role, "parts": parts}]
    call = decode(GO, {"role": "model", "parts": calls}, *contents)
    assert [(m.role, m.content) for m in call.messages[2:]] == [("tool", "F"), ("tool", "G")]


def test_media_a_tool_brought_are_left_out_up_to_the_next_reply_and_refused_after_it() -> None:
    brought = [{"parts": [answer_part("f", "A")]}, {"parts": [BLOB]}]
    call = decode(*brought)
    assert call.messages[1].content == "[file omitted: this model reads text only]"
    assert codes(call) == ["media_omitted"]
    said = {"role": "model", "parts": [{"text": "ok"}]}
    assert refusal({"contents": [*brought, said, {"parts": [BLOB]}]}).startswith("contents[3].parts[0]: this model")
    told = {"contents": [GO], "systemInstruction": {"parts": [BLOB]}}
    assert refusal(told).startswith("systemInstruction.parts[0]: this model reads text only")


def test_a_part_that_is_text_and_call_is_both() -> None:
    part = {"text": "So:", "functionCall": {"name": "f", "args": {}}}
    call = decode(GO, {"role": "model", "parts": [part]}, GO)
    assert call.messages[1] == Message("assistant", "So:", tool_calls=(ToolCall("", "f", "{}"),))


def test_results_of_every_form_become_text() -> None:
    responses = [{"output": "a"}, {"result": [1]}, {"error": "bad"}, {"x": 1, "y": "z"}, {}]
    parts = [{"functionResponse": {"id": str(i), "name": "f", "response": r}} for i, r in enumerate(responses)]
    call = decode({"role": "user", "parts": parts})
    assert [m.content for m in call.messages] == ["a", "[1]", "bad", '{"x":1,"y":"z"}', ""]
    assert [m.is_error for m in call.messages] == [False, False, True, False, False]


BLOB = {"inlineData": {"mimeType": "image/png", "data": "AA=="}}


def test_files_are_refused_from_a_user_and_shown_as_left_out_beside_a_result() -> None:
    said = "contents[0].parts[0]: this model reads text only, file content is not supported."
    assert refusal({"contents": [{"role": "user", "parts": [BLOB]}]}) == said
    inside = {"functionResponse": {"name": "f", "response": {"output": "A"}, "parts": [BLOB]}}
    call = decode({"role": "user", "parts": [inside, BLOB]})
    assert [m.content for m in call.messages] == [
        "A\n[file omitted: this model reads text only]",
        "[file omitted: this model reads text only]",
    ]
    assert codes(call) == ["media_omitted", "media_omitted"]


def test_googles_own_tools_and_parts_are_left_out_with_findings() -> None:
    made = {"role": "model", "parts": [{"executableCode": {"code": "1"}}, {"text": "a"}]}
    call = decode(GO, made, GO, tools=[{"googleSearch": {}}, {"functionDeclarations": [{"name": "f"}]}])
    assert call.messages[1] == Message("assistant", "a")
    assert call.tools == (Tool("f"),)
    assert sorted(codes(call)) == ["block_dropped", "tool_dropped"]


def test_both_spellings_of_a_field_are_read() -> None:
    call = decode(
        GO,
        {"role": "model", "parts": [{"function_call": {"name": "f", "args": {}}, "thought_signature": seal("why")}]},
        system_instruction={"parts": [{"text": "S"}]},
        generation_config={"max_output_tokens": 5, "top_p": 0.5},
        tools=[{"function_declarations": [{"name": "f", "parameters_json_schema": WEATHER}]}],
        tool_config={"function_calling_config": {"mode": "NONE"}},
    )
    assert call.messages[0] == Message("system", "S")
    assert call.messages[2] == Message("assistant", "", "why", (ToolCall("", "f", "{}"),))
    assert (call.max_tokens, call.sampling.top_p, call.tool_choice.mode) == (5, 0.5, "none")
    assert call.tools == (Tool("f", "", WEATHER),)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no contents": ({}, "contents: must be a list of at least one content"),
    "contents a string": ({"contents": "go"}, "contents: expected a list, got a string"),
    "unknown role": ({"contents": [{"role": "robot", "parts": []}]}, "contents[0].role: unknown role 'robot'"),
    "text a number": (
        {"contents": [{"parts": [{"text": 5}]}]},
        "contents[0].parts[0].text: expected a string, got an integer",
    ),
    "unknown part": ({"contents": [{"parts": [{"smell": 5}]}]}, "contents[0].parts[0]: unknown part 'smell'"),
    "call without a name": (
        {"contents": [{"role": "model", "parts": [{"functionCall": {}}]}]},
        "contents[0].parts[0].functionCall.name: expected a string, got null",
    ),
    "response a string": (
        {"contents": [{"parts": [{"functionResponse": {"name": "f", "response": "x"}}]}]},
        "contents[0].parts[0].functionResponse.response: expected an object, got a string",
    ),
    "tool without a name": (
        {"contents": [GO], "tools": [{"functionDeclarations": [{}]}]},
        "tools[0].functionDeclarations[0].name: expected a non-empty string, got null",
    ),
    "maxOutputTokens a string": (
        {"contents": [GO], "generationConfig": {"maxOutputTokens": "5"}},
        "generationConfig.maxOutputTokens: expected an integer, got a string",
    ),
    "two candidates": (
        {"contents": [GO], "generationConfig": {"candidateCount": 2}},
        "generationConfig.candidateCount: only one candidate is served",
    ),
}


@pytest.mark.parametrize(("body", "message"), WRONG.values(), ids=WRONG)
def test_a_wrong_type_is_refused_with_its_path(body: dict[str, Any], message: str) -> None:
    assert refusal(body) == f"{message}."


def test_a_schema_nested_too_deeply_is_refused() -> None:
    deep: Any = {}
    for _ in range(400):
        deep = {"items": deep}
    declared = {"functionDeclarations": [{"name": "f", "parameters": deep}]}
    assert refusal({"contents": [GO], "tools": [declared]}).endswith("is nested too deeply.")


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("bad_request", "INVALID_ARGUMENT"),
        ("unauthorized", "UNAUTHENTICATED"),
        ("not_found", "NOT_FOUND"),
        ("rate_limited", "RESOURCE_EXHAUSTED"),
        ("engine_down", "UNAVAILABLE"),
        ("engine_timeout", "DEADLINE_EXCEEDED"),
        ("internal", "INTERNAL"),
    ],
)
def test_the_sdk_raises_the_error_that_was_meant(kind: Any, said: str) -> None:
    error = GatewayError(kind, "What went wrong.", retry_after=1.5)
    status, body = GEMINI.error(error)
    with pytest.raises(errors.APIError) as caught:
        google_client(Wire(body, status=status)).models.generate_content(model="m", contents="go")
    assert (caught.value.code, caught.value.status) == (error.status, said)
    assert orjson.loads(body)["error"]["details"][0]["retryDelay"] == "1.5s"


def test_an_overflow_is_in_googles_words() -> None:
    error = GatewayError("overflow", "Too long.", prompt_tokens=9000, window=8192)
    assert orjson.loads(GEMINI.error(error)[1])["error"] == {
        "code": 400,
        "message": "The input token count (9000) exceeds the maximum number of tokens allowed (8192).",
        "status": "INVALID_ARGUMENT",
    }
    assert b"token count exceeds the maximum" in GEMINI.error(GatewayError("overflow", "Too long."))[1]


def test_a_failure_after_the_headers_is_raised_by_the_sdk_and_looks_like_no_end() -> None:
    stream = GEMINI.keepalive + GEMINI.stream_error(GatewayError("engine_down", "The engine went away."))
    assert b"finishReason" not in stream
    client = google_client(Wire(stream, kind=SSE))
    with pytest.raises(errors.ServerError, match="went away"):
        list(client.models.generate_content_stream(model="m", contents="go"))


def test_a_keepalive_between_any_two_events_changes_nothing() -> None:
    chunks = list(GEMINI.stream(reply(Message("assistant", "text", "why", CALLED.tool_calls)), ASK))
    kept = b"".join(GEMINI.keepalive + chunk for chunk in chunks)
    read = list(google_client(Wire(kept, kind=SSE)).models.generate_content_stream(model="m", contents="go"))
    assert len(read) == len(chunks)


def test_every_dialect_is_in_the_table_under_its_own_name() -> None:
    assert {name: dialect.name for name, dialect in DIALECTS.items()} == {
        name: name for name in ("chat", "responses", "messages", "gemini")
    }
