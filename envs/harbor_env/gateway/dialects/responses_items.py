"""Responses input items as messages of ours.

Invariant: the items of one model reply (reasoning, message, calls) are one assistant message; results follow it in the
order they came, and every call has one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harbor_env.gateway.dialects.fields import (
    Json,
    WrongField,
    an_object,
    content_at,
    each_at,
    json_text,
    name_at,
    read_at,
    string_at,
    text_at,
    unknown_type,
)
from harbor_env.gateway.dialects.opaque import unseal
from harbor_env.gateway.dialects.responses_ids import reply_of
from harbor_env.gateway.dialects.responses_tools import BUILTINS, ToolBox
from harbor_env.gateway.types import Finding, Message, Role, ToolCall

NO_OUTPUT = "[this call returned no output]"
ORPHAN = "Output of a call that is not in this conversation:"
COMPACTED = "Summary of the conversation before this point:"
SUMMARISE = (
    "Summarise this conversation so that the work can go on from your summary alone: the task, what was done and "
    "found, which files and decisions matter, and what remains to be done. Answer with the summary only."
)
"""What a compaction trigger asks of the model."""

_ROLES: dict[str, Role] = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
_CALLS = {builtin.call: (name, builtin.field) for name, builtin in BUILTINS.items()}
_OUTPUTS = frozenset({"function_call_output", "custom_tool_call_output", *(b.output for b in BUILTINS.values())})


class History:
    """Reads input items one by one. `continued` is set where a `previous_response_id` holds the calls before."""

    def __init__(self, tools: ToolBox, continued: bool, findings: list[Finding]) -> None:
        self.compaction = False
        self._messages: list[Message] = []
        self._tools = tools
        self._continued = continued
        self._findings = findings
        self._names: dict[str, str] = {}
        self._answered: set[str] = set()
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._calls: list[ToolCall] = []
        self._speaking = False
        self._reply = ""
        self._answering = False
        self._readers: dict[str, Callable[[Json], None]] = {
            "message": self._message,
            "reasoning": self._reasoning,
            "function_call": self._function_call,
            "custom_tool_call": self._custom_call,
            "compaction": self._compacted,
            "compaction_trigger": self._trigger,
            "additional_tools": self._more_tools,
            "item_reference": self._reference,
            **dict.fromkeys(_CALLS, self._builtin_call),
            **dict.fromkeys(_OUTPUTS, self._output),
        }

    def add(self, value: Any) -> None:
        item = an_object(value)
        kind = "message" if item.get("type") is None else item["type"]
        if not isinstance(kind, str):
            raise unknown_type(kind)
        read = self._readers.get(kind)
        if read is None:
            self._findings.append(Finding("item_dropped", kind[:80]))
        else:
            read(item)

    def say(self, role: Role, text: str) -> None:
        """A message of its own: it ends the reply before it."""
        self._end_reply()
        self._messages.append(Message(role, text))

    def close(self) -> tuple[Message, ...]:
        """All messages; calls that no item answered get a placeholder right behind the results that did come."""
        self._end_reply()
        missing = [name for name in self._names if name not in self._answered]
        return tuple(self._messages) if not missing else tuple(self._with_placeholders(set(missing)))

    def _with_placeholders(self, missing: set[str]) -> list[Message]:
        done: list[Message] = []
        waiting: list[ToolCall] = []
        for message in [*self._messages, None]:
            if message is None or message.role != "tool":
                for call in waiting:
                    self._findings.append(Finding("missing_output", f"call {call.id[:80]} of {call.name[:80]}"))
                    done.append(Message("tool", NO_OUTPUT, tool_call_id=call.id, name=call.name))
                waiting = [call for call in message.tool_calls if call.id in missing] if message else []
            if message is not None:
                done.append(message)
        return done

    def _end_reply(self) -> None:
        if not self._speaking:
            return
        reasoning = "\n".join(filter(None, self._thoughts))
        self._messages.append(Message("assistant", "".join(self._texts), reasoning, tuple(self._calls)))
        self._texts, self._thoughts, self._calls, self._speaking = [], [], [], False
        self._answering, self._reply = False, ""

    def _speak(self, item: Json) -> None:
        """Begin a reply, or go on with it. Two stand side by side where a harness lost its connection in the first."""
        ours = reply_of(text_at(item, "id"))
        if ours and self._reply and ours != self._reply:
            self._end_reply()
        self._speaking = True
        self._reply = ours or self._reply

    def _message(self, item: Json) -> None:
        role = _ROLES.get(name_at(item, "role"))
        if role is None:
            raise WrongField(f"unknown role {item['role'][:80]!r}", "role")
        if role == "assistant":
            self._speak(item)
            self._texts.append(content_at(item, "content", ""))
        else:
            brought = self._answering and not self._speaking
            self.say(role, content_at(item, "content", "\n", self._findings if brought else None))

    def _reasoning(self, item: Json) -> None:
        """Our own sealed text is exact; else what the item shows in the open."""
        self._speak(item)
        sealed = text_at(item, "encrypted_content")
        text = unseal(sealed) or content_at(item, "content", "\n") or content_at(item, "summary", "\n")
        if sealed and not text:
            self._findings.append(Finding("reasoning_undecodable", "sealed elsewhere"))
        self._thoughts.append(text)

    def _call(self, call_id: str, name: str, arguments: str) -> None:
        self._speaking = True
        self._calls.append(ToolCall(call_id, name, arguments))
        self._names[call_id] = name

    def _function_call(self, item: Json) -> None:
        self._call(name_at(item, "call_id"), self._called(item), text_at(item, "arguments"))

    def _custom_call(self, item: Json) -> None:
        self._call(name_at(item, "call_id"), self._called(item), text_at(item, "input"))

    def _called(self, item: Json) -> str:
        return self._tools.shown_name(string_at(item, "name"), text_at(item, "namespace"))

    def _builtin_call(self, item: Json) -> None:
        name, field = _CALLS[item["type"]]
        given = item.get(field)
        if field == "action" and isinstance(given, dict):
            given = {key: value for key, value in given.items() if key != "type" and value not in (None, {})}
        arguments = "{}" if given is None else read_at({field: given}, field, json_text)
        self._call(text_at(item, "call_id") or name_at(item, "id"), name, arguments)

    def _output(self, item: Json) -> None:
        call_id = text_at(item, "call_id") or text_at(item, "id")
        if item["type"] == "tool_search_output":
            text = self._tools.load(item)
        elif item["type"] == "shell_call_output":
            text = "\n".join(filter(None, each_at(item, "output", _shell_text)))
        else:
            text = content_at(item, "output", "\n", self._findings)
        if call_id not in self._names and not self._continued:
            self._findings.append(Finding("orphan_output", f"call {call_id[:80]}"))
            self.say("user", f"{ORPHAN}\n{text}")
            return
        self._end_reply()
        failed = item.get("status") == "failed"
        name = self._names.get(call_id, "")
        result = Message("tool", text, tool_call_id=call_id, name=name, is_error=failed)
        if call_id in self._answered and result in self._messages[-len(self._answered) :]:
            self._findings.append(Finding("duplicate_output", f"call {call_id[:80]}"))
            return
        self._answering = True
        self._answered.add(call_id)
        self._messages.append(result)

    def _compacted(self, item: Json) -> None:
        text = unseal(text_at(item, "encrypted_content"))
        if text is None:
            self._findings.append(Finding("compaction_undecodable", "sealed elsewhere"))
        else:
            self.say("user", f"{COMPACTED}\n{text}")

    def _trigger(self, item: Json) -> None:
        self.compaction = True
        self.say("user", SUMMARISE)

    def _more_tools(self, item: Json) -> None:
        """Tools that ride in the input: before any message they are the request's own, later they are loaded."""
        if not self._messages and not self._speaking:
            each_at(item, "tools", self._tools.offer)
        elif text := self._tools.load(item):
            self.say("system", text)

    def _reference(self, item: Json) -> None:
        raise WrongField("stored items cannot be referenced here, send them in full", "type")


def _shell_text(value: Any) -> str:
    """One command's captured output, with how it ended."""
    item = an_object(value)
    outcome = item.get("outcome")
    ended = outcome if isinstance(outcome, dict) else {}
    code = ended.get("exit_code")
    note = "[timed out]" if ended.get("type") == "timeout" else f"[exit code {code}]" if code else ""
    return "\n".join(filter(None, (text_at(item, "stdout"), text_at(item, "stderr"), note)))
