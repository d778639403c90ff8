"""Messages as the model knows them: its own call ids, and the function each tool result answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from harbor_env.gateway.tree import Tree
from harbor_env.gateway.types import Message, ToolCall


def natively_named(messages: Sequence[Message], history: Sequence[Message], tree: Tree) -> list[Message]:
    """`messages` for a renderer. `history` is the whole conversation: calls no turn made are looked up there."""
    return [_native(message, history, tree) for message in messages]


def _native(message: Message, history: Sequence[Message], tree: Tree) -> Message:
    if message.role == "tool" and message.tool_call_id:
        minted = tree.minted(message.tool_call_id)
        name = message.name or (minted.name if minted else _called(message.tool_call_id, history))
        return replace(message, name=name, tool_call_id=(minted and minted.native_id) or message.tool_call_id)
    if message.tool_calls:
        return replace(message, tool_calls=tuple(map(partial(_native_call, tree), message.tool_calls)))
    return message


def _native_call(tree: Tree, call: ToolCall) -> ToolCall:
    minted = tree.minted(call.id)
    return replace(call, id=minted.native_id) if minted and minted.native_id else call


def _called(call_id: str, history: Sequence[Message]) -> str:
    """The function a call of the history named, the latest of that id; "" where there is none."""
    calls = (call for message in reversed(history) for call in reversed(message.tool_calls))
    return next((call.name for call in calls if call.id == call_id), "")
