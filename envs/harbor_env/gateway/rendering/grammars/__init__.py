"""How models write calls: read from sampled text and written for it, one file per grammar.

Invariant: reading never raises and never loses text. What is not a call becomes content again, with a finding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from harbor_env.gateway.rendering.grammars.reading import Reading
from harbor_env.gateway.types import Tool, ToolCall

__all__ = ["Grammar", "Reading"]


class Grammar(Protocol):
    """Text may carry marks in front of structural tokens (`Tokens.decode_marked`); results carry none.

    `opener` is what starts a call. `write` gives all calls of one turn, `joint` between them.
    """

    @property
    def name(self) -> str: ...
    @property
    def opener(self) -> str: ...
    def read(self, text: str, tools: Sequence[Tool]) -> Reading: ...
    def write(self, calls: Sequence[ToolCall], tools: Sequence[Tool], joint: str) -> str: ...
