"""The trail for harnesses that offer no tools: Terminus 2 reads JSON out of the reply, aider reads files and edits."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from harbor_env.gateway.types import Message, Tool
from tests.live.policies import follow_the_trail


def follow(messages: Sequence[Message], tools: Sequence[Tool]) -> Message:
    """`follow_the_trail` in whatever way this harness acts."""
    told = "\n".join(message.content for message in messages if message.role in ("user", "system"))
    if tools:
        return follow_the_trail(messages, tools)
    if '"keystrokes"' in told:
        return type_the_trail(told)
    return follow_the_trail(messages, tools) if "file listing" not in told else add_the_trail(told)


def type_the_trail(told: str) -> Message:
    """Terminus 2: commands typed into a terminal, and twice the word that it is done."""
    if "wrote the sum" in told:
        return _typed("The sum is written.", "", done=True)
    start = re.search(r"Read (\S+) in (\S+?)\. It has a number", told)
    assert start is not None
    notes = dict(re.findall(r"cat \S+/([\w-]+\.txt)\s+Add (-?\d+)\.", told))
    if "This is the last note." in told:
        total = sum(map(int, notes.values()))
        return _typed("Every note is read.", f"echo {total} > /app/answer.txt && echo 'wrote the sum'\n")
    following = re.findall(r"Then read ([\w-]+\.txt)\.", told)
    return _typed(f"{len(notes)} notes so far.", f"cat {start[2]}/{following[-1] if following else start[1]}\n")


def _typed(thought: str, keys: str, *, done: bool = False) -> Message:
    commands = [{"keystrokes": keys, "duration": 0.3}] if keys else []
    said = {"analysis": thought, "plan": "Go on — 続く.", "commands": commands, "task_complete": done}
    return Message("assistant", json.dumps(said, ensure_ascii=False, indent=1), reasoning=thought)


def add_the_trail(told: str) -> Message:
    """aider: files that are named are added to the chat and everything is asked again; then the answer is a file."""
    start = re.search(r"Read (\S+) in (\S+?)\. It has a number", told)
    assert start is not None
    folder = start[2].rpartition("/")[2]
    notes = dict(re.findall(r"([\w-]+\.txt)\n`{3,}\w*\n(Add -?\d+\.\n.*)", told))
    numbers, note = [], start[1]
    while note in notes:
        number, following = re.fullmatch(r"Add (-?\d+)\.\n(?:Then read (\S+)\.|.*)", notes[note]).groups()  # type: ignore[union-attr]
        numbers.append(int(number))
        note = following or ""
    if not note:
        thought = f"{len(numbers)} notes, all read."
        return Message("assistant", f"Written.\n\nanswer.txt\n```\n{sum(numbers)}\n```\n", reasoning=thought)
    listed = sorted(set(re.findall(rf"^{folder}/[\w-]+\.txt$", told, re.MULTILINE)))
    return Message("assistant", "I need " + ", ".join(f"`{name}`" for name in listed), reasoning=f"{note} is unread.")
