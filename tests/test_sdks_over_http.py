"""The vendors' own SDKs against a served gateway: every kind of reply, whole and streamed, and sent back as history."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import openai
import orjson
import pytest
from google import genai
from google.genai import types as google

from harbor_env.errors import EngineError
from harbor_env.gateway.types import Message, ToolCall
from tests.serving import FakeEngine, Served, serving

SCHEMA = {"type": "object", "properties": {"cmd": {"type": "string"}}}
LS, PWD = ToolCall("", "bash", '{"cmd": "ls \\"ž\\" 🐎"}'), ToolCall("", "bash", '{"cmd":"pwd"}')
KINDS = {
    "text": Message("assistant", "Text.\n\u2028žluť 🐎"),
    "reasoning": Message("assistant", "So.", "First\n\nI think."),
    "reasoning alone": Message("assistant", "", "Hm."),
    "one call": Message("assistant", tool_calls=(LS,)),
    "text and a call": Message("assistant", "Looking.", "First.", (LS,)),
    "parallel calls": Message("assistant", tool_calls=(LS, PWD, LS)),
    "a call without arguments": Message("assistant", tool_calls=(ToolCall("", "bash", ""),)),
    "nothing": Message("assistant"),
    "white space": Message("assistant", "\n"),
    "a refusal": Message("assistant", "I can't help with that."),
}


@dataclass(frozen=True, slots=True)
class Read:
    """What an SDK's user sees of a reply.

    `ended` is the vendor's word for how it ended; `back` is the reply as history, with results for its calls.
    """

    text: str
    reasoning: str
    calls: list[tuple[str, Any]]
    ended: str
    back: list[Any]


@dataclass(frozen=True, slots=True)
class Line:
    """One session's way to a served gateway; the HTTP client is shared, for each loads certificates anew."""

    url: str
    key: str
    http: httpx2.AsyncClient


Ask = Callable[[Line, list[Any], bool, int], Awaitable[Read]]


async def chat(line: Line, history: list[Any], stream: bool, limit: int) -> Read:
    asked: dict[str, Any] = {
        "model": "m",
        "messages": [{"role": "user", "content": "go"}, *history],
        "tools": [{"type": "function", "function": {"name": "bash", "parameters": SCHEMA}}],
        "max_tokens": limit,
    }
    client = openai.AsyncOpenAI(api_key=line.key, base_url=f"{line.url}/v1", http_client=line.http, max_retries=0)
    if stream:
        async with client.chat.completions.stream(**asked) as events:
            assert [event async for event in events]
            answer = events.current_completion_snapshot
    else:
        answer = await client.chat.completions.create(**asked)
    [choice] = answer.choices
    said = choice.message
    calls = [(c.function.name, orjson.loads(c.function.arguments)) for c in said.tool_calls or []]
    results = [{"role": "tool", "tool_call_id": c.id, "content": "ok"} for c in said.tool_calls or []]
    reasoning = (said.model_extra or {}).get("reasoning_content", "")
    sent_back = orjson.loads(said.model_dump_json(exclude_none=True))
    return Read(said.content or "", reasoning, calls, choice.finish_reason, [sent_back, *results])


async def responses(line: Line, history: list[Any], stream: bool, limit: int) -> Read:
    asked: dict[str, Any] = {
        "model": "m",
        "input": [{"role": "user", "content": "go"}, *history],
        "tools": [{"type": "function", "name": "bash", "parameters": SCHEMA, "strict": False}],
        "max_output_tokens": limit,
    }
    client = openai.AsyncOpenAI(api_key=line.key, base_url=f"{line.url}/v1", http_client=line.http, max_retries=0)
    if stream:
        async with client.responses.stream(**asked) as events:
            ends = [e async for e in events if e.type in ("response.completed", "response.incomplete")]
        answer = ends[-1].response
    else:
        answer = await client.responses.create(**asked)
    made = [item for item in answer.output if item.type == "function_call"]
    thought = ["".join(part.text for part in item.summary) for item in answer.output if item.type == "reasoning"]
    calls = [(c.name, orjson.loads(c.arguments)) for c in made]
    results = [{"type": "function_call_output", "call_id": c.call_id, "output": "ok"} for c in made]
    ended = answer.incomplete_details.reason if answer.incomplete_details else answer.status
    back = [orjson.loads(item.model_dump_json()) for item in answer.output]
    return Read(answer.output_text, "".join(thought), calls, ended, [*back, *results])


async def messages(line: Line, history: list[Any], stream: bool, limit: int) -> Read:
    asked: dict[str, Any] = {
        "model": "m",
        "messages": [{"role": "user", "content": "go"}, *history],
        "tools": [{"name": "bash", "input_schema": SCHEMA}],
        "max_tokens": limit,
    }
    client = anthropic.AsyncAnthropic(api_key=line.key, base_url=line.url, http_client=line.http, max_retries=0)
    if stream:
        async with client.messages.stream(**asked) as events:
            answer = await events.get_final_message()
    else:
        answer = await client.messages.create(**asked)
    text = "".join(block.text for block in answer.content if block.type == "text")
    thought = "".join(block.thinking for block in answer.content if block.type == "thinking")
    made = [block for block in answer.content if block.type == "tool_use"]
    results = [{"type": "tool_result", "tool_use_id": c.id, "content": "ok"} for c in made]
    back: list[Any] = [{"role": "assistant", "content": answer.content}]
    back += [{"role": "user", "content": results}] if results else []
    return Read(text, thought, [(c.name, c.input) for c in made], str(answer.stop_reason), back)


async def gemini(line: Line, history: list[Any], stream: bool, limit: int) -> Read:
    declared = google.FunctionDeclaration(name="bash", parameters_json_schema=SCHEMA)
    asked: dict[str, Any] = {
        "model": "lab/m",
        "contents": [google.Content(role="user", parts=[google.Part(text="go")]), *history],
        "config": google.GenerateContentConfig(
            tools=[google.Tool(function_declarations=[declared])],
            automatic_function_calling=google.AutomaticFunctionCallingConfig(disable=True),
            max_output_tokens=limit,
        ),
    }
    options = google.HttpOptions(base_url=line.url, httpx_client=NO_NETWORK, httpx_async_client=line.http)
    models = genai.Client(api_key=line.key, http_options=options).aio.models
    if stream:
        answers = [answer async for answer in await models.generate_content_stream(**asked)]
    else:
        answers = [await models.generate_content(**asked)]
    parts = [part for answer in answers for part in answer.candidates[0].content.parts or []]
    text = "".join(part.text or "" for part in parts if not part.thought)
    thought = "".join(part.text or "" for part in parts if part.thought)
    made = [part.function_call for part in parts if part.function_call]
    results = [
        google.Part(function_response=google.FunctionResponse(id=c.id, name=c.name, response={"output": "ok"}))
        for c in made
    ]
    back: list[Any] = [google.Content(role="model", parts=parts)]
    back += [google.Content(role="user", parts=results)] if results else []
    ended = str(answers[-1].candidates[0].finish_reason.value)
    return Read(text, thought, [(c.name, c.args) for c in made], ended, back)


MORE: dict[str, tuple[Ask, Any]] = {
    "chat": (chat, {"role": "user", "content": "on"}),
    "responses": (responses, {"role": "user", "content": "on"}),
    "messages": (messages, {"role": "user", "content": "on"}),
    "gemini": (gemini, google.Content(role="user", parts=[google.Part(text="on")])),
}
"""Per dialect: how its SDK asks, and what its user says next."""
ENDED = {
    "chat": ("stop", "tool_calls", "length"),
    "responses": ("completed", "completed", "max_output_tokens"),
    "messages": ("end_turn", "tool_use", "max_tokens"),
    "gemini": ("STOP", "STOP", "MAX_TOKENS"),
}
"""The vendor's words for a reply that is done, calls tools, or is cut."""
each_stream = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
each_sdk = pytest.mark.parametrize("name", MORE)


NO_NETWORK = httpx2.Client(transport=httpx2.MockTransport(lambda request: httpx2.Response(500)))


@asynccontextmanager
async def called(data: Path, engine: FakeEngine | None = None) -> AsyncIterator[tuple[Served, Line]]:
    """A served gateway, and a line to it without a session."""
    async with serving(data, engine) as served, httpx2.AsyncClient(verify=False, timeout=30) as http:
        yield served, Line(served.url, "sk-not-minted", http)


@each_stream
@each_sdk
async def test_an_sdk_reads_every_kind_of_reply_and_what_it_sends_back_continues_it(
    tmp_path: Path, name: str, stream: bool
) -> None:
    ask, more = MORE[name]
    done, calling, _ = ENDED[name]
    async with called(tmp_path) as (served, line):
        for kind, message in KINDS.items():
            served.engine.answers.append(message)
            line = replace(line, key=await served.key())
            read = await ask(line, [], stream, 1000)
            assert (read.text, read.reasoning) == (message.content, message.reasoning), kind
            assert read.calls == [(c.name, orjson.loads(c.arguments or "{}")) for c in message.tool_calls], kind
            assert read.ended == (calling if message.tool_calls else done), kind
            await ask(line, [*read.back, more], stream, 1000)
            counts = await served.counts(line.key)
            assert (counts["turns"], counts["roots"], counts["rows"], counts["findings"]) == (2, 1, 1, {}), kind


@each_stream
@each_sdk
async def test_an_sdk_sees_where_a_reply_was_cut(tmp_path: Path, name: str, stream: bool) -> None:
    ask, more = MORE[name]
    async with called(tmp_path) as (served, line):
        for message, shown in ((Message("assistant", "Text."), "Tex"), (Message("assistant", "", "Text."), "Te")):
            served.engine.answers.append(message)
            line = replace(line, key=await served.key())
            read = await ask(line, [], stream, 3)
            assert (read.text + read.reasoning, read.ended) == (shown, ENDED[name][2])
            await ask(line, [*read.back, more], stream, 1000)
            assert (await served.counts(line.key))["roots"] == 1


RAISED: dict[str, tuple[type[Exception], type[Exception], type[Exception]]] = {
    "chat": (openai.AuthenticationError, openai.RateLimitError, openai.InternalServerError),
    "responses": (openai.AuthenticationError, openai.RateLimitError, openai.InternalServerError),
    "messages": (anthropic.AuthenticationError, anthropic.RateLimitError, anthropic.InternalServerError),
    "gemini": (genai.errors.ClientError, genai.errors.ClientError, genai.errors.ServerError),
}


@each_stream
@each_sdk
async def test_an_sdk_raises_what_was_meant(tmp_path: Path, name: str, stream: bool) -> None:
    ask = MORE[name][0]
    no_key, too_many, down = RAISED[name]
    engine = FakeEngine([EngineError("rate_limited", "Later.", retry_after=7), EngineError("engine_down", "Gone.")])
    async with called(tmp_path, engine) as (served, line):
        with pytest.raises(no_key, match=r"401|key"):
            await ask(line, [], stream, 1000)
        line = replace(line, key=await served.key())
        with pytest.raises(too_many, match=r"Later\.") as caught:
            await ask(line, [], stream, 1000)
        if name != "gemini":
            assert caught.value.response.headers["retry-after"] == "7"  # type: ignore[attr-defined]
        with pytest.raises(down, match=r"Gone\."):
            await ask(line, [], stream, 1000)
        assert (await served.counts(line.key))["turns"] == 0
