"""Reading literal values in Python's or JSON's spelling out of sampled text, forgiving about quotes.

Invariant: either a value and the position after it, or `Unreadable`; nothing is evaluated.
"""

from __future__ import annotations

import math
import re
from typing import Any

from harbor_env.gateway.rendering.guard import clear

_SPACE = re.compile(r"\s*")
_NUMBER = re.compile(r"-?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_WORD = re.compile(r"[A-Za-z]+")
_WORDS = {"True": True, "true": True, "False": False, "false": False, "None": None, "null": None}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "\\": "\\", "'": "'", '"': '"', "/": "/", "\n": ""}
_HEX = {"x": 2, "u": 4, "U": 8}
_STRUCTURE = re.compile(r"\s*(?:[,\])}:]|$)")
_DEPTH = 100


class Unreadable(ValueError):
    """The text is not what was wanted at this position."""


class Literals:
    """A position in a text that moves over what is read."""

    def __init__(self, text: str, position: int) -> None:
        self.text = text
        self.position = position
        self._depth = 0

    def at(self, token: str) -> bool:
        found = _SPACE.match(self.text, self.position)
        self.position = found.end() if found else self.position
        return self.text.startswith(token, self.position)

    def take(self, token: str) -> bool:
        there = self.at(token)
        self.position += len(token) if there else 0
        return there

    def need(self, token: str) -> None:
        if not self.take(token):
            raise Unreadable

    def word(self, pattern: re.Pattern[str]) -> str:
        self.at("")
        found = pattern.match(self.text, self.position)
        if not found:
            raise Unreadable
        self.position = found.end()
        return found.group()

    def keyword(self, pattern: re.Pattern[str]) -> str | None:
        """`name=` if it stands here."""
        self.at("")
        found = pattern.match(self.text, self.position)
        if not found or not self.text[found.end() :].lstrip().startswith("="):
            return None
        self.position = self.text.index("=", found.end()) + 1
        return found.group()

    def value(self) -> Any:
        if self.at("'") or self.at('"'):
            return self._string()
        if self.take("["):
            return self._items("]")
        if self.take("("):
            return self._items(")")
        if self.take("{"):
            return self._mapping()
        if number := _NUMBER.match(self.text, self.position):
            self.position = number.end()
            return _number(number.group())
        word = self.word(_WORD)
        if word not in _WORDS:
            raise Unreadable
        return _WORDS[word]

    def _items(self, closer: str) -> list[Any]:
        self._deeper()
        items: list[Any] = []
        while not self.at(closer):
            items.append(self.value())
            if not self.take(","):
                break
        self.need(closer)
        self._depth -= 1
        return items

    def _mapping(self) -> dict[str, Any]:
        self._deeper()
        items: dict[str, Any] = {}
        while not self.at("}"):
            key = self.value()
            self.need(":")
            items[key if isinstance(key, str) else str(key)] = self.value()
            if not self.take(","):
                break
        self.need("}")
        self._depth -= 1
        return items

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > _DEPTH:
            raise Unreadable

    def _string(self) -> str:
        quote = self.text[self.position]
        self.position += 1
        parts: list[str] = []
        while self.position < len(self.text):
            character = self.text[self.position]
            self.position += 1
            if character == "\\":
                parts.append(self._escape())
            elif character == quote and _STRUCTURE.match(self.text, self.position):
                return clear("".join(parts))
            else:
                parts.append(character)
        raise Unreadable

    def _escape(self) -> str:
        character = self.text[self.position : self.position + 1]
        self.position += 1
        if character in _HEX:
            digits = self.text[self.position : self.position + _HEX[character]]
            if re.fullmatch(r"[0-9a-fA-F]+", digits) and int(digits, 16) < 0x110000:
                self.position += len(digits)
                return chr(int(digits, 16))
        return _ESCAPES.get(character, "\\" + character)


def _number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        number = float(text)
    if not math.isfinite(number):
        raise Unreadable
    return number
