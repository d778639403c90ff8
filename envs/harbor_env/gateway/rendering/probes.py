"""The messages templates are tried with; each text occurs nowhere else, so that a print can be searched for it."""

from __future__ import annotations

import json

from harbor_env.gateway.types import Message, Tool, ToolCall

S1, S2, U1, U2 = "probe-system-one", "probe-system-two", "probe-user-one", "probe-user-two"
A1, A2, R1, R2 = "probe-reply-one", "probe-value-two", "probe-result-one", "probe-result-two"
TOOL = Tool("probe_tool", "probe-description", {"type": "object", "properties": {"a": {"type": "string"}}})


def call(value: str, identity: str) -> ToolCall:
    return ToolCall(identity, TOOL.name, json.dumps({"a": value}))


def result(text: str, identity: str) -> Message:
    return Message("tool", text, tool_call_id=identity, name=TOOL.name)
