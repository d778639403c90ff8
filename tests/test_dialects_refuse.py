"""Whatever JSON object arrives, a dialect decodes it to a well-typed call or refuses it in one sentence."""

from __future__ import annotations

from copy import deepcopy
from random import Random
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harbor_env.errors import STATUS, GatewayError
from harbor_env.gateway.dialects import DIALECTS
from harbor_env.gateway.types import Call, Message, Tool, ToolCall
from tests.conversations import SPELLINGS, VALUES, conversations

each_dialect = pytest.mark.parametrize("name", sorted(DIALECTS))
TYPES = (
    "text",
    "image",
    "tool_result",
    "tool_use",
    "function",
    "custom",
    "document",
    "message",
    "reasoning",
    "namespace",
)
KEYS = (
    "messages",
    "input",
    "contents",
    "system",
    "tools",
    "role",
    "content",
    "parts",
    "type",
    "text",
    "function",
    "name",
)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=3)
    | st.sampled_from((*TYPES, "user", "assistant", "model", "tool", "system")),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=3), inner, max_size=4)
    ),
    max_leaves=12,
)


def outcome(name: str, body: dict[str, Any]) -> Call | GatewayError:
    try:
        return DIALECTS[name].decode(orjson.loads(orjson.dumps(body)), {"model": "m"})
    except GatewayError as error:
        return error


def check(result: Call | GatewayError) -> None:
    if isinstance(result, GatewayError):
        assert result.kind == "bad_request"
        assert result.message.endswith(".")
        assert "\n" not in result.message
        return
    assert all(well_typed(message) for message in result.messages)
    assert result.messages
    assert all(isinstance(tool, Tool) and tool.name and isinstance(tool.parameters, dict) for tool in result.tools)
    assert result.max_tokens is None or result.max_tokens > 0


def well_typed(message: Message) -> bool:
    texts = [message.role, message.content, message.reasoning, message.tool_call_id, message.name]
    for call in message.tool_calls:
        assert isinstance(call, ToolCall)
        texts += [call.id, call.name, call.arguments]
    return all(type(text) is str for text in texts) and type(message.is_error) is bool


@each_dialect
@given(body=st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=5), JSON, max_size=6))
def test_any_json_object_is_a_call_or_a_refusal(name: str, body: dict[str, Any]) -> None:
    check(outcome(name, body))


@each_dialect
@settings(max_examples=80)
@given(call=conversations(), vary=st.randoms(use_true_random=False), data=st.data())
def test_a_valid_body_with_one_value_changed_is_a_call_or_a_refusal(
    name: str, call: Call, vary: Random, data: st.DataObject
) -> None:
    body = deepcopy(SPELLINGS[name][0](call, vary))
    places = list(_places(body))
    holder, key = data.draw(st.sampled_from(places))
    if data.draw(st.booleans()):
        holder[key] = data.draw(JSON | VALUES)
    else:
        del holder[key]
    check(outcome(name, body))


def _places(value: Any) -> list[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = []
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inner:
        found.append((value, key))
        found += _places(part)
    return found


@each_dialect
def test_a_field_that_is_not_read_is_a_finding(name: str) -> None:
    body = SPELLINGS[name][0](Call((Message("user", "go"),)), Random(1)) | {"watermark": [1, 2]}
    call = outcome(name, body)
    assert isinstance(call, Call)
    assert [(f.code, f.detail) for f in call.findings] == [("field_ignored", "watermark")]


@each_dialect
@pytest.mark.parametrize("kind", sorted(STATUS))
def test_every_kind_of_error_has_a_body_and_an_event(name: str, kind: Any) -> None:
    error = GatewayError(kind, "What went wrong.")
    status, body = DIALECTS[name].error(error)
    assert 400 <= status < 600
    assert "went wrong" in str(orjson.loads(body))
    assert b"went wrong" in DIALECTS[name].stream_error(error)
    assert DIALECTS[name].stream_error(error).endswith(b"\n\n")
