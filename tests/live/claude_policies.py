"""Scripted policies for Claude Code: work handed to a subagent, waited for or not."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from harbor_env.gateway.types import Message, Tool, ToolCall
from tests.live.policies import follow_the_trail

SIDE_JOB = "This is a side job."


def delegate_in_front(messages: Sequence[Message], tools: Sequence[Tool]) -> Message:
    """Hand the trail to a subagent and wait for it, then write what it reports."""
    return _delegate(messages, tools, background=False)


def delegate_in_background(messages: Sequence[Message], tools: Sequence[Tool]) -> Message:
    """Hand the trail to a subagent and go on with something else until it reports."""
    return _delegate(messages, tools, background=True)


def _delegate(messages: Sequence[Message], tools: Sequence[Tool], *, background: bool) -> Message:
    told = _text(messages, "user", "system")
    if SIDE_JOB in told:
        return _side_job(messages, tools)
    seen = _text(messages, "user", "tool", "system")
    reported = re.search(r"The trail adds up to (\d+)", seen)
    if "wrote the sum" in seen:
        return Message("assistant", "The sum is in /app/answer.txt.", reasoning="Everything is written.")
    if reported:
        return _call(
            "Bash", f"Writing {reported[1]}.", command=f"echo {reported[1]} > /app/answer.txt; echo wrote the sum"
        )
    calls = sum(len(message.tool_calls) for message in messages)
    if calls:
        return _call("Bash", "Still waiting.", command=f"sleep 1; echo waited {calls} times")
    start = re.search(r"Read \S+ in \S+?\. It has a number.*", told)
    prompt = f"{SIDE_JOB} {start[0] if start else ''} Tell me the sum."
    words = {"description": "Follow the trail", "prompt": prompt, "run_in_background": background}
    return _call("Agent", "A subagent can do this.", **words)


def _side_job(messages: Sequence[Message], tools: Sequence[Tool]) -> Message:
    seen = _text(messages, "tool")
    if "This is the last note." in seen:
        total = sum(int(number) for number in re.findall(r"Add (-?\d+)\.", seen))
        return Message("assistant", f"The trail adds up to {total}.", reasoning="That was the last note.")
    return follow_the_trail(messages, tools)


def _call(name: str, text: str, **arguments: object) -> Message:
    thought = f"The next thing is {name}."
    return Message("assistant", text, reasoning=thought, tool_calls=(ToolCall("", name, json.dumps(arguments)),))


def _text(messages: Sequence[Message], *roles: str) -> str:
    return "\n".join(message.content for message in messages if message.role in roles)
