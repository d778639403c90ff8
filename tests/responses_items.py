"""Items of the Responses API, and what they decode to."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from harbor_env.errors import GatewayError
from harbor_env.gateway.dialects.responses import RESPONSES
from harbor_env.gateway.types import Call, Message, Reply, ToolCall, Usage
from tests.strict_clients import read_responses

ASK = Call((Message("user", "go"),), stream=True, model="policy")
WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}}
CALLED = Message("assistant", "", tool_calls=(ToolCall("c1", "weather", '{"city":"Paris"}'),))


def reply(message: Message, finish: Any = "stop") -> Reply:
    return Reply("r1", message, finish, Usage(10, 5, 4), "policy", 123)


def decode(items: Any, **fields: Any) -> Call:
    return RESPONSES.decode({"model": "m", "input": items, **fields}, {})


def codes(call: Call) -> list[str]:
    return [finding.code for finding in call.findings]


def refusal(body: dict[str, Any]) -> str:
    with pytest.raises(GatewayError) as caught:
        RESPONSES.decode(body, {})
    assert caught.value.status == 400
    return caught.value.message


def items_of(answer: Reply, call: Call) -> list[Any]:
    body = orjson.loads(RESPONSES.encode(answer, call))
    assert read_responses(b"".join(RESPONSES.stream(answer, call, 2))) == body
    return list(body["output"])


def user(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def call_item(call_id: str, name: str = "f") -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": "{}"}


def output_item(call_id: str, output: Any) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": output}
