"""Read one session from a store, to export or to count. Its id is a secret; exports carry a digest of it instead."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from typing import Any

from harbor_env.gateway.export import TRAINED_ROLES, SessionExport
from harbor_env.gateway.paths import leaves, roots
from harbor_env.gateway.store import SessionRecord, Store


def public_id(session_id: str) -> str:
    """What exports call a session: 16 hexadecimal characters that open nothing."""
    return hashlib.blake2b(session_id.encode(), digest_size=8).hexdigest()


def stored_export(
    store: Store,
    record: SessionRecord,
    *,
    trained_roles: Sequence[str] = TRAINED_ROLES,
    train_discarded: bool = False,
) -> SessionExport:
    """The session as every format reads it."""
    return SessionExport(
        session_id=public_id(record.id),
        turns=store.turns(record.id),
        contexts=store.contexts(record.id),
        metadata=record.options.get("metadata") or {},
        findings=[finding for turn, finding in store.findings(record.id) if turn is None],
        trained_roles=trained_roles,
        train_discarded=train_discarded,
    )


def stored_counts(store: Store, session_id: str) -> dict[str, Any]:
    """What `GET /sessions/{id}` says of a session; tokens are counts of sampled tokens.

    Rows and trainable tokens are those an export with its defaults trains.
    """
    turns = store.shapes(session_id)
    session = SessionExport("", turns)
    return {
        "calls": len(turns),
        "turns": len(turns),
        "roots": len(roots(turns)),
        "leaves": len(leaves(turns)),
        "rows": session.trained_rows(),
        "discarded": len(session.discarded),
        "tokens": {
            "sampled": sum(len(turn.sampled) for turn in turns),
            "trainable": sum(len(turn.sampled) for turn in turns if session.trains(turn)),
        },
        "last_tool": store.last_tool(session_id),
        "roles": dict(Counter(turn.role for turn in turns)),
        "findings": dict(sorted(store.finding_counts(session_id).items())),
    }
