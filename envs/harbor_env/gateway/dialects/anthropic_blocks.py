"""Anthropic's content blocks as messages of ours.

Invariant: the order of what a message says is kept: results and runs of text each become one message, in place.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from harbor_env.gateway.dialects.calls import object_arguments
from harbor_env.gateway.dialects.fields import (
    MEDIA,
    Json,
    WrongField,
    an_object,
    content_at,
    each_at,
    flag_at,
    json_text,
    name_at,
    part_text,
    read_at,
    string_at,
    text_at,
    unknown_type,
)
from harbor_env.gateway.dialects.opaque import unseal
from harbor_env.gateway.types import Finding, Message, Tool, ToolCall

BILLING = "x-anthropic-billing-header"
"""Opens a line of the system prompt that changes with the transport and says nothing to a model."""
_READ = frozenset({"text", "tool_reference", "search_result"})
"""Types of blocks that are text, or stand for it."""


def system_text(body: Json) -> str:
    """The top-level `system`, string or blocks, without Claude Code's billing block."""
    system = body.get("system")
    blocks = [system] if isinstance(system, str) else system
    if isinstance(blocks, list):
        blocks = [_without_billing(block) for block in blocks]
    return content_at({"system": blocks}, "system", "\n")


def _without_billing(block: Any) -> Any:
    """A system block less the line about billing it may open with; other shapes as they are."""
    if isinstance(block, str):
        return block.partition("\n")[2] if block.startswith(BILLING) else block
    if isinstance(block, dict) and isinstance(text := block.get("text"), str) and text.startswith(BILLING):
        return {**block, "text": _without_billing(text)}
    return block


class History:
    """Reads wire messages one by one. `deferred` are the tools a `tool_reference` may load, by name."""

    def __init__(self, deferred: Mapping[str, Tool], findings: list[Finding]) -> None:
        self.messages: list[Message] = []
        self._deferred = deferred
        self._findings = findings
        self._names: dict[str, str] = {}
        self._answering = False

    def add(self, value: Any) -> None:
        item = an_object(value)
        role = name_at(item, "role")
        if role == "user":
            self._user(item)
        elif role == "assistant":
            self._assistant(item)
        elif role == "system":
            self.messages.append(Message("system", content_at(item, "content", "\n")))
        else:
            raise WrongField(f"unknown role {role[:80]!r}", "role")

    def _user(self, item: Json) -> None:
        content = item.get("content")
        if not isinstance(content, list):
            self.messages.append(Message("user", content_at(item, "content", "\n")))
            return
        self._answering |= any(isinstance(block, dict) and block.get("type") == "tool_result" for block in content)
        before = len(self.messages)
        run: list[str] = []
        each_at(item, "content", partial(self._user_block, run))
        self._flush(run)
        if len(self.messages) == before:
            self.messages.append(Message("user"))

    def _user_block(self, run: list[str], block: Any) -> None:
        if isinstance(block, dict) and block.get("type") == "tool_result":
            self._flush(run)
            self._result(block)
        else:
            run.append(self._text(block))

    def _flush(self, run: list[str]) -> None:
        """The texts since the last result are one user message."""
        text = "\n".join(filter(None, run))
        if text:
            self.messages.append(Message("user", text))
        run.clear()

    def _result(self, block: Json) -> None:
        if isinstance(block.get("content"), list):
            text = "\n".join(filter(None, each_at(block, "content", self._result_text)))
        else:
            text = content_at(block, "content", "\n")
        answered = name_at(block, "tool_use_id")
        name, is_error = self._names.get(answered, ""), flag_at(block, "is_error")
        self.messages.append(Message("tool", text, tool_call_id=answered, name=name, is_error=is_error))

    def _result_text(self, block: Any) -> str:
        """A block inside a result as text: nothing is refused for its type."""
        kind = block.get("type") if isinstance(block, dict) else None
        if isinstance(kind, str) and kind not in MEDIA and kind not in _READ:
            self._findings.append(Finding("block_dropped", kind[:80]))
            return f"[{kind[:80]} omitted: this model cannot read it]"
        return self._text(block)

    def _text(self, block: Any) -> str:
        """A user's block as text. Media are refused, but for those that came with a result, which a tool chose."""
        kind = block.get("type") if isinstance(block, dict) else None
        findings = self._findings if self._answering else None
        if kind == "tool_reference":
            return self._reference(name_at(block, "tool_name"))
        if kind == "document" and (text := _document(block, findings)) is not None:
            return text
        if kind == "search_result":
            found = content_at(block, "content", "\n", findings)
            return f"{text_at(block, 'title')} ({text_at(block, 'source')})\n{found}"
        return part_text(block, findings)

    def _reference(self, name: str) -> str:
        tool = self._deferred.get(name)
        if tool is None:
            return f"Tool loaded: {name}"
        function = {"name": name, "description": tool.description, "parameters": tool.parameters}
        return f"Tool loaded: {json_text({'type': 'function', 'function': function})}"

    def _assistant(self, item: Json) -> None:
        self._answering = False
        if not isinstance(item.get("content"), list):
            self.messages.append(Message("assistant", content_at(item, "content", "")))
            return
        said = _Said()
        each_at(item, "content", partial(self._assistant_block, said))
        self._names.update((call.id, call.name) for call in said.calls)
        reasoning = "\n".join(filter(None, said.thoughts))
        self.messages.append(Message("assistant", "".join(said.texts), reasoning, tuple(said.calls)))

    def _assistant_block(self, said: _Said, value: Any) -> None:
        if isinstance(value, str):
            said.texts.append(value)
            return
        block = an_object(value)
        kind = block.get("type")
        if kind == "text":
            said.texts.append(text_at(block, "text"))
        elif kind == "tool_use":
            said.calls.append(_call(block))
        elif kind == "thinking":
            said.thoughts.append(text_at(block, "thinking"))
        elif kind == "redacted_thinking" and (text := unseal(text_at(block, "data"))) is not None:
            said.thoughts.append(text)
        elif isinstance(kind, str):
            code = "reasoning_undecodable" if kind == "redacted_thinking" else "block_dropped"
            self._findings.append(Finding(code, kind[:80]))
        else:
            raise unknown_type(kind)


class _Said:
    """What the blocks of one assistant message add up to."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.thoughts: list[str] = []
        self.calls: list[ToolCall] = []


def _document(block: Json, findings: list[Finding] | None) -> str | None:
    """The text of a document that is one; None for a file of bytes."""
    text = read_at(block, "source", lambda source: _source_text(an_object(source), findings))
    title = text_at(block, "title")
    return text if text is None else "\n".join(filter(None, (title, text)))


def _source_text(source: Json, findings: list[Finding] | None) -> str | None:
    kind = source.get("type")
    if kind == "text":
        return text_at(source, "data")
    return content_at(source, "content", "\n", findings) if kind == "content" else None


def _call(block: Json) -> ToolCall:
    return ToolCall(name_at(block, "id"), string_at(block, "name"), read_at(block, "input", object_arguments))
