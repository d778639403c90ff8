"""Policies for scripted engines in tests."""

from __future__ import annotations

from collections.abc import Sequence

from harbor_env.errors import EngineError
from harbor_env.gateway.engines.scripted import Script
from harbor_env.gateway.types import Message, Tool, ToolCall

COMMAND = '{"command": "grep -rn \'def parse\' src/ | head -20", "timeout": 20000.0}'


def look_then_finish(messages: Sequence[Message], tools: Sequence[Tool]) -> Message:
    """One call, then an answer; text, reasoning and characters beyond ASCII among them."""
    if messages[-1].role == "tool":
        return Message("assistant", "Done: naïve café 数据 🙂.", reasoning="the tests pass now")
    call = ToolCall("", "bash", COMMAND)
    return Message("assistant", "Let me look.", reasoning="look at the parser first", tool_calls=(call,))


async def waits(messages: Sequence[Message], tools: Sequence[Tool]) -> Script:
    return Script("later", delay=0.001)


def is_cut(messages: Sequence[Message], tools: Sequence[Tool]) -> Script:
    return Script("a long answer that never ends", cut=3)


def calls_malformed(messages: Sequence[Message], tools: Sequence[Tool]) -> Script:
    return Script(calls=(ToolCall("", "bash", '{"command": "ls'),))


def is_empty(messages: Sequence[Message], tools: Sequence[Tool]) -> Script:
    return Script()


def babbles(messages: Sequence[Message], tools: Sequence[Tool]) -> Script:
    return Script(raw="<tool_call> is only text here")


def says_ids(messages: Sequence[Message], tools: Sequence[Tool]) -> Script:
    return Script(ids=(7, 8, 9))


def breaks(messages: Sequence[Message], tools: Sequence[Tool]) -> Message:
    raise LookupError("no such fact")


def forgets(messages: Sequence[Message], tools: Sequence[Tool]) -> None:
    return None


class FailsTwice:
    """A busy engine, then a broken one, then a good one."""

    def __init__(self) -> None:
        self.failures = [EngineError("rate_limited", "busy", retry_after=1.0), EngineError("engine_error", "broken")]

    def __call__(self, messages: Sequence[Message], tools: Sequence[Tool]) -> Script:
        return Script(error=self.failures.pop(0)) if self.failures else Script("well")
