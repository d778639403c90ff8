"""The start-up proof that a template only ever appends, on probes, for tool results and for user messages apart.

For a history H that ends with an assistant's turn and new messages N the proof wants: the text of H+N ends with what
the stub gives for N alone; what stands before that is the same whatever N is; and the text up to N stays as it is when
the conversation goes on. Reasoning is part of histories before tool results only: many templates drop it at the next
user message, which deltas never do, for the sampled ids keep their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harbor_env.errors import RenderingError
from harbor_env.gateway.rendering.chat_text import ChatText
from harbor_env.gateway.rendering.measure import TOOL, Ends, call
from harbor_env.gateway.types import Message, Tool

_USER = (Message("user", "proof-question"),)
_LATER = (Message("assistant", "proof-answer"), Message("user", "proof-later"))
_LATER_CALL = (
    Message("assistant", tool_calls=(call("later", "call00003"),)),
    Message("tool", "proof-later", tool_call_id="call00003", name=TOOL.name),
)
_OTHER = Tool("other_tool", "another tool", {"type": "object", "properties": {"b": {"type": "integer"}}})


@dataclass(frozen=True, slots=True)
class Proof:
    """`tool` and `user`: why deltas that open with such a message are not exact; "" where they are."""

    tool: str
    user: str
    needs_tools: bool = False

    @property
    def exact(self) -> bool:
        return not (self.tool or self.user)

    @property
    def told(self) -> str:
        if self.exact:
            return "append-only on probes, for tool results and user messages"
        return "; ".join(f"{kind}: {reason}" for kind, reason in (("tool", self.tool), ("user", self.user)) if reason)

    def covers(self, new: Sequence[Message]) -> bool:
        roles = {message.role for message in new}
        return not (self.tool if "tool" in roles else "") and not (self.user if roles - {"tool"} or not new else "")


def prove(chat: ChatText, ends: Ends) -> Proof:
    if not ends.stops:
        return Proof("no token ends a turn", "no token ends a turn")
    without = Proof(_fault(chat, ends, _tool_cases(chat), ()), _fault(chat, ends, _user_cases(), ()))
    if without.exact:
        return without
    shown = Proof(
        _fault(chat, ends, _tool_cases(chat), (TOOL,)), _fault(chat, ends, _user_cases(), (TOOL,)), needs_tools=True
    )
    return shown if shown.exact else without


_Case = tuple[list[Message], list[Message]]


def _user_cases() -> Iterator[_Case]:
    question = Message("user", "proof-start")
    for system in ([], [Message("system", "proof-system")]):
        yield [*system, question, Message("assistant", "proof-text")], list(_USER)
        called = Message("assistant", "proof-words", tool_calls=(call("v", "call00001"),))
        answered = Message("tool", "proof-result", tool_call_id="call00001", name=TOOL.name)
        yield [*system, question, called, answered, Message("assistant", "proof-text")], list(_USER)


def _tool_cases(chat: ChatText) -> Iterator[_Case]:
    question = Message("user", "proof-start")
    calls = (call("v", "call00001"), call("w", "call00002"))[: 2 if chat.shape.parallel else 1]
    results = [Message("tool", f"proof-result-{i}", tool_call_id=c.id, name=TOOL.name) for i, c in enumerate(calls)]
    for system in ([], [Message("system", "proof-system")]):
        for content in ("", "proof-words"):
            for reasoning in ("", "proof-reasoning"):
                one = Message("assistant", content, reasoning=reasoning, tool_calls=calls[:1])
                yield [*system, question, one], results[:1]
        yield [*system, question, Message("assistant", tool_calls=calls)], results
        yield [*system, question, Message("assistant", tool_calls=calls)], [*results, *_USER]


def _fault(chat: ChatText, ends: Ends, cases: Iterator[_Case], stub_tools: tuple[Tool, ...]) -> str:
    """The first reason why a delta would not be what the template prints; "" if there is none."""
    try:
        for history, new in cases:
            for tools in ((), (TOOL,), (TOOL, _OTHER)):
                if fault := _case_fault(chat, ends, history, new, tools, stub_tools):
                    return fault
    except RenderingError as error:
        return str(error)
    return ""


def _case_fault(
    chat: ChatText,
    ends: Ends,
    history: list[Message],
    new: list[Message],
    tools: tuple[Tool, ...],
    stub_tools: tuple[Tool, ...],
) -> str:
    delta = _own_end(chat.after_stub(new, stub_tools)[0], ends)
    text = chat([*history, *new], tools)
    if not delta or not text.endswith(delta):
        return "what follows a turn depends on what came before it"
    if any(delta.count(message.content) != 1 for message in new):
        return "a new message is not printed once"
    head = text[: -len(delta)]
    if new[0].role == "tool":
        other = [Message("tool", "another result", tool_call_id=new[0].tool_call_id, name=TOOL.name), *new[1:]]
    else:
        other = [Message("user", "another question")]
    if not chat([*history, *other], tools).startswith(head):
        return "a new message changes what came before it"
    prompt = _generation_prompt(chat)
    later = _LATER_CALL if new[-1].role == "tool" else _LATER
    if not chat([*history, *new, *later], tools).startswith(text.removesuffix(prompt)):
        return "earlier messages are printed differently later"
    return ""


def _own_end(after: str, ends: Ends) -> str:
    """The delta's text from the stop token on."""
    at = ends.find(after)
    return after[at:] if at >= 0 else ""


def _generation_prompt(chat: ChatText) -> str:
    """What stands between a user message and the reply."""
    asked = [Message("user", "proof-start")]
    return chat(asked).partition("proof-start")[2].removeprefix(_between(chat))


def _between(chat: ChatText) -> str:
    """What ends a user message that another one, or nothing, follows."""
    prompted = chat([Message("user", "proof-start")]).partition("proof-start")[2]
    bare = chat([Message("user", "proof-start")], prompt=False).partition("proof-start")[2]
    common = 0
    while common < min(len(bare), len(prompted)) and bare[common] == prompted[common]:
        common += 1
    return prompted[:common]
