"""A scripted policy for the tiny harness: one command, then an answer."""

import asyncio
import itertools
from collections.abc import Sequence

from harbor_env.gateway.types import Message, Tool, ToolCall


def write_42(messages: Sequence[Message], tools: Sequence[Tool]) -> Message:
    if messages[-1].role == "tool":
        return Message("assistant", "Done.")
    return Message("assistant", "", tool_calls=(ToolCall("", "bash", '{"command": "echo 42 > /app/answer.txt"}'),))


async def never(messages: Sequence[Message], tools: Sequence[Tool]) -> Message:
    """An answer that does not come."""
    await asyncio.Event().wait()
    return Message("assistant", "")


_calls = itertools.count()


async def one_rollout(messages: Sequence[Message], tools: Sequence[Tool]) -> Message:
    """Solves the first task it meets, and never answers the second."""
    return write_42(messages, tools) if next(_calls) < 2 else await never(messages, tools)
