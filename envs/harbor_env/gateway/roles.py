"""Which conversation of its harness a call belongs to: main, subagent, compaction or auxiliary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harbor_env.gateway.types import Call, ConversationRole, Turn
from harbor_env.harnesses import HARNESSES, RoleMarker, find

ANY_HARNESS = (
    RoleMarker("subagent", "header", name="x-claude-code-agent-id"),
    RoleMarker("subagent", "header", name="x-openai-subagent", text="collab_spawn"),
    RoleMarker("subagent", "header", name="x-parent-session-id"),
)
"""Headers that mean a subagent whichever harness sends them; read where a session does not name its harness."""


def markers_of(harness: object) -> Sequence[RoleMarker]:
    """The markers of the harness a session's metadata names, or those that need no name."""
    name = harness.partition("@")[0] if isinstance(harness, str) else ""
    return find(name).roles if name in HARNESSES else ANY_HARNESS


def conversation_role(
    markers: Sequence[RoleMarker], headers: Mapping[str, str], call: Call, parent: Turn | None
) -> ConversationRole:
    """The first marker that is seen decides; without one, a turn belongs to its parent's conversation.

    `headers` have lower-case names. What continues a compaction or an auxiliary call is the main conversation again.
    """
    if call.compaction:
        return "compaction"
    for marker in markers:
        if _seen(marker, headers, call):
            return marker.role
    return "subagent" if parent is not None and parent.role == "subagent" else "main"


def _seen(marker: RoleMarker, headers: Mapping[str, str], call: Call) -> bool:
    if marker.place == "no_tools":
        return not call.tools
    if marker.place == "header":
        return marker.name in headers and marker.text in headers[marker.name]
    if marker.place == "system":
        return any(marker.text in message.content for message in call.messages if message.role == "system")
    last = next((message for message in reversed(call.messages) if message.role == "user"), None)
    return last is not None and marker.text in last.content
