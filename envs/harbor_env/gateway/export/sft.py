"""Supervised examples as JSON lines: every assistant turn once, the conversation so far as context.

Each line has TRL's conversational `prompt` and `completion`, so that the loss falls on the reply alone. Turns an
untrained role made, and empty replies, are left out; a turn needs no log probabilities to be an example.
"""

from __future__ import annotations

from typing import Any

import orjson

from harbor_env.gateway.export import openai_shape
from harbor_env.gateway.export.session_export import SessionExport, conversation
from harbor_env.gateway.paths import Path
from harbor_env.gateway.types import Turn


def json_lines(session: SessionExport) -> bytes:
    """One line per example: `prompt`, `completion`, `tools` (JSON text), turn and session ids, metadata."""
    return b"".join(
        orjson.dumps(_example(session, path, index), option=orjson.OPT_APPEND_NEWLINE)
        for path in session.paths()
        for index in range(path.owned_from, len(path.turns))
        if _is_example(session, path.turns[index])
    )


def _is_example(session: SessionExport, turn: Turn) -> bool:
    said = turn.reply.content or turn.reply.reasoning or turn.reply.tool_calls
    return bool(said) and turn.finish != "abort" and turn.role in session.trained_roles


def _example(session: SessionExport, path: Path, index: int) -> dict[str, Any]:
    turn = path.turns[index]
    context = [*conversation(path, index), *turn.delta]
    return {
        "prompt": [openai_shape.message(message) for message in context],
        "completion": [openai_shape.message(turn.reply)],
        "tools": orjson.dumps([openai_shape.tool(tool) for tool in session.tools(turn)]).decode(),
        "turn": turn.id,
        "role": turn.role,
        "session_id": session.session_id,
        "metadata": dict(session.metadata),
    }
