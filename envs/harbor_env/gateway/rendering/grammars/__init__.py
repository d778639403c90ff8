"""How models write calls: read from sampled text and written for it, one file per grammar.

Invariant: reading never raises and never loses text. What is not a call becomes content again, with a finding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from harbor_env.gateway.types import Finding, Tool, ToolCall


@dataclass(slots=True)
class Reading:
    """What a grammar found in a text: content around the calls, the calls in order, findings."""

    content: str = ""
    calls: list[ToolCall] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


class Grammar(Protocol):
    """Text may carry marks in front of structural tokens (`Tokens.decode_marked`); results carry none.

    `opener` is what starts a call. `write` gives all calls of one turn, to follow the content and `gap`.
    """

    @property
    def name(self) -> str: ...
    @property
    def opener(self) -> str: ...
    @property
    def gap(self) -> str: ...
    def read(self, text: str, tools: Sequence[Tool]) -> Reading: ...
    def write(self, calls: Sequence[ToolCall], tools: Sequence[Tool]) -> str: ...
