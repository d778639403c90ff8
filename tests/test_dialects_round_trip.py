"""What a dialect shows of a reply comes back from it as that reply: a harness that keeps all of it loses nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import given

from harbor_env.gateway.dialects import DIALECTS
from harbor_env.gateway.meaning import same_arguments
from harbor_env.gateway.types import Call, Message, Reply, Tool
from tests.conversations import replies
from tests.strict_clients import READERS

EDIT = Tool("edit", kind="custom")
OFFERS: dict[str, tuple[tuple[Tool, ...], list[Any]]] = {
    "chat": ((EDIT,), [{"type": "custom", "custom": {"name": "edit"}}]),
    "responses": ((EDIT,), [{"type": "custom", "name": "edit"}]),
    "messages": ((), []),
    "gemini": ((), []),
}


def chat(body: Any, reply: Reply) -> dict[str, Any]:
    results = [{"role": "tool", "tool_call_id": call.id, "content": "ok"} for call in reply.message.tool_calls]
    return {"messages": [{"role": "user", "content": "go"}, body["choices"][0]["message"], *results]}


def responses(body: Any, reply: Reply) -> dict[str, Any]:
    results = [
        {"type": "function_call_output", "call_id": call.id, "output": "ok"} for call in reply.message.tool_calls
    ]
    return {"input": [{"role": "user", "content": "go"}, *body["output"], *results]}


def messages(body: Any, reply: Reply) -> dict[str, Any]:
    results = [{"type": "tool_result", "tool_use_id": call.id, "content": "ok"} for call in reply.message.tool_calls]
    said = {"role": "assistant", "content": body["content"]}
    return {"messages": [{"role": "user", "content": "go"}, said, {"role": "user", "content": results}]}


def gemini(body: Any, reply: Reply) -> dict[str, Any]:
    results = [
        {"functionResponse": {"id": call.id, "name": call.name, "response": {"output": "ok"}}}
        for call in reply.message.tool_calls
    ]
    user = {"role": "user", "parts": [{"text": "go"}]}
    return {"contents": [user, body["candidates"][0]["content"], {"role": "user", "parts": results}]}


BACK: dict[str, Callable[[Any, Reply], dict[str, Any]]] = {
    "chat": chat,
    "responses": responses,
    "messages": messages,
    "gemini": gemini,
}


def check(said: Message, reply: Message) -> None:
    assert (said.role, said.content, said.reasoning) == ("assistant", reply.content, reply.reasoning)
    assert [(call.id, call.name) for call in said.tool_calls] == [(call.id, call.name) for call in reply.tool_calls]
    for kept, made in zip(said.tool_calls, reply.tool_calls, strict=True):
        assert same_arguments(kept.arguments, made.arguments)


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("name", sorted(DIALECTS))
@given(reply=replies())
def test_a_reply_sent_back_is_the_reply(name: str, streamed: bool, reply: Reply) -> None:
    offered, spelled = OFFERS[name]
    call = Call((Message("user", "go"),), tools=offered, model="policy")
    dialect = DIALECTS[name]
    if streamed:
        body = READERS[name](b"".join(dialect.stream(reply, call, 3)))
    else:
        body = orjson.loads(dialect.encode(reply, call))
    back = BACK[name](body, reply) | {"tools": spelled}
    decoded = dialect.decode(orjson.loads(orjson.dumps(back)), {"model": "m"})
    check(decoded.messages[1], reply.message)
    assert [message.tool_call_id for message in decoded.messages if message.role == "tool"] == [
        made.id for made in reply.message.tool_calls
    ]
    assert decoded.findings == ()
