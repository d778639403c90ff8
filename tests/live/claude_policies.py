"""Scripted policies for Claude Code: work handed to a subagent, and a history long enough to be compacted."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from harbor_env.gateway.types import Message, Tool, ToolCall
from tests.live.policies import follow_the_trail

SIDE_JOB = "This is a side job."
COMPACT = "Respond with TEXT ONLY"
NOISE = "seq -f 'line %g of a long file that nobody needs to read to the end' 1 220"


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


def follow_a_long_trail(messages: Sequence[Message], tools: Sequence[Tool]) -> Message:
    """Follow the trail with far too much output on every turn, and sum up what is known when asked to."""
    told = _text(messages, "user", "tool", "system")
    notes = dict(re.findall(r"NOTE (\S+?): (Add -?\d+\..*?(?:last note|read [\w-]+\.txt)\.)", told.replace("\n", " ")))
    start = re.search(r"Read (\S+) in (\S+?)\. It has a number", told)
    if start is None:
        return Message("assistant", "I see no trail to follow.")
    if COMPACT in messages[-1].content:
        known = " ".join(f"NOTE {name}: {text}" for name, text in notes.items())
        return Message(
            "assistant", f"<summary>The task: {start[0]}. Known so far: {known}</summary>", reasoning="Summing up."
        )
    if "wrote the sum" in told:
        return Message("assistant", "The sum is in /app/answer.txt.", reasoning="Everything is written.")
    following = [re.search(r"read ([\w-]+\.txt)", text) for text in notes.values()]
    missing = [found[1] for found in following if found and found[1] not in notes]
    if notes and not missing:
        total = sum(int(text.split()[1].rstrip(".")) for text in notes.values())
        return _call("Bash", "That was the last.", command=f"echo {total} > /app/answer.txt; echo wrote the sum")
    note = missing[0] if missing else start[1]
    return _call("Bash", f"Reading {note}.", command=f"echo NOTE {note}: $(cat {start[2]}/{note}); {NOISE}")


def _call(name: str, text: str, **arguments: object) -> Message:
    thought = f"The next thing is {name}."
    return Message("assistant", text, reasoning=thought, tool_calls=(ToolCall("", name, json.dumps(arguments)),))


def _text(messages: Sequence[Message], *roles: str) -> str:
    return "\n".join(message.content for message in messages if message.role in roles)
