"""When two messages mean the same, whatever a harness did to their wire form.

Invariant: these relations never look at token ids, at reasoning, or at anything a harness drops without changing what
the conversation says.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from harbor_env.gateway.types import Message, ToolCall


def same_json(left: Any, right: Any) -> bool:
    """Equality of parsed JSON: `20000.0` is `20000`, `true` is not `1`, key order does not count."""
    pairs = [(left, right)]  # a stack of our own: parsed JSON may nest deeper than Python recurses
    while pairs:
        one, other = pairs.pop()
        if isinstance(one, bool) or isinstance(other, bool):
            same = one is other
        elif isinstance(one, dict) and isinstance(other, dict):
            same = one.keys() == other.keys()
            pairs.extend((value, other[key]) for key, value in one.items() if same)
        elif isinstance(one, list) and isinstance(other, list):
            same = len(one) == len(other)
            pairs.extend(zip(one, other, strict=False))
        else:
            same = bool(one == other)
        if not same:
            return False
    return True


def same_arguments(left: str, right: str) -> bool:
    """Two argument texts mean the same: equal, or equal as JSON; no text at all is an empty object."""
    if left == right:
        return True
    try:
        return same_json(orjson.loads(left.strip() or "{}"), orjson.loads(right.strip() or "{}"))
    except orjson.JSONDecodeError:
        return left.strip() == right.strip()


def same_calls(left: Sequence[ToolCall], right: Sequence[ToolCall]) -> bool:
    """The same functions with the same arguments in the same order; ids do not count."""
    return len(left) == len(right) and all(
        a.name == b.name and same_arguments(a.arguments, b.arguments) for a, b in zip(left, right, strict=True)
    )


def same_assistant(left: Message, right: Message) -> bool:
    """Two assistant messages by what they say: text without outer whitespace, and calls."""
    return same_calls(left.tool_calls, right.tool_calls) and left.content.strip() == right.content.strip()


def is_broken_off(message: Message, reply: Message) -> bool:
    """An assistant message is the beginning of `reply` and not all of it: what a harness got before the line broke."""
    begun = reply.content.strip().startswith(message.content.strip())
    calls = reply.tool_calls[: len(message.tool_calls)]
    return begun and same_calls(message.tool_calls, calls) and not same_assistant(message, reply)


def same_message(left: Message, right: Message) -> bool:
    """Two messages of a delta: user, tool and system text exactly, assistant messages by what they say."""
    if left is right:
        return True
    if left.role != right.role:
        return False
    if left.role == "assistant":
        return same_assistant(left, right)
    if left.content != right.content or left.is_error != right.is_error:
        return False
    return not (left.tool_call_id and right.tool_call_id and left.tool_call_id != right.tool_call_id)


def same_delta(delta: Sequence[Message], messages: Sequence[Message], start: int) -> bool:
    """`messages[start:]` begins with the messages of `delta`."""
    if len(messages) - start < len(delta):
        return False
    return all(same_message(message, messages[start + i]) for i, message in enumerate(delta))
