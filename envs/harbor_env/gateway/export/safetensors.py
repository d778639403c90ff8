"""Rows as flat tensors in one safetensors file: row i is `[offsets[i] : offsets[i + 1]]` of every token tensor.

`input_ids` int32, `loss_mask` int8, `logprobs` float64, `offsets` int64; everything else about a row is JSON text under
`rows` in the file's metadata.
"""

from __future__ import annotations

import numpy as np
import orjson
from safetensors.numpy import save

from harbor_env.gateway.export.rows import record, rows
from harbor_env.gateway.export.session_export import SessionExport

_TOKENS = {"input_ids": np.int32, "loss_mask": np.int8, "logprobs": np.float64}


def encode(session: SessionExport) -> bytes:
    """The whole file."""
    records = [record(session, index, row) for index, row in enumerate(rows(session))]
    lengths = [len(each["input_ids"]) for each in records]
    tensors = {
        name: np.concatenate([np.zeros(0, kind), *(each.pop(name) for each in records)])
        for name, kind in _TOKENS.items()
    }
    tensors["offsets"] = np.cumsum([0, *lengths], dtype=np.int64)
    return save(
        tensors,
        metadata={
            "session_id": session.session_id,
            "metadata": orjson.dumps(dict(session.metadata)).decode(),
            "rows": orjson.dumps(records).decode(),
        },
    )
