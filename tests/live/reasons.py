"""What a harness makes of a case that is its own doing: histories it rewrites, runs it gives up, replies it deletes.

Every entry was read off the requests the harness sent. A run that differs from the ideal, one row with every sampled
token trained, without an entry here is a bug of ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Reason:
    """What a reader accepts as the cause of `rows` rows, of `untrained` replies, of `findings` beside the usual."""

    note: str
    rows: int = 1
    untrained: int = 0
    findings: tuple[str, ...] = ("branch",)


IDEAL = Reason("", findings=())

USUAL = ("sampling_ignored", "thinking_ignored", "effort_ignored")
"""Findings any harness may have in any case: what it asks of sampling and thinking is the session's to decide."""

BESIDE: Mapping[str, tuple[str, ...]] = {"aider": ("root_other_history",), "opencode": ("root_other_tools",)}
"""Findings of every run of a harness: aider has a commit message written, OpenCode a title, in a conversation apart."""

ANY = "any case"
DELETED = Reason("a reply without a valid call is deleted from its history, an error message takes its place", rows=2)
FILLED = Reason("litellm puts a sentence in the place of an empty reply", rows=2)
AGAIN = Reason("the reply is thrown away and the same prompt asked again", untrained=1)

REASONS: Mapping[tuple[str, str], Reason] = {
    ("claude-code", "empty reply"): Reason("an empty reply is left out, and a reminder follows the tool's result", 2),
    ("gemini-cli", "the same call six times"): Reason("the reply it interrupts is replaced by a sentence about it", 2),
    ("mini-swe-agent", "malformed arguments"): DELETED,
    ("mini-swe-agent", "unknown tool"): DELETED,
    ("mini-swe-agent", "empty reply"): DELETED,
    ("mini-swe-agent", "length cut"): DELETED,
    ("opencode@gemini", "unknown tool"): Reason("the call, which has no id there, is put down as one of `invalid`", 2),
    ("qwen-coder", "malformed arguments"): AGAIN,
    ("qwen-coder", "empty reply"): AGAIN,
    ("qwen-coder", "length cut"): AGAIN,
    ("openhands-sdk@messages", "empty reply"): FILLED,
    ("openhands-sdk@responses", "empty reply"): Reason("an empty reply is left out of the history", 2),
    ("terminus-2@messages", "empty reply"): FILLED,
    ("aider", ANY): Reason("files are put in front of what was said before they were added", 2, 0, ()),
}
"""By harness, with or without its dialect, and case."""


def reason_for(harness: str, case: str) -> Reason:
    """The reason written for this dialect of a harness, for all of them, or for all cases; else none."""
    name = harness.partition("@")[0]
    written = (REASONS.get(cell) for cell in ((harness, case), (name, case), (harness, ANY), (name, ANY)))
    return next((reason for reason in written if reason), IDEAL)
