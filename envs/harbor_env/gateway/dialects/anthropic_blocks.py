"""Anthropic's content blocks as messages of ours.

Invariant: the order of what a message says is kept: results and runs of text each become one message, in place.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harbor_env.gateway.dialects.fields import (
    MEDIA,
    Json,
    an_object,
    flag_at,
    json_text,
    name_at,
    part_text,
    parts_text,
    text_at,
    unknown_type,
    wrong,
)
from harbor_env.gateway.dialects.opaque import unseal
from harbor_env.gateway.types import Finding, Message, Tool, ToolCall

UNPARSED = "__unparsedToolInput"
"""How Claude Code keeps arguments that were not a JSON object: `{"__unparsedToolInput": {"raw", "len"}}`."""
BILLING = "x-anthropic-billing-header"
"""Opens a system block that changes with the transport and says nothing to a model."""


def system_text(system: Any) -> str:
    """The top-level `system`, string or blocks, without Claude Code's billing block."""
    blocks = [system] if isinstance(system, str) else system
    if isinstance(blocks, list):
        blocks = [block for block in blocks if not _is_billing(block)]
    return parts_text(blocks, "system", "\n")


def _is_billing(block: Any) -> bool:
    text = block.get("text") if isinstance(block, dict) else block
    return isinstance(text, str) and text.startswith(BILLING)


class History:
    """Reads wire messages one by one. `deferred` are the tools a `tool_reference` may load, by name."""

    def __init__(self, deferred: Mapping[str, Tool], findings: list[Finding]) -> None:
        self.messages: list[Message] = []
        self._deferred = deferred
        self._findings = findings
        self._names: dict[str, str] = {}

    def add(self, value: Any, path: str) -> None:
        item = an_object(value, path)
        role = name_at(item, "role", path)
        content, where = item.get("content"), f"{path}.content"
        if role == "user":
            self._user(content, where)
        elif role == "assistant":
            self._assistant(content, where)
        elif role == "system":
            self.messages.append(Message("system", parts_text(content, where, "\n")))
        else:
            raise wrong(f"{path}.role", f"unknown role {role[:80]!r}")

    def _user(self, content: Any, path: str) -> None:
        if not isinstance(content, list):
            self.messages.append(Message("user", parts_text(content, path, "\n")))
            return
        before = len(self.messages)
        run: list[str] = []
        for i, block in enumerate(content):
            where = f"{path}[{i}]"
            if isinstance(block, dict) and block.get("type") == "tool_result":
                self._flush(run)
                self._result(block, where)
            else:
                run.append(self._text(block, where, None))
        self._flush(run)
        if len(self.messages) == before:
            self.messages.append(Message("user"))

    def _flush(self, run: list[str]) -> None:
        text = "\n".join(part for part in run if part)
        if text:
            self.messages.append(Message("user", text))
        run.clear()

    def _result(self, block: Json, path: str) -> None:
        content, where = block.get("content"), f"{path}.content"
        if isinstance(content, list):
            parts = [self._text(part, f"{where}[{i}]", self._findings) for i, part in enumerate(content)]
            text = "\n".join(part for part in parts if part)
        else:
            text = parts_text(content, where, "\n")
        answered = name_at(block, "tool_use_id", path)
        self.messages.append(
            Message(
                "tool",
                text,
                tool_call_id=answered,
                name=self._names.get(answered, ""),
                is_error=flag_at(block, "is_error", path),
            )
        )

    def _text(self, block: Any, path: str, findings: list[Finding] | None) -> str:
        """A user or result block as text. Inside a result (`findings` given) nothing is refused for its type."""
        kind = block.get("type") if isinstance(block, dict) else None
        if kind == "text" or not isinstance(kind, str):
            return part_text(block, path)
        if kind == "tool_reference":
            return self._reference(name_at(block, "tool_name", path), path)
        if kind == "document" and (text := _document(block, path)):
            return text
        if kind == "search_result":
            head = f"{text_at(block, 'title', path)} ({text_at(block, 'source', path)})"
            return f"{head}\n{parts_text(block.get('content'), f'{path}.content', chr(10))}"
        if findings is not None and kind not in MEDIA:
            findings.append(Finding("block_dropped", f"{path}: {kind[:80]}"))
            return f"[{kind[:80]} omitted: this model cannot read it]"
        return part_text(block, path, findings)

    def _reference(self, name: str, path: str) -> str:
        tool = self._deferred.get(name)
        if tool is None:
            return f"Tool loaded: {name}"
        function = {"name": name, "description": tool.description, "parameters": tool.parameters}
        return f"Tool loaded: {json_text({'type': 'function', 'function': function}, path)}"

    def _assistant(self, content: Any, path: str) -> None:
        if not isinstance(content, list):
            self.messages.append(Message("assistant", parts_text(content, path, "")))
            return
        texts: list[str] = []
        thoughts: list[str] = []
        calls: list[ToolCall] = []
        for i, value in enumerate(content):
            where = f"{path}[{i}]"
            block = {"type": "text", "text": value} if isinstance(value, str) else an_object(value, where)
            kind = block.get("type")
            if kind == "text":
                texts.append(text_at(block, "text", where))
            elif kind == "tool_use":
                calls.append(_call(block, where))
            elif kind == "thinking":
                thoughts.append(text_at(block, "thinking", where))
            elif kind == "redacted_thinking":
                thoughts.append(self._redacted(text_at(block, "data", where), where))
            elif isinstance(kind, str):
                self._findings.append(Finding("block_dropped", f"{where}: {kind[:80]}"))
            else:
                raise unknown_type(where, kind)
        self._names.update((call.id, call.name) for call in calls)
        reasoning = "\n".join(thought for thought in thoughts if thought)
        self.messages.append(Message("assistant", "".join(texts), reasoning, tuple(calls)))

    def _redacted(self, data: str, path: str) -> str:
        text = unseal(data)
        if text is None:
            self._findings.append(Finding("reasoning_undecodable", f"{path}: sealed elsewhere"))
        return text or ""


def _document(block: Json, path: str) -> str:
    """The text of a document that has one; "" for a file of bytes."""
    source = an_object(block.get("source"), f"{path}.source")
    if source.get("type") == "text":
        text = text_at(source, "data", f"{path}.source")
    elif source.get("type") == "content":
        text = parts_text(source.get("content"), f"{path}.source.content", "\n")
    else:
        return ""
    title = text_at(block, "title", path)
    return f"{title}\n{text}" if title else text


def _call(block: Json, path: str) -> ToolCall:
    given = block.get("input")
    kept = given.get(UNPARSED) if isinstance(given, dict) and len(given) == 1 else None
    if isinstance(kept, dict) and isinstance(kept.get("raw"), str):
        arguments = kept["raw"]
    else:
        arguments = "{}" if given is None else json_text(given, f"{path}.input")
    return ToolCall(name_at(block, "id", path), name_at(block, "name", path), arguments)
