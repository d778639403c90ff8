"""The `renderers` library's render and bridge as plain functions of messages, the bridge over a stub turn.

Invariant: the library never sees the real prompt of a delta, so a delta costs what its messages cost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harbor_env.errors import RenderingError
from harbor_env.gateway.rendering.chat_text import ChatText
from harbor_env.gateway.rendering.deferred import DeferredTokens
from harbor_env.gateway.rendering.tokens import Tokens
from harbor_env.gateway.types import Finding, Message, Tool

RAISED = (ValueError, TypeError, LookupError, AttributeError, AssertionError, NotImplementedError, RuntimeError)
"""What the library's renderers raise at messages they do not take."""
_Entries = Sequence[Mapping[str, Any]]
_USER = ({"role": "user", "content": "u"},)
_REPLIES = ("ok", "</think>ok")
"""Texts of the stub reply: some families take reasoning to be open until its end tag."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """The library's full render, as ids, or called like a chat template as text."""

    library: Any
    tokens: Tokens
    deferred: DeferredTokens

    def __call__(self, messages: _Entries, tools: _Entries, _: Mapping[str, Any], *, prompt: bool = True) -> str:
        return self.tokens.decode(self.ids(messages, tools, prompt=prompt))

    def ids(self, messages: _Entries, tools: _Entries = (), *, prompt: bool = True) -> list[int]:
        options = {"tools": list(tools) or None, "add_generation_prompt": prompt}
        try:
            ids = self.deferred.settle(lambda: self.library.render_ids(list(messages), **options))
        except RAISED as error:
            raise RenderingError(f"the renderer refused the conversation: {error}") from error
        return ids or []

    def bridged(self, prompt: list[int], reply: list[int], entries: _Entries) -> list[int] | None:
        """What the library's bridge adds to a turn; None where it gives none."""

        def added() -> list[int] | None:
            found = self.library.bridge_to_next_turn(prompt, reply, list(entries), tools=None)
            return None if found is None else found.token_ids[len(prompt) + len(reply) :]

        try:
            return self.deferred.settle(added)
        except RAISED as error:
            raise RenderingError(f"the renderer refused the new messages: {error}") from error


class StubBridge:
    """What messages add after a turn that ended with `stop`, a token that opens no message."""

    def __init__(self, rendered: Rendered, stop: int, opening: frozenset[int]) -> None:
        self._rendered = rendered
        self._stop = stop
        self._opening = opening
        self._prompt = rendered.ids(_USER, prompt=False)
        self._reply = self._stub_reply()
        self._between = self._between_turns()

    def after(self, entries: _Entries) -> list[int]:
        """Ids from the stop token on, to the next generation prompt. Assistant messages are context, as if sampled."""
        ids: list[int] = []
        batch: list[Mapping[str, Any]] = []
        for entry in entries:
            if entry["role"] != "assistant":
                batch.append(entry)
                continue
            ids = self._joined(ids, batch) + self.reply(entry, last=False)
            batch = []
        return self._joined(ids, batch)

    def reply(self, entry: Mapping[str, Any], *, last: bool = True) -> list[int]:
        """What the model would have sampled for an assistant message after a generation prompt, without a stop token
        that opens the next message. `last` False: as it stands in history."""
        prompt = self._rendered.ids(_USER)
        ids = self._rendered.ids([*_USER, entry, *(() if last else _USER)], prompt=False)
        if ids[: len(prompt)] != prompt:
            raise RenderingError("the renderer does not print a reply after its generation prompt")
        body = ids[len(prompt) :]
        ends = [at for at, token in enumerate(body) if token == self._stop or token in self._opening]
        end = (ends[-1] if last else ends[0]) if ends else len(body)
        return body[: end + 1] if body[end : end + 1] == [self._stop] else body[:end]

    def _joined(self, ids: list[int], batch: _Entries) -> list[int]:
        added = self._added(batch) if batch else self._between
        opens = bool(added) and added[0] in self._opening
        if opens or (ids and ids[-1] == self._stop):
            return ids + added
        return [*ids, self._stop, *added]

    def _added(self, entries: _Entries) -> list[int]:
        added = self._rendered.bridged(self._prompt, self._reply, entries)
        if added is None:
            raise RenderingError("the renderer gives no delta for these messages")
        return added

    def _stub_reply(self) -> list[int]:
        for text in _REPLIES:
            reply = [*self._rendered.tokens.encode(text), self._stop]
            if self._rendered.bridged(self._prompt, reply, _USER) is not None:
                return reply
        raise RenderingError("the renderer gives no delta for a user message")

    def _between_turns(self) -> list[int]:
        """What stands between two replies: a user message's delta without the message."""
        one, two = self._added(_USER), self._added(_USER * 2)
        prompted = self._rendered.ids(_USER)
        prompt = prompted[len(self._prompt) :] if prompted[: len(self._prompt)] == self._prompt else []
        message = len(two) - len(one)
        return one[: len(one) - message - len(prompt)] + prompt


@dataclass(frozen=True)
class LibraryText(ChatText):
    """A library family's conversations as text, for the same measuring and proving that templates get."""

    bridge: StubBridge | None = None

    def after_stub(self, new: Sequence[Message], tools: Sequence[Tool]) -> tuple[str, tuple[Finding, ...]]:
        if self.bridge is None or not isinstance(self.template, Rendered):
            return super().after_stub(new, tools)
        entries, _ = self.entries(new, tools, start=False)
        return self.template.tokens.decode(self.bridge.after(entries)), self.findings(new, tools, start=False)
