"""How turns end: with a token of their own, or with the one that opens the next message."""

from __future__ import annotations

from dataclasses import dataclass

from harbor_env.gateway.rendering.chat_text import STUB, ChatText
from harbor_env.gateway.rendering.probes import R1, U1, U2, call, result
from harbor_env.gateway.rendering.tokens import Tokens
from harbor_env.gateway.types import Message


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


def measure_ends(chat: ChatText, tokens: Tokens, eos: tuple[str, ...]) -> Ends:
    """How a reply ends, from the text between a reply and what follows it.

    A token opens the next message instead where it stands before a user's text and never after it.
    """
    after, _ = chat.after_stub([Message("user", U1)], ())
    between = after.partition(U1)[0]
    if not (first := _first_token(between, tokens)):
        return Ends("", eos, ())
    at, token = first
    before_user, _, after_user = chat([Message("user", U1)], prompt=False).partition(U1)
    alone = chat([Message("user", U2), Message("assistant", STUB)], prompt=False).partition(STUB)[2]
    last = _first_token(alone, tokens)
    if token in before_user and token not in after_user and (not last or last[1] == token):
        return _opening_ends(chat, tokens, token, eos)
    return Ends(between[:at] + token, tuple(dict.fromkeys((token, *([last[1]] if last else []), *eos))), ())


def _opening_ends(chat: ChatText, tokens: Tokens, user: str, eos: tuple[str, ...]) -> Ends:
    """The tokens that open the next message: a user's, and a tool result's after a call."""
    opening = [user]
    if chat.shape.tools:
        called = Message("assistant", tool_calls=(call(STUB, "call00001"),))
        to_result = chat([Message("user", U2), called, result(R1, "call00001")]).partition(STUB)[2].partition(R1)[0]
        to_user = chat([Message("user", U2), called, Message("user", U1)]).partition(STUB)[2].partition(U1)[0]
        fresh = [(to_result.find(text), text) for text in tokens.texts.values() if text in to_result]
        opening += [min(found)[1]] if (found := [one for one in fresh if one[1] not in to_user]) else []
    kinds = tuple(dict.fromkeys(opening))
    return Ends("", tuple(dict.fromkeys((*kinds, *eos))), kinds)


def _first_token(text: str, tokens: Tokens) -> tuple[int, str] | None:
    """The structural token that comes first in a text, the longest where several start there, and its place."""
    places = [(at, -len(token), token) for token in tokens.texts.values() if (at := text.find(token)) >= 0]
    return (min(places)[0], min(places)[2]) if places else None
