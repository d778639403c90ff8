"""How a family writes replies: which call grammar, what white space around calls, how reasoning."""

from __future__ import annotations

from dataclasses import dataclass

from harbor_env.errors import RenderingError
from harbor_env.gateway.rendering.chat_text import ChatText
from harbor_env.gateway.rendering.grammars import Grammar
from harbor_env.gateway.rendering.grammars.known import known_grammars
from harbor_env.gateway.rendering.grammars.reasoning import Thinking
from harbor_env.gateway.rendering.guard import clear
from harbor_env.gateway.rendering.probes import A1, A2, R1, R2, TOOL, U1, U2, call, result
from harbor_env.gateway.rendering.tokens import Tokens
from harbor_env.gateway.types import Message, ToolCall


def _grammar(chat: ChatText, tokens: Tokens) -> Grammar | None:
    """The grammar whose reading of a call the template printed gives the call back; None where no known one does."""
    if not chat.shape.tools:
        return known_grammars(tokens.marker)[0]
    text = chat([Message("user", U1), Message("assistant", tool_calls=(call(A1, "call00001"),))], (TOOL,), prompt=False)
    reply = text.partition(U1)[2]
    plain, marked = known_grammars(lambda text: text), known_grammars(tokens.marker)
    for reader, grammar in zip(plain, marked, strict=True):
        calls = reader.read(reply, (TOOL,)).calls
        if len(calls) == 1 and calls[0].name == TOOL.name and calls[0].arguments == call(A1, "").arguments:
            return grammar
    return None


@dataclass(frozen=True, slots=True)
class Spaces:
    """What a family writes before a turn's first call, without content and with it, and between calls."""

    lead: str = ""
    gap: str = "\n"
    joint: str = "\n"


def _spaces(chat: ChatText, grammar: Grammar, thinking: Thinking) -> Spaces:
    """The white space around calls, where the template prints calls as the grammar writes them."""
    opener = clear(grammar.opener)
    calls = (call(A1, "call00001"), call(A2, "call00002"))
    results = [result(R1, one.id) for one in calls]
    asked = Message("user", U1)
    prompt = chat([asked])
    try:
        bare = chat([asked, Message("assistant", tool_calls=calls[:1]), results[0]])
        said = chat([asked, Message("assistant", R2, tool_calls=calls[:1]), results[0]])
    except RenderingError:
        return Spaces()
    lead = (
        bare.removeprefix(prompt).removeprefix(thinking.empty).partition(opener)[0] if bare.startswith(prompt) else ""
    )
    gap = said.partition(R2)[2].partition(opener)[0]
    if lead.strip() or gap.strip():
        return Spaces()
    return Spaces(lead, gap, _joint(chat, grammar, calls, results))


def _joint(chat: ChatText, grammar: Grammar, calls: tuple[ToolCall, ...], results: list[Message]) -> str:
    if not chat.shape.parallel:
        return "\n"
    text = chat([Message("user", U1), Message("assistant", tool_calls=calls), *results])
    one = grammar.write(calls[:1], (TOOL,), "")
    return text.partition(one)[2].partition(clear(grammar.opener))[0] if one in text else "\n"


def _thinking(chat: ChatText, tokens: Tokens) -> Thinking:
    """How the template prints a reply's reasoning, and the lack of it; the usual tags where it prints none."""
    opener, closer = tokens.marker("<think>"), tokens.marker("</think>")
    usual = Thinking(opener=opener, closer=closer)
    asked = Message("user", U1)
    try:
        prompt = chat([asked])
        text = chat([asked, Message("assistant", A1, reasoning=A2)], prompt=False)
        without = chat([asked, Message("assistant", A1), Message("user", U2)], prompt=False)
    except RenderingError:
        return usual
    head, found, rest = text.partition(A2)
    between, told, _ = rest.partition(A1)
    if not (found and told) or "<think>" not in head or "</think>" not in between:
        return usual
    start = len(prompt) if head.startswith(prompt) and "<think>" in head[len(prompt) :] else head.rfind("<think>")
    empty = without.partition(A1)[0].removeprefix(prompt) if without.startswith(prompt) else ""
    return Thinking(head[start:], between, empty, opener, closer)


@dataclass(frozen=True, slots=True)
class Spelling:
    """`grammar` is None where only the `renderers` library knows how calls are written."""

    grammar: Grammar | None
    spaces: Spaces
    thinking: Thinking


def measure_spelling(chat: ChatText, tokens: Tokens) -> Spelling:
    grammar, thinking = _grammar(chat, tokens), _thinking(chat, tokens)
    return Spelling(grammar, _spaces(chat, grammar, thinking) if grammar else Spaces(), thinking)
