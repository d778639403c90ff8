"""The opaque strings dialects hand a harness to keep and send back: thinking signatures, encrypted reasoning.

Invariant: each is a pure function of what it stands for; what was sealed opens to the same text.
"""

from __future__ import annotations

import base64
import binascii

_MARK = b"hrb1:"
"""Opens what was sealed here, with the version of the form."""
_URL_SAFE = str.maketrans("-_", "+/")


def signature(reply_id: str) -> str:
    """A stable stand-in for a vendor's signature over a reply's reasoning."""
    return base64.b64encode(b"harbor:" + reply_id.encode()).decode()


def seal(text: str) -> str:
    """`text` as an opaque base64 string that `unseal` opens."""
    return base64.b64encode(_MARK + text.encode()).decode()


def unseal(sealed: str) -> str | None:
    """The text of a sealed string, in either base64 alphabet; None where it was sealed elsewhere or is damaged."""
    try:
        opened = base64.b64decode(sealed.translate(_URL_SAFE), validate=True)
        return opened.removeprefix(_MARK).decode() if opened.startswith(_MARK) else None
    except (binascii.Error, ValueError):
        return None
