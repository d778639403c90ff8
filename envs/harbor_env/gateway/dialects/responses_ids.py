"""Ids of Responses output items: those of reasoning and message name the reply they are part of.

Invariant: `reply_of` knows our own ids and no others; a vendor's item ids say nothing of which reply an item is from.
"""

from __future__ import annotations

import re

REASONING, MESSAGE = "rs", "msg"
_OURS = re.compile(f"(?:{REASONING}|{MESSAGE})_(turn_[0-9a-f]{{24}})")


def item_id(kind: str, reply_id: str) -> str:
    return f"{kind}_{reply_id}"


def reply_of(item: str) -> str:
    """The id of the turn whose reply the item is part of, "" where the id is not one of ours."""
    ours = _OURS.fullmatch(item)
    return ours[1] if ours else ""
