"""The tree of turns of one session, and which turn a new request continues.

Invariant: a turn once added never changes; attaching reads the tree and changes nothing.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from harbor_env.gateway.meaning import same_assistant, same_delta
from harbor_env.gateway.types import Message, ToolCall, Turn


@dataclass(frozen=True, slots=True)
class Attachment:
    """Where a history continues: after `parent` (None: a new root), with `rest` still to be rendered."""

    parent: Turn | None
    rest: tuple[Message, ...]


class Tree:
    """Turns by id and by parent, in the order they were recorded."""

    def __init__(self, turns: Iterable[Turn] = ()) -> None:
        self._turns: dict[str, Turn] = {}
        self._children: dict[str | None, list[Turn]] = {}
        self._minted: dict[str, tuple[str, ToolCall]] = {}
        for turn in turns:
            self.add(turn)

    def __len__(self) -> int:
        return len(self._turns)

    def __contains__(self, turn_id: str) -> bool:
        return turn_id in self._turns

    def turns(self) -> list[Turn]:
        """All turns, oldest first."""
        return list(self._turns.values())

    def get(self, turn_id: str) -> Turn | None:
        return self._turns.get(turn_id)

    def children(self, turn_id: str | None) -> Sequence[Turn]:
        """Children in the order recorded; `None` gives the roots."""
        return self._children.get(turn_id, ())

    def add(self, turn: Turn) -> None:
        """Add a turn whose parent is here. Adding the same id again changes nothing."""
        if turn.id in self._turns:
            return
        if turn.parent is not None and turn.parent not in self._turns:
            raise KeyError(f"parent {turn.parent} of turn {turn.id} is not in the tree")
        self._turns[turn.id] = turn
        self._children.setdefault(turn.parent, []).append(turn)
        for call in turn.reply.tool_calls:
            self._minted[call.id] = (turn.id, call)

    def path(self, turn: Turn | None) -> list[Turn]:
        """Turns from the root to `turn`, both included; empty for None."""
        found: list[Turn] = []
        while turn is not None:
            found.append(turn)
            turn = self._turns[turn.parent] if turn.parent is not None else None
        found.reverse()
        return found

    def ids(self, turn: Turn | None) -> array[int]:
        """Every id along the path: deltas and sampled tokens, ending with what `turn` sampled."""
        joined = array("i")
        for step in self.path(turn):
            joined.extend(step.delta_ids)
            joined.extend(step.sampled)
        return joined

    def messages(self, turn: Turn | None) -> list[Message]:
        """The conversation along the path: deltas and replies."""
        return [message for step in self.path(turn) for message in (*step.delta, step.reply)]

    def minted(self, call_id: str) -> ToolCall | None:
        """The call this session minted that id for."""
        entry = self._minted.get(call_id)
        return entry[1] if entry else None

    def attach(self, messages: Sequence[Message], context: str, named: str = "") -> Attachment:
        """The deepest turn whose path the history retraces, the latest on a tie; no match is a new root.

        `context` digests tools and rendering options: only turns with the same one are candidates. On a tie the turn
        whose id is `named` comes before any other.
        """
        best: Turn | None = None
        best_end = 0
        stack: list[tuple[Turn | None, int]] = [(None, 0)]
        while stack:
            node, start = stack.pop()
            if node is not None and start >= best_end and self._better(node, best, start > best_end, named):
                best, best_end = node, start
            for child in self.children(node.id if node else None):
                end = self._match(child, messages, start, context)
                if end:
                    stack.append((child, end))
        return Attachment(best, tuple(messages[best_end:]))

    def _better(self, node: Turn, best: Turn | None, deeper: bool, named: str) -> bool:
        if deeper or best is None:
            return True
        if named in (node.id, best.id):
            return node.id == named
        order = list(self._turns)
        return order.index(node.id) > order.index(best.id)

    def _match(self, child: Turn, messages: Sequence[Message], start: int, context: str) -> int:
        """The position behind `child`'s reply in `messages`, 0 where the history does not go through it."""
        at = start + len(child.delta)
        if child.context != context or at >= len(messages) or messages[at].role != "assistant":
            return 0
        end = self._behind_reply(child, messages, at)
        return end if end and same_delta(child.delta, messages, start) else 0

    def _behind_reply(self, turn: Turn, messages: Sequence[Message], at: int) -> int:
        """The position behind what `turn` replied, 0 where `messages[at]` does not begin it.

        Some harnesses send a reply back as several messages in a row, one for each block it had.
        """
        end = at + 1 if self._is_reply(turn, messages[at]) else 0
        if end and len(messages[at].tool_calls) >= len(turn.reply.tool_calls):
            return end
        said, calls = messages[at].content, list(messages[at].tool_calls)
        for behind in range(at + 1, len(messages)):
            if messages[behind].role != "assistant":
                break
            said += messages[behind].content
            calls += messages[behind].tool_calls
            whole = Message("assistant", said, tool_calls=tuple(calls))
            if self._is_whole_reply(turn, whole):
                return behind + 1
        return end

    def _is_whole_reply(self, turn: Turn, whole: Message) -> bool:
        """Messages put together are what `turn` replied: every call of it, and its text unless that was left out."""
        complete = len(whole.tool_calls) == len(turn.reply.tool_calls)
        text = whole.content.strip()
        return complete and text in ("", turn.reply.content.strip()) and self._is_reply(turn, whole)

    def _is_reply(self, turn: Turn, message: Message) -> bool:
        """The message is what `turn` replied: by minted call ids where any survived, else by what it says."""
        owners = {self._minted[call.id][0] for call in message.tool_calls if call.id in self._minted}
        if owners:
            return owners == {turn.id}
        return same_assistant(turn.reply, message)
