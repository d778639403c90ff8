"""The trail with far too much to read on the way: whoever follows it has to sum up, and goes on from the sum.

A policy for every harness that compacts. What it knows it reads off the conversation alone, from whichever form a
compaction left it in: a transcript, a summary of its own, or the end of the history.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from harbor_env.gateway.roles import conversation_role
from harbor_env.gateway.types import Call, Message, Tool
from harbor_env.harnesses import HARNESSES, RoleMarker, find
from tests.live.policies import FINISHED, shell_call

SUMS_UP: list[RoleMarker] = [
    marker for name in HARNESSES for marker in find(name).roles if marker.role == "compaction" and marker.text
]
NOTE = re.compile(r"NOTE ([\w-]+\.txt): (Add (-?\d+)\. (?:Then read ([\w-]+\.txt)|This is the last note)\.)")
START = re.compile(r"Read ([\w-]+\.txt) in (\S+?)\. It has a number")
NOISE = "seq -f 'line %g of a long file that nobody needs to read to the end' 1 {lines}"
LINES = 220
"""Of noise after every note: between three and four thousand tokens."""


def follow(messages: Sequence[Message], tools: Sequence[Tool]) -> Message:
    """Read note after note, sum up when asked to, write the sum, and say so."""
    told = "\n".join(message.content for message in messages)
    start = START.search(told)
    if start is None:
        return Message("assistant", "I see no trail to follow.")
    notes = {found[1]: found for found in NOTE.finditer(told)}
    if conversation_role(SUMS_UP, {}, Call(tuple(messages), tuple(tools)), None) == "compaction":
        known = " ".join(found[0] for found in notes.values())
        text = f"The task: {start[0]} in it. Known so far: {known or 'nothing'}"
        return Message(
            "assistant", f"<summary><state_snapshot>{text}</state_snapshot></summary>", reasoning="Summing up."
        )
    if re.search(r"the sum stands: -?\d", told):
        return _last(tools)
    following = [found[4] for found in notes.values() if found[4] and found[4] not in notes]
    if notes and not following:
        total = sum(int(found[3]) for found in notes.values())
        return act(f"echo {total} > /app/answer.txt; printf 'the sum stands: '; cat /app/answer.txt", tools)
    note = following[0] if following else start[1]
    said = f"printf 'NOTE {note}: '; tr '\\n' ' ' <{start[2]}/{note}; echo"
    return act(f"{said}; {NOISE.format(lines=LINES)}; {said}", tools, f"Reading {note} …")


def follow_with_an_interruption(messages: Sequence[Message], tools: Sequence[Tool]) -> Message:
    """The same, but stuck for a while after four notes: Gemini CLI sums up only what came before a user's message, and
    in a run of one prompt there is none but its own, that a loop was detected.
    """
    told = "\n".join(message.content for message in messages)
    usual = follow(messages, tools)
    stuck = len({found[1] for found in NOTE.finditer(told)}) == 4 and "Potential loop detected" not in told
    return act("echo again", tools) if stuck and usual.tool_calls else usual


def act(command: str, tools: Sequence[Tool], text: str = "Going on …") -> Message:
    """Run `command` in the shell that is offered, or, where no tool is, as Terminus 2 types."""
    thought = "One step more — 続く."
    if not tools:
        return typed([{"keystrokes": command + "\n", "duration": 0.5}], thought)
    call = shell_call(command, tools)
    if call is None:
        return Message("assistant", "There is no shell here.", reasoning=thought)
    return Message("assistant", text, reasoning=thought, tool_calls=(call,))


def typed(commands: Sequence[dict[str, object]], thought: str, *, done: bool = False) -> Message:
    said = {"analysis": thought, "plan": "Go on.", "commands": commands, "task_complete": done}
    return Message("assistant", json.dumps(said, ensure_ascii=False, indent=1), reasoning=thought)


def _last(tools: Sequence[Tool]) -> Message:
    if not tools:
        return typed([], "Everything is written.", done=True)
    if [tool.name for tool in tools] == ["bash"]:
        return act(FINISHED, tools)
    return Message("assistant", "The sum is in /app/answer.txt.", reasoning="Everything is written.")
