"""What a chat template can take and how it ends turns, found by rendering short probes.

Invariant: nothing is believed of a template that a probe did not show.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from harbor_env.errors import RenderingError
from harbor_env.gateway.rendering.chat_text import STUB, ChatText
from harbor_env.gateway.rendering.grammars import Grammar
from harbor_env.gateway.rendering.grammars.known import known_grammars
from harbor_env.gateway.rendering.grammars.reasoning import Thinking
from harbor_env.gateway.rendering.guard import clear
from harbor_env.gateway.rendering.tokens import Tokens
from harbor_env.gateway.types import Message, Tool, ToolCall

_S1, _S2, _U1, _U2 = "probe-system-one", "probe-system-two", "probe-user-one", "probe-user-two"
_A1, _A2, _R1, _R2 = "probe-reply-one", "probe-value-two", "probe-result-one", "probe-result-two"
TOOL = Tool("probe_tool", "probe-description", {"type": "object", "properties": {"a": {"type": "string"}}})


@dataclass(frozen=True, slots=True)
class Ends:
    """How turns end. `closing`: the text a template prints after a reply's text, up to its stop token.

    `stops`: texts of the tokens that end a turn; `opening`: those among them that open the next message instead.
    """

    closing: str
    stops: tuple[str, ...]
    opening: tuple[str, ...]

    def find(self, text: str) -> int:
        """Where the first stop token stands; -1 where none does."""
        return min((at for stop in self.stops if (at := text.find(stop)) >= 0), default=-1)


def call(value: str, identity: str) -> ToolCall:
    return ToolCall(identity, TOOL.name, json.dumps({"a": value}))


def measure_shape(chat: ChatText) -> ChatText:
    """The same with the template's shape. Raises `RenderingError` where it takes not even a plain conversation."""
    plain = [Message("user", _U1), Message("assistant", _A1), Message("user", _U2)]
    if not chat.accepts(plain, (), (_U1, _A1, _U2)):
        chat = chat.with_shape(parts=True)
        if not chat.accepts(plain, (), (_U1, _A1, _U2)):
            raise RenderingError("the chat template does not print a plain conversation")
    chat = chat.with_shape(alternate=not _takes_two_users(chat))
    chat = _measure_systems(chat)
    return _measure_tools(chat)


def _takes_two_users(chat: ChatText) -> bool:
    return chat.accepts([Message("user", _U1), Message("user", _U2)], (), (_U1, _U2))


def _measure_systems(chat: ChatText) -> ChatText:
    first = [Message("system", _S1), Message("user", _U1)]
    middle = [*first, Message("assistant", _A1), Message("system", _S2), Message("user", _U2)]
    if not chat.accepts(first, (), (_S1, _U1)):
        return chat.with_shape(system="none")
    if not chat.with_shape(alternate=False).accepts(middle, (), (_S1, _U1, _A1, _S2, _U2)):
        chat = chat.with_shape(system="first")
    two = [Message("system", _S1), Message("system", _S2), Message("user", _U1)]
    if chat.shape.system == "first" or not chat.accepts(two, (), (_S1, _S2, _U1)):
        chat = chat.with_shape(several_systems=False)
    return chat


def _measure_tools(chat: ChatText) -> ChatText:
    for text_arguments in (False, True):
        trial = chat.with_shape(tools=True, text_arguments=text_arguments, alternate=False)
        one = [Message("user", _U1), Message("assistant", tool_calls=(call(_A1, "call00001"),))]
        results = [Message("tool", _R1, tool_call_id="call00001", name=TOOL.name)]
        if not trial.accepts([*one, *results], (), (_U1, _A1, _R1)) or not _describes(trial):
            continue
        calls = (call(_A1, "call00001"), call(_A2, "call00002"))
        results.append(Message("tool", _R2, tool_call_id="call00002", name=TOOL.name))
        both = [Message("user", _U1), Message("assistant", tool_calls=calls), *results]
        parallel = trial.accepts(both, (), (_U1, _A1, _A2, _R1, _R2))
        chat = chat.with_shape(text_arguments=text_arguments, parallel=parallel)
        said, thought = (Message("assistant", _A2, reasoning=why, tool_calls=calls[:1]) for why in ("", "why"))
        return chat.with_shape(
            text_beside_calls=chat.accepts([Message("user", _U1), said], (), (_A2, _A1)),
            reasoning_beside_text=chat.accepts([Message("user", _U1), thought], (), (_A2, _A1)),
        )
    return chat.with_shape(tools=False)


def _describes(chat: ChatText) -> bool:
    try:
        text = chat([Message("user", _U1)], [TOOL])
    except RenderingError:
        return False
    return TOOL.name in text and TOOL.description in text


def measure_ends(chat: ChatText, tokens: Tokens, eos: tuple[str, ...]) -> Ends:
    """How a reply ends, from the text between a reply and what follows it.

    A token opens the next message instead where it stands before a user's text and never after it.
    """
    after, _ = chat.after_stub([Message("user", _U1)], ())
    between = after.partition(_U1)[0]
    if not (first := _first_token(between, tokens)):
        return Ends("", eos, ())
    at, token = first
    before_user, _, after_user = chat([Message("user", _U1)], prompt=False).partition(_U1)
    alone = chat([Message("user", _U2), Message("assistant", STUB)], prompt=False).partition(STUB)[2]
    last = _first_token(alone, tokens)
    if token in before_user and token not in after_user and (not last or last[1] == token):
        return _opening_ends(chat, tokens, token, eos)
    return Ends(between[:at] + token, tuple(dict.fromkeys((token, *([last[1]] if last else []), *eos))), ())


def _opening_ends(chat: ChatText, tokens: Tokens, user: str, eos: tuple[str, ...]) -> Ends:
    """The tokens that open the next message: a user's, and a tool result's after a call."""
    opening = [user]
    if chat.shape.tools:
        result = Message("tool", _R1, tool_call_id="call00001", name=TOOL.name)
        called = Message("assistant", tool_calls=(call(STUB, "call00001"),))
        to_result = chat([Message("user", _U2), called, result]).partition(STUB)[2].partition(_R1)[0]
        to_user = chat([Message("user", _U2), called, Message("user", _U1)]).partition(STUB)[2].partition(_U1)[0]
        fresh = [(to_result.find(text), text) for text in tokens.texts.values() if text in to_result]
        opening += [min(found)[1]] if (found := [one for one in fresh if one[1] not in to_user]) else []
    kinds = tuple(dict.fromkeys(opening))
    return Ends("", tuple(dict.fromkeys((*kinds, *eos))), kinds)


def _first_token(text: str, tokens: Tokens) -> tuple[int, str] | None:
    """The structural token that comes first in a text, the longest where several start there, and its place."""
    places = [(at, -len(token), token) for token in tokens.texts.values() if (at := text.find(token)) >= 0]
    return (min(places)[0], min(places)[2]) if places else None


def choose_grammar(chat: ChatText, tokens: Tokens) -> Grammar | None:
    """The grammar whose reading of a call the template printed gives the call back; None where no known one does."""
    if not chat.shape.tools:
        return known_grammars(tokens.marker)[0]
    text = chat(
        [Message("user", _U1), Message("assistant", tool_calls=(call(_A1, "call00001"),))], (TOOL,), prompt=False
    )
    reply = text.partition(_U1)[2]
    plain, marked = known_grammars(lambda text: text), known_grammars(tokens.marker)
    for reader, grammar in zip(plain, marked, strict=True):
        calls = reader.read(reply, (TOOL,)).calls
        if len(calls) == 1 and calls[0].name == TOOL.name and calls[0].arguments == call(_A1, "").arguments:
            return grammar
    return None


@dataclass(frozen=True, slots=True)
class Spaces:
    """What a family writes before a turn's first call, without content and with it, and between calls."""

    lead: str = ""
    gap: str = "\n"
    joint: str = "\n"


def measure_spaces(chat: ChatText, grammar: Grammar, thinking: Thinking) -> Spaces:
    """The white space around calls, where the template prints calls as the grammar writes them."""
    opener = clear(grammar.opener)
    calls = (call(_A1, "call00001"), call(_A2, "call00002"))
    results = [Message("tool", _R1, tool_call_id=one.id, name=TOOL.name) for one in calls]
    asked = Message("user", _U1)
    prompt = chat([asked])
    try:
        bare = chat([asked, Message("assistant", tool_calls=calls[:1]), results[0]])
        said = chat([asked, Message("assistant", _R2, tool_calls=calls[:1]), results[0]])
    except RenderingError:
        return Spaces()
    lead = (
        bare.removeprefix(prompt).removeprefix(thinking.empty).partition(opener)[0] if bare.startswith(prompt) else ""
    )
    gap = said.partition(_R2)[2].partition(opener)[0]
    if lead.strip() or gap.strip():
        return Spaces()
    return Spaces(lead, gap, _measure_joint(chat, grammar, calls, results))


def _measure_joint(chat: ChatText, grammar: Grammar, calls: tuple[ToolCall, ...], results: list[Message]) -> str:
    if not chat.shape.parallel:
        return "\n"
    text = chat([Message("user", _U1), Message("assistant", tool_calls=calls), *results])
    one = grammar.write(calls[:1], (TOOL,), "")
    return text.partition(one)[2].partition(clear(grammar.opener))[0] if one in text else "\n"


def measure_thinking(chat: ChatText, tokens: Tokens) -> Thinking:
    """How the template prints a reply's reasoning, and the lack of it; the usual tags where it prints none."""
    opener, closer = tokens.marker("<think>"), tokens.marker("</think>")
    usual = Thinking(opener=opener, closer=closer)
    asked = Message("user", _U1)
    try:
        prompt = chat([asked])
        text = chat([asked, Message("assistant", _A1, reasoning=_A2)], prompt=False)
        without = chat([asked, Message("assistant", _A1), Message("user", _U2)], prompt=False)
    except RenderingError:
        return usual
    head, found, rest = text.partition(_A2)
    between, told, _ = rest.partition(_A1)
    if not (found and told) or "<think>" not in head or "</think>" not in between:
        return usual
    start = len(prompt) if head.startswith(prompt) and "<think>" in head[len(prompt) :] else head.rfind("<think>")
    empty = without.partition(_A1)[0].removeprefix(prompt) if without.startswith(prompt) else ""
    return Thinking(head[start:], between, empty, opener, closer)
