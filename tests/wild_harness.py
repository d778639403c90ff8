"""A harness that does to its history what real ones do: rewrites, drops, repeats, inserts, forks and gets cut off.

It knows which turn each of its conversations should continue, so that a test can compare.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import orjson
from hypothesis import strategies as st

from harbor_env.gateway.types import Message, ToolCall, Turn
from tests.play import Player, player, result, said, system, user

texts = st.text(min_size=0, max_size=12)
values = st.one_of(st.integers(-5, 20000), st.booleans(), texts, st.floats(allow_nan=False, allow_infinity=False))
arguments = st.dictionaries(st.sampled_from(["command", "path", "n"]), values, max_size=3)
calls = st.builds(lambda value: ToolCall("", "bash", orjson.dumps(value).decode()), arguments)
replies = st.builds(
    lambda text, made, reasoning: said(text, *made, reasoning=reasoning), texts, st.lists(calls, max_size=2), texts
)
rewrites = st.sampled_from(["as shown", "no reasoning", "respaced", "renamed", "emptied", "trimmed"])
steps = st.one_of(
    st.tuples(st.just("continue"), st.integers(0, 5), replies, rewrites, texts),
    st.tuples(st.just("retry"), st.integers(0, 5), replies, rewrites, texts),
    st.tuples(st.just("subagent"), st.integers(0, 5), replies, rewrites, texts),
    st.tuples(st.just("insert"), st.integers(0, 5), replies, rewrites, texts),
    st.tuples(st.just("cut"), st.integers(0, 5), replies, rewrites, texts),
    st.tuples(st.just("reword"), st.integers(0, 5), replies, rewrites, texts),
)
scripts = st.lists(steps, min_size=1, max_size=12)


def rewritten(message: Message, how: str) -> Message:
    """The reply as a harness sends it back; its meaning, or its minted call ids, survive."""
    if how == "no reasoning":
        return replace(message, reasoning="")
    if how == "trimmed":
        return replace(message, content=message.content.strip())
    if how == "respaced":
        return replace(message, tool_calls=tuple(map(_respaced, message.tool_calls)))
    if how == "renamed":
        return replace(
            message, tool_calls=tuple(replace(c, name="invalid", arguments="{}") for c in message.tool_calls)
        )
    if how == "emptied" and message.tool_calls:
        return replace(message, content="", reasoning="")
    return message


def _respaced(call: ToolCall) -> ToolCall:
    try:
        parsed = orjson.loads(call.arguments)
    except orjson.JSONDecodeError:  # cut off in the middle: harnesses send back what they were given
        return call
    return replace(call, arguments=orjson.dumps(parsed, option=orjson.OPT_INDENT_2).decode())


@dataclass(slots=True)
class Conversation:
    """What the harness would send next, and the turn it should continue (None: a new root)."""

    history: tuple[Message, ...]
    tip: Turn | None = None
    earlier: tuple[tuple[Message, ...], Turn | None] = ((), None)


def _reword(talk: Conversation) -> None:
    """Let the last reply say something else: what comes next continues the turn before it."""
    before, tip = talk.earlier
    reply, *after = talk.history[len(before) :]
    talk.history = (*before, replace(reply, content=f"{reply.content} or not"), *after)
    talk.tip = tip


@dataclass(slots=True)
class WildHarness:
    """Plays a script; `expected[i]` is the parent the i-th turn should have."""

    play: Player = field(default_factory=player)
    conversations: list[Conversation] = field(default_factory=list)
    expected: list[str | None] = field(default_factory=list)
    count: int = 0

    def run(self, script: list[tuple[str, int, Message, str, str]]) -> None:
        self._open("main")
        for kind, which, reply, rewrite, text in script:
            talk = self.conversations[which % len(self.conversations)]
            if kind == "subagent":
                talk = self._open(text)
            elif kind == "retry" and talk.tip is not None:
                talk.history, talk.tip = talk.earlier
            elif kind == "reword" and talk.tip is not None and not talk.tip.reply.tool_calls:
                _reword(talk)
            elif kind == "insert" and talk.tip is not None:
                talk.history = (*talk.history, said(f"inserted {self.count}"), user("go on"))
            self._ask(talk, reply, rewrite, text, cut=1 if kind == "cut" else None)

    def _open(self, text: str) -> Conversation:
        self.count += 1
        talk = Conversation((system(f"agent {self.count}"), user(text)))
        self.conversations.append(talk)
        return talk

    def _ask(self, talk: Conversation, reply: Message, rewrite: str, text: str, cut: int | None) -> None:
        self.count += 1
        recorded = self.play.finish(self.play.plan(*talk.history), reply, cut=cut)
        self.expected.append(talk.tip.id if talk.tip else None)
        shown = recorded.reply.message
        talk.earlier = (talk.history, talk.tip)
        talk.tip = recorded.turn
        results = [result(call, f"{text} {self.count}") for call in shown.tool_calls]
        said_next = results or [user(f"{text} {self.count}")]
        talk.history = (*talk.history, rewritten(shown, rewrite), *said_next)
