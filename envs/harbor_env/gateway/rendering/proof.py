"""The start-up proof that a template only ever appends, on probes, for tool results and for user messages apart.

For a history H that ends with an assistant's turn and new messages N the proof wants: the text of H+N ends with what
the stub gives for N alone; what stands before that is the same whatever N is; and the text up to N stays as it is when
the conversation goes on. Reasoning is part of histories before tool results only: many templates drop it at the next
user message, which deltas never do, for the sampled ids keep their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from harbor_env.errors import RenderingError
from harbor_env.gateway.rendering.chat_text import ChatText
from harbor_env.gateway.rendering.ends import Ends
from harbor_env.gateway.rendering.probes import TOOL, call, result
from harbor_env.gateway.types import Message, Tool

_USER = (Message("user", "proof-question"),)
_LATER = (Message("assistant", "proof-answer"), Message("user", "proof-later"))
_LATER_CALL = (
    Message("assistant", tool_calls=(call("later", "call00003"),)),
    result("proof-later", "call00003"),
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
    without = _proof(_Prover(chat, ends, ()))
    if without.exact:
        return without
    shown = _proof(_Prover(chat, ends, (TOOL,)))
    return replace(shown, needs_tools=True) if shown.exact else without


def _proof(prover: _Prover) -> Proof:
    parallel = prover.chat.shape.parallel
    return Proof(prover.first_fault(_tool_cases(parallel)), prover.first_fault(_user_cases()))


@dataclass(frozen=True, slots=True)
class _Case:
    """`kept`: the template prints the history as it is when these messages follow; it may drop reasoning else."""

    history: list[Message]
    new: list[Message]
    kept: bool = True


def _user_cases() -> Iterator[_Case]:
    called = Message("assistant", "proof-words", tool_calls=(call("v", "call00001"),))
    answered = result("proof-result", "call00001")
    for opening in _openings():
        yield _Case([*opening, Message("assistant", "proof-text")], list(_USER))
        yield _Case([*opening, Message("assistant", "proof-text", reasoning="why")], list(_USER), kept=False)
        yield _Case([*opening, called, answered, Message("assistant", "proof-text")], list(_USER))
        yield _Case([*opening, called], list(_USER))


def _tool_cases(parallel: bool) -> Iterator[_Case]:
    calls = (call("v", "call00001"), call("w", "call00002"))[: 2 if parallel else 1]
    results = [result(f"proof-result-{i}", c.id) for i, c in enumerate(calls)]
    for opening in _openings():
        for content, reasoning in (("", ""), ("proof-words", ""), ("", "why"), ("proof-words", "why")):
            one = Message("assistant", content, reasoning=reasoning, tool_calls=calls[:1])
            yield _Case([*opening, one], results[:1])
        yield _Case([*opening, Message("assistant", tool_calls=calls)], results)
        yield _Case([*opening, Message("assistant", tool_calls=calls)], [*results, *_USER])


def _openings() -> tuple[list[Message], ...]:
    question = Message("user", "proof-start")
    return [question], [Message("system", "proof-system"), question]


class _Prover:
    """Compares a template's own texts with what the stub gives. `stub_tools`: the tools the stub is rendered with."""

    def __init__(self, chat: ChatText, ends: Ends, stub_tools: tuple[Tool, ...]) -> None:
        self.chat = chat
        self._ends = ends
        self._stub_tools = stub_tools

    def first_fault(self, cases: Iterator[_Case]) -> str:
        """Why a delta would not be what the template prints; "" if nothing speaks against it."""
        try:
            prompt = self._generation_prompt()
            for case in cases:
                for tools in ((), (TOOL, _OTHER)):
                    if fault := self._fault(case, tools, prompt):
                        return fault
        except RenderingError as error:
            return str(error)
        return ""

    def _fault(self, case: _Case, tools: tuple[Tool, ...], prompt: str) -> str:
        delta = self._delta(case.new)
        text = self.chat([*case.history, *case.new], tools)
        if not delta or not text.endswith(delta):
            return "what follows a turn depends on what came before it"
        if any(delta.count(message.content) != 1 for message in case.new):
            return "a new message is not printed once"
        if not case.kept:
            return ""
        head = text[: -len(delta)]
        first = replace(case.new[0], content="another text")
        if not self.chat([*case.history, first, *case.new[1:]], tools).startswith(head):
            return "a new message changes what came before it"
        later = _LATER_CALL if case.new[-1].role == "tool" else _LATER
        if not self.chat([*case.history, *case.new, *later], tools).startswith(text.removesuffix(prompt)):
            return "earlier messages are printed differently later"
        return ""

    def _delta(self, new: list[Message]) -> str:
        """What the stub gives, from the stop token on."""
        after = self.chat.after_stub(new, self._stub_tools)[0]
        at = self._ends.find(after)
        return after[at:] if at >= 0 else ""

    def _generation_prompt(self) -> str:
        """What a prompt has and a conversation that waits for nothing has not."""
        asked = [Message("user", "proof-start")]
        prompted, bare = self.chat(asked), self.chat(asked, prompt=False)
        common = 0
        while common < min(len(bare), len(prompted)) and bare[common] == prompted[common]:
            common += 1
        return prompted[common:]
