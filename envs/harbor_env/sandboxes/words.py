"""Words, quotes and variables of a Dockerfile instruction. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

_VARIABLE = re.compile(r"\$(?:\{(\w+)(?:(:?[-+])([^}]*))?\}|(\w+))")
_HEREDOC = re.compile(r"<<(-?)([\"']?)([A-Za-z_]\w*)\2")


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Replace $NAME, ${NAME}, ${NAME:-default} and ${NAME:+other}; single quotes and a backslash protect."""
    parts: list[str] = []
    for piece, protected in _pieces(text):
        parts.append(piece if protected else _VARIABLE.sub(lambda match: _value(match, variables), piece))
    return "".join(parts)


def _pieces(text: str) -> Iterator[tuple[str, bool]]:
    """Split off what is not expanded: single-quoted text and escaped dollars."""
    for match in re.finditer(r"('[^']*')|(\\\$)|((?:[^'\\]|\\(?!\$))+)|(')", text):
        quoted, escaped, plain, stray = match.groups()
        if escaped:
            yield "$", True
        else:
            yield quoted or plain or stray, bool(quoted)


def _value(match: re.Match[str], variables: Mapping[str, str]) -> str:
    name, operator, word = match[1] or match[4], match[2] or "", match[3] or ""
    value = variables.get(name)
    is_set = bool(value) if operator.startswith(":") else value is not None
    if operator.endswith("-"):
        return value or "" if is_set else expand(word, variables)
    if operator.endswith("+"):
        return expand(word, variables) if is_set else ""
    return value or ""


def split_words(text: str) -> list[str]:
    """Split at blanks outside quotes; quotes and escapes are consumed."""
    words: list[str] = []
    current: list[str] | None = None
    quote = ""
    characters = iter(text)
    for character in characters:
        if quote:
            if character == quote:
                quote = ""
                continue
            if character == "\\" and quote == '"':
                following = next(characters, "")
                character = following if following in '"\\$' else f"\\{following}"
        elif character in "\"'":
            quote, current = character, current or []
            continue
        elif character.isspace():
            if current is not None:
                words.append("".join(current))
            current = None
            continue
        elif character == "\\":
            character = next(characters, "")
        current = current or []
        current.append(character)
    return [*words, "".join(current)] if current is not None else words


def heredoc_names(line: str) -> list[tuple[str, bool, bool]]:
    """(terminator, strip tabs, expand variables) of each here-document a line opens."""
    return [(match[3], bool(match[1]), not match[2]) for match in _HEREDOC.finditer(line)]


def without_heredocs(line: str) -> str:
    return _HEREDOC.sub("", line).strip()
