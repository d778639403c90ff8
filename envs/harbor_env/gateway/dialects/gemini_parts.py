"""Google's contents and parts as messages of ours.

Invariant: a result names the call it answers by the call's id where there is one; without ids, results follow the order
of the calls, matched by name.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from harbor_env.gateway.dialects.calls import object_arguments
from harbor_env.gateway.dialects.fields import (
    Json,
    WrongField,
    a_text,
    an_object,
    each_at,
    flag_at,
    json_text,
    no_media,
    object_at,
    read_at,
    string_at,
    text_at,
)
from harbor_env.gateway.dialects.gemini_tools import key_of
from harbor_env.gateway.dialects.opaque import unseal
from harbor_env.gateway.types import Finding, Message, ToolCall

_RESULT_KEYS = ("output", "result", "content", "error")
"""Keys under which clients put a result that is one text."""
_MEDIA = ("inlineData", "inline_data", "fileData", "file_data")


def instruction_text(value: Any) -> str:
    """A system instruction: a string, or a content."""
    if value is None or isinstance(value, str):
        return value or ""
    return "\n".join(filter(None, each_at(an_object(value), "parts", _plain_text)))


def _plain_text(value: Any) -> str:
    part = {"text": value} if isinstance(value, str) else an_object(value)
    if "text" not in part and any(key in part for key in _MEDIA):
        return no_media("file", None)
    return text_at(part, "text")


class _Said:
    """What the parts of one model content add up to."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.thoughts: list[str] = []
        self.calls: list[ToolCall] = []
        self.sealed = ""


class History:
    """Reads contents one by one."""

    def __init__(self, findings: list[Finding]) -> None:
        self.messages: list[Message] = []
        self._findings = findings
        self._names: dict[str, str] = {}
        self._reply = 0
        self._answering = False

    def add(self, value: Any) -> None:
        item = an_object(value)
        role = text_at(item, "role") or "user"
        if role == "model":
            self._model(item)
        elif role in ("user", "function", "tool"):
            self._user(item)
        elif role == "system":
            self.messages.append(Message("system", instruction_text(item)))
        else:
            raise WrongField(f"unknown role {role[:80]!r}", "role")

    def _model(self, item: Json) -> None:
        said = _Said()
        each_at(item, "parts", partial(self._model_part, said))
        self._reply, self._answering = len(self.messages), False
        self._names.update((call.id, call.name) for call in said.calls if call.id)
        reasoning = "\n".join(filter(None, said.thoughts)) or said.sealed
        self.messages.append(Message("assistant", "".join(said.texts), reasoning, tuple(said.calls)))

    def _model_part(self, said: _Said, value: Any) -> None:
        part = an_object(value)
        signed = part.get(key_of(part, "thoughtSignature"))
        if isinstance(signed, str):
            said.sealed = unseal(signed) or said.sealed
        called = key_of(part, "functionCall")
        if called in part:
            said.calls.append(read_at(part, called, _call))
        if flag_at(part, "thought"):
            said.thoughts.append(text_at(part, "text"))
        elif "text" in part:
            said.texts.append(text_at(part, "text"))
        elif set(part) - {called, "thought", "thoughtSignature", "thought_signature"}:
            self._findings.append(Finding("block_dropped", ", ".join(sorted(part))[:80]))

    def _user(self, item: Json) -> None:
        before = len(self.messages)
        run: list[str] = []
        parts = item.get("parts")
        answers = isinstance(parts, list) and any(_response_key(part) for part in parts)
        self._answering |= answers
        each_at(item, "parts", partial(self._user_part, run))
        self._flush(run)
        if len(self.messages) == before and not answers:
            self.messages.append(Message("user"))
        self._order()

    def _flush(self, run: list[str]) -> None:
        """The texts since the last result are one user message."""
        text = "\n".join(filter(None, run))
        if text:
            self.messages.append(Message("user", text))
        run.clear()

    def _user_part(self, run: list[str], value: Any) -> None:
        part = {"text": value} if isinstance(value, str) else an_object(value)
        answer = _response_key(part)
        if answer:
            result = read_at(part, answer, self._result)
            if self._is_duplicate(result):
                self._findings.append(Finding("duplicate_output", f"call {result.tool_call_id or result.name}"[:90]))
                return
            self._flush(run)
            self.messages.append(result)
        elif "text" in part:
            run.append(text_at(part, "text"))
        elif any(key in part for key in _MEDIA):
            run.append(no_media("file", self._findings if self._answering else None))
        elif part:
            raise WrongField(f"unknown part {', '.join(sorted(part))[:80]!r}")

    def _is_duplicate(self, result: Message) -> bool:
        """It was sent since the reply it answers; without an id, every call of its function has its answer already."""
        since = self.messages[self._reply :]
        if result not in since or result.tool_call_id:
            return result in since
        called = sum(call.name == result.name for call in self._calls())
        return 0 < called <= sum(message.role == "tool" and message.name == result.name for message in since)

    def _calls(self) -> tuple[ToolCall, ...]:
        """What the last reply called."""
        return self.messages[self._reply].tool_calls if self.messages[self._reply :] else ()

    def _result(self, value: Any) -> Message:
        item = an_object(value)
        response = object_at(item, "response")
        texts = [_result_text(response)]
        texts += each_at(item, "parts", lambda part: no_media("file", self._findings))
        answered = text_at(item, "id")
        name = self._names.get(answered) or text_at(item, "name")
        text = "\n".join(filter(None, texts))
        return Message("tool", text, tool_call_id=answered, name=name, is_error=set(response) == {"error"})

    def _order(self) -> None:
        """Results that name no call take the order of the calls they answer."""
        calls, start = self._calls(), self._reply + 1
        results = self.messages[start : start + len(calls)]
        known = {call.id for call in calls if call.id}
        if len(calls) < 2 or any(m.role != "tool" for m in results) or all(m.tool_call_id in known for m in results):
            return
        ordered = []
        for call in calls:
            match = next((m for m in results if _answers(m, call, known)), None)
            if match is None:
                return
            results.remove(match)
            ordered.append(match)
        self.messages[start : start + len(calls)] = ordered


def _answers(result: Message, call: ToolCall, known: set[str]) -> bool:
    """By the id where the call has one that results know, else by the name."""
    if result.tool_call_id in known:
        return result.tool_call_id == call.id
    return result.name == call.name


def _response_key(part: Any) -> str:
    """The key of a part's function response, "" where it has none."""
    key = key_of(part, "functionResponse") if isinstance(part, dict) else ""
    return key if key and key in part else ""


def _call(value: Any) -> ToolCall:
    item = an_object(value)
    return ToolCall(text_at(item, "id"), string_at(item, "name"), read_at(item, "args", object_arguments))


def _result_text(response: dict[str, Any]) -> str:
    """The text of a result that is one text under a usual key; JSON for any other."""
    if not response:
        return ""
    [key, *others] = response
    if others or key not in _RESULT_KEYS:
        return json_text(response)
    value = response[key]
    return a_text(value) if isinstance(value, str) else json_text(value)
