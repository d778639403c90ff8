"""What a harness makes of a case that is its own doing: histories it rewrites, runs it gives up, replies it deletes.

Every entry was read off the requests the harness sent. A run that differs from the ideal, one row with every sampled
token trained, without an entry here is a bug of ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Reason:
    """What a reader accepts as the cause of `rows` rows, of `untrained` replies in them, of `findings` beside usual."""

    note: str
    rows: int = 1
    untrained: int = 0
    findings: tuple[str, ...] = ()


IDEAL = Reason("")

USUAL: Mapping[str, tuple[str, ...]] = {
    "claude-code": ("thinking_ignored",),
    "codex": ("thinking_ignored",),
    "gemini-cli": ("sampling_ignored", "thinking_ignored"),
    "opencode": ("root_other_tools", "thinking_ignored"),
    "openhands-sdk": ("thinking_ignored",),
    "pi": ("thinking_ignored",),
}
"""Findings of every run of a harness, by its name."""

REASONS: Mapping[tuple[str, str], Reason] = {}
"""By harness, with or without its dialect, and case."""


def reason_for(harness: str, case: str) -> Reason:
    """The reason written for this dialect of a harness, or for all of them, or none."""
    return REASONS.get((harness, case), REASONS.get((harness.partition("@")[0], case), IDEAL))
