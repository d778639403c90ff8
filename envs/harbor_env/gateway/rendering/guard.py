"""Text from outside, marked so that no template and no tokenizer can take a part of it for structure.

Invariant: guarded text never contains a structural token's text, whatever the tokenizer's structure is, and encoding it
gives the ids of the original text with no structural id among them. The mark is a Unicode noncharacter set inside
every lookalike; the tokenizer drops it after it has looked for special tokens and before it encodes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

MARK = "\ufdd0"
ESCAPE = "\ufdd1"
REPLACEMENTS = (("\\ufdd0", ""), (MARK, ""), (ESCAPE + "0", MARK), (ESCAPE + "1", ESCAPE))
"""What a normalizer replaces, in this order, to turn guarded text back. The first is a mark that JSON escaped."""


class Guard:
    """Marks lookalikes of one tokenizer's structural tokens."""

    def __init__(self, structural: Iterable[str]) -> None:
        lookalikes = sorted({text for text in structural if text}, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, [*lookalikes, "\\ufdd0", MARK, ESCAPE])))

    def __call__(self, text: str) -> str:
        return self._pattern.sub(_mark, text) if self._pattern.search(text) else text

    def deep(self, value: Any) -> Any:
        """The same JSON value with every string guarded, keys included."""
        if isinstance(value, str):
            return self(value)
        if isinstance(value, Mapping):
            return {self(str(key)): self.deep(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.deep(item) for item in value]
        return value


def _mark(match: re.Match[str]) -> str:
    found = match.group()
    if found in (MARK, ESCAPE):
        return ESCAPE + ("0" if found == MARK else "1")
    return found[0] + MARK + found[1:]


def unguard(text: str) -> str:
    """Guarded text as it was, also after a template or library escaped the marks to JSON."""
    if MARK in text or ESCAPE in text or "\\ufdd0" in text:
        for old, new in REPLACEMENTS:
            text = text.replace(old, new)
    return text


def clear(text: str) -> str:
    """Marked text as it was."""
    if MARK not in text and ESCAPE not in text:
        return text
    for old, new in ((MARK, ""), (ESCAPE + "0", MARK), (ESCAPE + "1", ESCAPE)):
        text = text.replace(old, new)
    return text


def escape(text: str) -> str:
    """Sampled text with the marks' own characters escaped, so that `clear` gives it back."""
    if MARK not in text and ESCAPE not in text:
        return text
    return text.replace(ESCAPE, ESCAPE + "1").replace(MARK, ESCAPE + "0")
