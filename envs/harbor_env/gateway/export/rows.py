"""One training row per root-to-leaf path: ids, mask and log probabilities of one length.

Mask 1 stands on every sampled token this path owns and trains; the log probability is the engine's there and 0.0
everywhere else. Over all rows of a session each sampled token has mask 1 at most once.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson

from harbor_env.gateway.export.session_export import SessionExport
from harbor_env.gateway.paths import Path


@dataclass(frozen=True, slots=True)
class Span:
    """Where a turn's sampled tokens stand in its row: `start:end`. `trained`: they carry mask 1 here."""

    turn: str
    start: int
    end: int
    trained: bool


@dataclass(frozen=True, slots=True)
class Row:
    """`input_ids` int32, `loss_mask` int8 and `logprobs` float64 of one length.

    `role` is that of the first turn the row owns, `leaf` the id of its last turn, `finish` how that one ended.
    """

    input_ids: array[int]
    loss_mask: array[int]
    logprobs: array[float]
    spans: tuple[Span, ...]
    role: str
    leaf: str
    finish: str

    @property
    def trained_tokens(self) -> int:
        return self.loss_mask.count(1)


def rows(session: SessionExport) -> list[Row]:
    """Every row of the session, also those without a trained token, conversation by conversation."""
    return [_row(session, path) for path in session.paths()]


def json_lines(session: SessionExport) -> bytes:
    """One JSON object a row: the fields of `Row`, the session's id and metadata."""
    return b"".join(_json_line(session, index, row) for index, row in enumerate(rows(session)))


def record(session: SessionExport, index: int, row: Row) -> dict[str, Any]:
    """A row as a flat mapping of plain values and numpy arrays; the columns of the JSON lines and Parquet files."""
    return {
        "session_id": session.session_id,
        "row": index,
        "role": row.role,
        "leaf": row.leaf,
        "finish": row.finish,
        "trained_tokens": row.trained_tokens,
        "input_ids": np.frombuffer(row.input_ids, np.int32),
        "loss_mask": np.frombuffer(row.loss_mask, np.int8),
        "logprobs": np.frombuffer(row.logprobs, np.float64),
        "turns": [
            {"turn": span.turn, "start": span.start, "end": span.end, "trained": span.trained} for span in row.spans
        ],
    }


def _row(session: SessionExport, path: Path) -> Row:
    ids, mask, logprobs = array("i"), array("b"), array("d")
    spans: list[Span] = []
    for index, turn in enumerate(path.turns):
        trained = index >= path.owned_from and session.trains(turn)
        ids.extend(turn.delta_ids)
        start, context = len(ids), len(turn.delta_ids)
        ids.extend(turn.sampled)
        sampled = len(turn.sampled)
        mask.frombytes(bytes(context) + (b"\1" if trained else b"\0") * sampled)
        logprobs.frombytes(bytes(8 * context) + (turn.logprobs.tobytes() if trained else bytes(8 * sampled)))
        spans.append(Span(turn.id, start, len(ids), trained))
    last = path.turns[-1]
    return Row(ids, mask, logprobs, tuple(spans), path.owned[0].role, last.id, last.finish)


def _json_line(session: SessionExport, index: int, row: Row) -> bytes:
    fields: Mapping[str, Any] = {**record(session, index, row), "metadata": dict(session.metadata)}
    return orjson.dumps(fields, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE)
