"""What makes scripted tokens as awkward as sampled ones: other splits of a text, other spacing of its JSON.

Pure: all chance comes from the dice given. Invariant: the text of the ids and the value of the JSON are unchanged.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Protocol

from harbor_env.gateway.types import Ids

_JSON_PIECE = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_SPACING = ("", " ", "  ", "\n")
_LOGPROB_STEPS = 1 << 18


class Dice(Protocol):
    """The part of `random.Random` used here."""

    def random(self) -> float: ...
    def randrange(self, stop: int, /) -> int: ...


class Text(Protocol):
    """The part of a renderer used here."""

    def encode(self, text: str) -> list[int]: ...
    def decode(self, ids: Ids) -> str: ...


def synthetic_logprob(token: int) -> float:
    """A log probability between -4 and 0 that depends on the token's id alone, and that float32 holds exactly."""
    return -((token * 2654435761 & 0xFFFFFFFF) % _LOGPROB_STEPS + 1) / 65536


def synthetic_logprobs(ids: Ids) -> list[float]:
    return [synthetic_logprob(token) for token in ids]


class Splitter:
    """Splits tokens into two whose text together is the same, as sampling now and then does.

    A special token is never split: its text, encoded as plain text, is not itself.
    """

    def __init__(self, text: Text) -> None:
        self._text = text
        self._known: dict[int, tuple[tuple[int, int], ...]] = {}

    def split(self, ids: Ids, rate: float, dice: Dice) -> list[int]:
        """`ids` with each token split at probability `rate`, where it can be."""
        split: list[int] = []
        for token in ids:
            pairs = self.pairs(token) if dice.random() < rate else ()
            split.extend(pairs[dice.randrange(len(pairs))] if pairs else (token,))
        return split

    def pairs(self, token: int) -> tuple[tuple[int, int], ...]:
        """Every pair of tokens that reads like `token`."""
        if token not in self._known:
            self._known[token] = self._pairs(token)
        return self._known[token]

    def _pairs(self, token: int) -> tuple[tuple[int, int], ...]:
        text = self._text.decode([token])
        if self._text.encode(text) != [token]:
            return ()
        found = []
        for cut in range(1, len(text)):
            ids = [*self._text.encode(text[:cut]), *self._text.encode(text[cut:])]
            if len(ids) == 2 and self._text.decode(ids) == text:
                found.append((ids[0], ids[1]))
        return tuple(found)


def odd_json(text: str, dice: Dice) -> str:
    """JSON text with other white space between its parts; text that is no JSON comes back as it is."""
    try:
        json.loads(text)
    except ValueError:
        return text
    parts: Sequence[str] = _JSON_PIECE.findall(text)
    return "".join(part + _SPACING[dice.randrange(len(_SPACING))] for part in parts[:-1]) + parts[-1]
