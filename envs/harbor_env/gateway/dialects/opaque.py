"""The opaque strings dialects hand a harness to keep and send back: thinking signatures, encrypted reasoning.

Invariant: each is a pure function of what it stands for; what was sealed opens to the same text.
"""

from __future__ import annotations

import base64
import binascii

_SEALED = "hrb1."
"""Marks text sealed here, with the version of the form."""


def signature(reply_id: str) -> str:
    """A stable stand-in for a vendor's signature over a reply's reasoning."""
    return base64.b64encode(b"harbor:" + reply_id.encode()).decode()


def seal(text: str) -> str:
    """`text` as an opaque string that `unseal` opens."""
    return _SEALED + base64.b64encode(text.encode()).decode()


def unseal(sealed: str) -> str | None:
    """The text of a sealed string; None where it was sealed elsewhere or is damaged."""
    if not sealed.startswith(_SEALED):
        return None
    try:
        return base64.b64decode(sealed[len(_SEALED) :], validate=True).decode()
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return None
