"""The trail with one thing going wrong on the way, once: each class is a policy, new in every gateway process.

After it everything goes on as if nothing had happened, so that what follows shows what the harness made of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from harbor_env.errors import EngineError
from harbor_env.gateway.engines.scripted import Script
from harbor_env.gateway.types import Message, Tool
from tests.live.logged_engine import named
from tests.live.plain_text import follow
from tests.live.policies import shell_call

Reply = Message | Script


class Upset:
    """Follows the trail, but for the first reply after two notes were read."""

    def __init__(self) -> None:
        self._left = self.times

    times = 1

    def __call__(self, messages: Sequence[Message], tools: Sequence[Tool]) -> Reply:
        usual = follow(messages, tools)
        seen = "\n".join(message.content for message in messages if message.role in ("tool", "user"))
        if not self._left or len(re.findall(r"Add -?\d+\.", seen)) < 2 or (tools and not usual.tool_calls):
            return usual
        self._left -= 1
        return self.instead(usual, tools)

    def instead(self, usual: Message, tools: Sequence[Tool]) -> Reply:
        return usual


class Talkative(Upset):
    """Thinking, text and a call in every turn, and nothing wrong."""


class Plain(Talkative):
    """A call and nothing else in every turn, and nothing wrong."""

    def __call__(self, messages: Sequence[Message], tools: Sequence[Tool]) -> Reply:
        usual = follow(messages, tools)
        return replace(usual, reasoning="", content="" if usual.tool_calls else usual.content)


class Parallel(Upset):
    """Two calls in one turn."""

    def instead(self, usual: Message, tools: Sequence[Tool]) -> Reply:
        second = shell_call("echo 'beside it — 並行'", tools)
        return replace(usual, tool_calls=(*usual.tool_calls, second)) if second else usual


class Malformed(Upset):
    """Arguments whose JSON ends in the middle of a string."""

    def instead(self, usual: Message, tools: Sequence[Tool]) -> Reply:
        if not usual.tool_calls:
            return replace(usual, content=usual.content[: len(usual.content) // 2])
        call = usual.tool_calls[0]
        return replace(usual, tool_calls=(replace(call, arguments=call.arguments.rstrip('"} ')),))


class UnknownTool(Upset):
    """A call of a tool that was not offered."""

    def instead(self, usual: Message, tools: Sequence[Tool]) -> Reply:
        return replace(usual, tool_calls=tuple(replace(call, name="teleport") for call in usual.tool_calls))


class Empty(Upset):
    """Neither thinking nor text nor a call."""

    def instead(self, usual: Message, tools: Sequence[Tool]) -> Reply:
        return Script()


class Cut(Upset):
    """The reply ends at the length limit, in the middle of its text."""

    def instead(self, usual: Message, tools: Sequence[Tool]) -> Reply:
        return Script(text="Well, that is a long story, and so I would rather begin with", cut=14)


class Failing(Upset):
    """The engine answers 500, then 429, then well."""

    times = 2

    def instead(self, usual: Message, tools: Sequence[Tool]) -> Reply:
        if self._left:
            return Script(error=EngineError("engine_error", "the engine fell over"))
        return Script(error=EngineError("rate_limited", "one moment, please", retry_after=1.0))


class Stuck(Upset):
    """The same call six times in a row."""

    times = 6

    def instead(self, usual: Message, tools: Sequence[Tool]) -> Reply:
        again = shell_call("echo again", tools)
        return Message("assistant", "Again.", tool_calls=(again,)) if again else usual


CASES: Mapping[str, type[Upset]] = {
    "plain": Plain,
    "thinking, text and a call": Talkative,
    "two parallel calls": Parallel,
    "malformed arguments": Malformed,
    "unknown tool": UnknownTool,
    "empty reply": Empty,
    "length cut": Cut,
    "engine 500, then 429": Failing,
    "the same call six times": Stuck,
}


class ByCase:
    """For each rollout the upset of the case that its task names."""

    def __init__(self) -> None:
        self._upsets: dict[str, Upset] = {}

    def __call__(self, messages: Sequence[Message], tools: Sequence[Tool]) -> Reply:
        name, case = named(messages)
        if name not in self._upsets:
            self._upsets[name] = CASES.get(case, Talkative)()
        return self._upsets[name](messages, tools)
