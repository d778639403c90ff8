"""The conversation of each root-to-leaf path as JSON lines, OpenAI-shaped: for people and for programs that take chats.

Every message of a path stands once on its line, in the order the model saw it.
"""

from __future__ import annotations

from typing import Any

import orjson

from harbor_env.gateway.export import openai_shape
from harbor_env.gateway.export.session_export import SessionExport, conversation
from harbor_env.gateway.paths import Path


def json_lines(session: SessionExport) -> bytes:
    """One line per leaf: `messages`, `tools`, the path's turn ids and role, the session's id and metadata."""
    return b"".join(
        orjson.dumps(_record(session, index, path), option=orjson.OPT_APPEND_NEWLINE)
        for index, path in enumerate(session.paths())
    )


def _record(session: SessionExport, index: int, path: Path) -> dict[str, Any]:
    leaf = path.turns[-1]
    return {
        "session_id": session.session_id,
        "row": index,
        "role": path.owned[0].role,
        "finish_reason": openai_shape.finish_reason(leaf),
        "turns": [turn.id for turn in path.turns],
        "messages": [openai_shape.message(message) for message in conversation(path)],
        "tools": [openai_shape.tool(tool) for tool in session.tools(leaf)],
        "metadata": dict(session.metadata),
    }
