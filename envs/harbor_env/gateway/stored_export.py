"""Read one session from a store for export. Its id is a secret; what leaves here carries a digest of it instead."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from harbor_env.gateway.export import TRAINED_ROLES, SessionExport
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
