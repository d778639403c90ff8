"""The trail handed to subagents: one that is waited for, one beside which the work goes on, or two side by side.

A policy for every harness that has subagents, in its own words. A side job is known by its first user message.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from harbor_env.gateway.types import Message, Tool, ToolCall
from tests.live.policies import follow_the_trail, shell_call

SIDE_JOB = "This is a side job"
REPORT = re.compile(r"[Tt]he trail adds up to (-?\d+)")
PATIENCE = 4
"""Calls beside a side job of Qwen Code, which tells of its end only when the main conversation has nothing to do."""


def delegate(messages: Sequence[Message], tools: Sequence[Tool]) -> Message:
    """Hand the trail to a subagent and wait for it, then write what it reports."""
    return _job(messages, tools, jobs=1, background=False)


def delegate_in_background(messages: Sequence[Message], tools: Sequence[Tool]) -> Message:
    """Hand the trail to a subagent and go on with something else until it reports."""
    return _job(messages, tools, jobs=1, background=True)


def delegate_twice(messages: Sequence[Message], tools: Sequence[Tool]) -> Message:
    """Hand the trail to two subagents in one turn."""
    return _job(messages, tools, jobs=2, background=False)


def _job(messages: Sequence[Message], tools: Sequence[Tool], *, jobs: int, background: bool) -> Message:
    told = _text(messages, "user", "system")
    if not tools:
        return Message("assistant", "A sum over notes")  # OpenCode wants a title
    if SIDE_JOB in told:
        return _follow(messages, tools)
    seen = _text(messages, "user", "tool", "system")
    reported = REPORT.search(seen)
    if "wrote the sum" in seen:
        return Message("assistant", "The sum is in /app/answer.txt.", reasoning="Everything is written.")
    if reported:
        return _shell(f"echo {reported[1]} > /app/answer.txt; echo wrote the sum", tools, f"Writing {reported[1]}.")
    calls = sum(len(message.tool_calls) for message in messages)
    start = re.search(r"Read \S+ in \S+?\. It has a number.*", told)
    if not calls and start:
        handed = (_handed(tools, f"{SIDE_JOB}, number {n}. {start[0]}", background) for n in range(jobs))
        return Message("assistant", "A subagent can do this.", reasoning="Why me?", tool_calls=tuple(handed))
    agent = re.search(r'"agent_id": ?"([^"]+)"', seen)
    if agent and not background:
        wait = ToolCall("", "wait_agent", json.dumps({"targets": [agent[1]], "timeout_ms": 60_000}))
        return Message("assistant", "Waiting.", reasoning="It takes its time.", tool_calls=(wait,))
    if calls > PATIENCE and any(tool.name == "agent" for tool in tools):
        return Message("assistant", "It will report.", reasoning="Nothing else to do.")
    return _shell(f"sleep 1; echo waited {calls} times", tools, "Still waiting.")


def _handed(tools: Sequence[Tool], prompt: str, background: bool) -> ToolCall:
    """A call of whichever tool starts a subagent here."""
    words: dict[str, object] = {"description": "Follow the trail", "prompt": f"{prompt} Tell me the sum."}
    ways: dict[str, dict[str, object]] = {
        "Agent": {**words, "run_in_background": background},
        "agent": {**words, "subagent_type": "general-purpose", "run_in_background": background},
        "task": {**words, "subagent_type": "general"},
        "invoke_agent": {"agent_name": "generalist", "prompt": words["prompt"]},
        "spawn_agent": {"message": words["prompt"]},
    }
    name = next(tool.name for tool in tools if tool.name in ways)
    return ToolCall("", name, json.dumps(ways[name]))


def _follow(messages: Sequence[Message], tools: Sequence[Tool]) -> Message:
    seen = _text(messages, "tool")
    if "This is the last note." not in seen:
        return follow_the_trail(messages, tools)
    total = sum(int(number) for number in re.findall(r"Add (-?\d+)\.", seen))
    report = f"The trail adds up to {total}."
    if any(tool.name == "complete_task" for tool in tools):
        done = ToolCall("", "complete_task", json.dumps({"result": {"response": report}}))
        return Message("assistant", "That is it.", reasoning="That was the last note.", tool_calls=(done,))
    return Message("assistant", report, reasoning="That was the last note.")


def _shell(command: str, tools: Sequence[Tool], text: str) -> Message:
    call = shell_call(command, tools)
    if call is None:
        return Message("assistant", "There is no shell here.")
    return Message("assistant", text, reasoning="One step more.", tool_calls=(call,))


def _text(messages: Sequence[Message], *roles: str) -> str:
    return "\n".join(message.content for message in messages if message.role in roles)
