"""What a chat template can take, and how a conversation is reshaped where it cannot.

Invariant: reshaping keeps every text once and in order; each reshaping is a finding.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from harbor_env.gateway.rendering.conversation import arguments_of
from harbor_env.gateway.rendering.grammars.hermes import write_call
from harbor_env.gateway.types import Finding, Message

_CARRIED_HEAD = (
    "# Tools\n\nYou can call the functions below. Each line between the tags is the JSON schema of one.\n<tools>\n"
)
_CARRIED_TAIL = (
    "\n</tools>\n\nTo call a function, write a JSON object with its name and its arguments between these tags, "
    'once for each call:\n<tool_call>\n{"name": <function name>, "arguments": <JSON object>}\n</tool_call>\n'
    "Results come back between <tool_response> tags."
)


@dataclass(frozen=True, slots=True)
class Shape:
    """What a template takes as it is. `tools`: it prints tools, calls and tool results itself.

    `system`: none, first (one, at the start) or anywhere. `several_systems`: more than one at the start. `alternate`:
    user and assistant must take turns. `parallel`: several calls in one turn. `text_arguments`: arguments are wanted as
    JSON text. `parts`: content is wanted as a list of parts. `text_beside_calls`: a turn with calls may have text.
    `reasoning_beside_text`: and reasoning beside it.
    """

    tools: bool = True
    system: str = "anywhere"
    several_systems: bool = True
    alternate: bool = False
    parallel: bool = True
    text_arguments: bool = False
    parts: bool = False
    text_beside_calls: bool = True
    reasoning_beside_text: bool = True


@dataclass(frozen=True, slots=True)
class Fitted:
    messages: tuple[Message, ...]
    tools: tuple[dict[str, Any], ...]
    findings: tuple[Finding, ...]


def fit(
    messages: Sequence[Message],
    tools: Sequence[dict[str, Any]],
    custom: frozenset[str],
    shape: Shape,
    *,
    start: bool = True,
) -> Fitted:
    """The guarded conversation as this template takes it. `start` False: it goes on where another ended."""
    findings: list[Finding] = []
    fitted = list(messages)
    if not shape.tools:
        fitted = _carry_tools(fitted, tools, custom, start=start)
        tools = ()
    if not shape.parallel:
        fitted = _one_call_each(fitted, findings)
    fitted = _place_systems(fitted, shape, findings, start=start)
    if not shape.text_beside_calls:
        fitted = [part for message in fitted for part in _text_apart(message, findings)]
    elif not shape.reasoning_beside_text:
        fitted = [_without_reasoning(message, findings) for message in fitted]
    if shape.alternate:
        fitted = _take_turns(fitted, findings)
    return Fitted(tuple(fitted), tuple(tools), tuple(findings))


def _carry_tools(
    messages: list[Message], tools: Sequence[dict[str, Any]], custom: frozenset[str], *, start: bool
) -> list[Message]:
    """Tools in the system message, calls and results as text, for templates that know none of them."""
    carried: list[Message] = []
    for message in messages:
        if message.role == "tool":
            text = f"<tool_response>\n{message.content}\n</tool_response>"
            if carried and carried[-1].role == "user" and carried[-1].name == "tool_response":
                carried[-1] = replace(carried[-1], content=f"{carried[-1].content}\n{text}")
            else:
                carried.append(Message("user", text, name="tool_response"))
        elif message.tool_calls:
            calls = [
                write_call(call.name, _arguments_text(message, i, custom)) for i, call in enumerate(message.tool_calls)
            ]
            carried.append(replace(message, content="\n".join(filter(None, [message.content, *calls])), tool_calls=()))
        else:
            carried.append(message)
    if start and tools:
        lines = [json.dumps(tool, ensure_ascii=False) for tool in tools]
        described = _CARRIED_HEAD + "\n".join(lines) + _CARRIED_TAIL
        if carried and carried[0].role == "system":
            carried[0] = replace(carried[0], content=f"{carried[0].content}\n\n{described}")
        else:
            carried.insert(0, Message("system", described))
    return carried


def _arguments_text(message: Message, index: int, custom: frozenset[str]) -> str:
    arguments = arguments_of(message.tool_calls[index], custom)
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def _one_call_each(messages: list[Message], findings: list[Finding]) -> list[Message]:
    """Each call of a turn as a turn of its own, followed by its result."""
    if all(len(message.tool_calls) < 2 for message in messages):
        return messages
    findings.append(Finding("parallel_calls_split", "the chat template takes one call a turn"))
    split: list[Message] = []
    rest = list(messages)
    while rest:
        message = rest.pop(0)
        if len(message.tool_calls) < 2:
            split.append(message)
            continue
        results = []
        while rest and rest[0].role == "tool":
            results.append(rest.pop(0))
        for i, call in enumerate(message.tool_calls):
            split.append(replace(message, tool_calls=(call,)) if not i else Message("assistant", tool_calls=(call,)))
            mine = [result for result in results if result.tool_call_id == call.id] or results[:1]
            split += mine[:1]
            results = [result for result in results if result not in mine[:1]]
        split += results
    return split


def _place_systems(messages: list[Message], shape: Shape, findings: list[Finding], *, start: bool) -> list[Message]:
    """System messages where the template takes them; elsewhere they become user messages in the same place."""
    opening = _while(messages, lambda message: message.role == "system") if start else []
    rest = messages[len(opening) :]
    if len(opening) > 1 and not shape.several_systems:
        findings.append(Finding("systems_joined", f"{len(opening)} opening system messages are rendered as one"))
        opening = [replace(opening[0], content="\n\n".join(message.content for message in opening))]
    if shape.system == "anywhere":
        return [*opening, *rest]
    head = opening if shape.system == "first" else _as_user(opening, findings)
    return [*head, *_as_user(rest, findings)]


def _text_apart(message: Message, findings: list[Finding]) -> list[Message]:
    if not (message.content.strip() and message.tool_calls):
        return [message]
    findings.append(Finding("text_split_from_calls", "the chat template takes no text beside calls"))
    return [replace(message, tool_calls=()), Message("assistant", tool_calls=message.tool_calls)]


def _without_reasoning(message: Message, findings: list[Finding]) -> Message:
    if not (message.reasoning and message.content and message.tool_calls):
        return message
    findings.append(Finding("reasoning_not_rendered", "the chat template takes no reasoning beside text and calls"))
    return replace(message, reasoning="")


def _as_user(messages: Iterable[Message], findings: list[Finding]) -> list[Message]:
    out = list(messages)
    if any(message.role == "system" for message in out):
        findings.append(Finding("system_as_user", "the chat template takes no system message there"))
    return [replace(message, role="user") if message.role == "system" else message for message in out]


def _take_turns(messages: list[Message], findings: list[Finding]) -> list[Message]:
    """Neighbours of one role as one message."""
    out: list[Message] = []
    for message in messages:
        if out and message.role in ("user", "assistant") and out[-1].role == message.role and not out[-1].tool_calls:
            if not message.name == out[-1].name == "tool_response":
                findings.append(
                    Finding("messages_joined", f"the chat template takes no two {message.role} messages running")
                )
            text = "\n\n".join(filter(None, [out[-1].content, message.content]))
            out[-1] = replace(out[-1], content=text, tool_calls=message.tool_calls)
        else:
            out.append(message)
    return out


def _while(messages: Sequence[Message], test: Callable[[Message], bool]) -> list[Message]:
    end = next((i for i, message in enumerate(messages) if not test(message)), len(messages))
    return list(messages[:end])
