"""Chat engines: what they are sent, what is read back, and that nothing of theirs looks trainable."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
import pytest_asyncio

from harbor_env.errors import EngineError
from harbor_env.gateway.engines import Engine, open_engine
from harbor_env.gateway.engines.chat_wire import chat_body, read_chat
from harbor_env.gateway.types import Message, Tool, ToolCall
from tests.engine_requests import engine_request
from tests.fake_vllm import FakeVllm, serving

BASH = Tool("bash", "Run it.", {"type": "object", "properties": {"command": {"type": "string"}}})
PATCH = Tool("apply_patch", "Patch files.", kind="custom")
HISTORY = (
    Message("system", "Be brief."),
    Message("user", "Fix it."),
    Message(
        "assistant",
        "Looking.",
        reasoning="hmm",
        tool_calls=(ToolCall("c1", "bash", '{"command": "ls"}'), ToolCall("c2", "apply_patch", "*** Begin")),
    ),
    Message("tool", "a.py", tool_call_id="c1"),
    Message("tool", "no such file", tool_call_id="c2", is_error=True),
)


@pytest_asyncio.fixture
async def fake() -> AsyncIterator[FakeVllm]:
    async with serving() as fake:
        yield fake


@pytest_asyncio.fixture
async def engine(fake: FakeVllm) -> AsyncIterator[Engine]:
    engine = open_engine("hosted", url=fake.url, model="m", api_key="k")
    yield engine
    await engine.close()


def refusing(parameter: str) -> bytes:
    message = f"Unsupported parameter: '{parameter}' is not supported with this model."
    return orjson.dumps({"error": {"message": message, "param": parameter}})


def test_the_whole_conversation_is_sent_in_order() -> None:
    body = chat_body(engine_request(messages=HISTORY, tools=(BASH, PATCH)), "m", logprobs=False)
    assert [message["role"] for message in body["messages"]] == ["system", "user", "assistant", "tool", "tool"]
    assistant = body["messages"][2]
    assert (assistant["content"], assistant["reasoning_content"]) == ("Looking.", "hmm")
    assert [call["function"] for call in assistant["tool_calls"]] == [
        {"name": "bash", "arguments": '{"command": "ls"}'},
        {"name": "apply_patch", "arguments": '{"input": "*** Begin"}'},
    ]
    assert body["messages"][3] == {"role": "tool", "content": "a.py", "tool_call_id": "c1"}
    assert body["messages"][4]["content"] == "Error: no such file"
    assert [tool["function"]["name"] for tool in body["tools"]] == ["bash", "apply_patch"]
    assert body["tools"][1]["function"]["parameters"]["required"] == ["input"]
    assert (body["model"], body["max_tokens"], body["tool_choice"]) == ("m", 16, "auto")


def test_calls_and_reasoning_are_read_back_and_free_text_is_unwrapped() -> None:
    calls = [
        {"id": "x", "type": "function", "function": {"name": "bash", "arguments": '{"command":"ls"}'}},
        {"id": "y", "type": "function", "function": {"name": "apply_patch", "arguments": '{"input":"*** End"}'}},
        {"id": "z", "type": "function", "function": {"name": "bash", "arguments": {"command": "pwd"}}},
    ]
    message = {"role": "assistant", "content": None, "reasoning": "hm", "tool_calls": calls}
    answer = {"choices": [{"message": message, "finish_reason": "tool_calls"}], "usage": {"prompt_tokens": 9}}
    generation = read_chat(answer, (BASH, PATCH))
    assert generation.message == Message(
        "assistant",
        reasoning="hm",
        tool_calls=(
            ToolCall("", "bash", '{"command":"ls"}'),
            ToolCall("", "apply_patch", "*** End"),
            ToolCall("", "bash", '{"command": "pwd"}'),
        ),
    )
    assert (generation.finish, generation.trainable, dict(generation.extras)) == ("stop", False, {"prompt_tokens": 9})


@pytest.mark.parametrize("answer", [None, [], {}, {"choices": []}, {"choices": [{}]}, {"choices": [{"message": 3}]}])
def test_an_answer_of_another_shape_is_refused(answer: Any) -> None:
    with pytest.raises(EngineError, match="not a chat completion"):
        read_chat(answer, ())


async def test_a_chat_engine_is_graded_text_and_never_trainable(engine: Engine) -> None:
    assert (await engine.probe()).level == "text"
    generation = await engine.generate(engine_request(messages=HISTORY))
    assert (list(generation.ids), list(generation.logprobs), generation.trainable) == ([], [], False)
    assert (generation.text, generation.message) == ("Hello.", Message("assistant", "Hello."))


async def test_a_chat_engine_with_logprobs_is_graded_logprobs(engine: Engine, fake: FakeVllm) -> None:
    def with_logprobs(answer: Any) -> Any:
        answer["choices"][0]["logprobs"] = {"content": [{"token": "Hello", "logprob": -0.1}]}
        return answer

    fake.mangle = with_logprobs
    assert (await engine.probe()).level == "logprobs"
    assert not (await engine.generate(engine_request())).trainable


async def test_parameters_the_endpoint_refuses_are_left_out_and_said(engine: Engine, fake: FakeVllm) -> None:
    newer_name = b'{"error":{"message":"Use max_completion_tokens; max_tokens is not supported."}}'
    fake.refuse = [(400, {}, newer_name), (400, {}, refusing("temperature")), (400, {}, refusing("logprobs"))]
    await engine.probe()
    generation = await engine.generate(engine_request())
    _, body = fake.calls[-1]
    assert body["max_completion_tokens"] == 16
    assert {"max_tokens", "temperature", "logprobs"} & body.keys() == set()
    assert [(finding.code, finding.detail) for finding in generation.findings] == [
        ("parameter_refused", "the engine takes no temperature")
    ]


async def test_another_refusal_is_passed_on(engine: Engine, fake: FakeVllm) -> None:
    fake.refuse = [(400, {}, b'{"error":{"message":"content policy"}}')]
    with pytest.raises(EngineError, match="content policy"):
        await engine.generate(engine_request())


@pytest.mark.parametrize("path", ["", "/", "/v1", "/v1/"])
async def test_the_url_is_taken_with_and_without_its_version(fake: FakeVllm, path: str) -> None:
    engine = open_engine("hosted", url=fake.url + path, model="m")
    await engine.probe()
    await engine.close()
    assert fake.calls[-1][0] == "/v1/chat/completions"


async def test_a_chat_engine_without_a_model_name_asks_for_it(fake: FakeVllm) -> None:
    engine = open_engine("hosted", url=fake.url)
    with pytest.raises(EngineError, match="--model"):
        await engine.probe()
    await engine.close()
