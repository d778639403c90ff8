"""What a chat template takes as it is, found by rendering probes.

Invariant: nothing is believed of a template that a probe did not show.
"""

from __future__ import annotations

from harbor_env.errors import RenderingError
from harbor_env.gateway.rendering.chat_text import ChatText
from harbor_env.gateway.rendering.probes import A1, A2, R1, R2, S1, S2, TOOL, U1, U2, call, result
from harbor_env.gateway.types import Message


def measure_shape(chat: ChatText) -> ChatText:
    """The same with the template's shape. Raises `RenderingError` where it takes not even a plain conversation."""
    plain = [Message("user", U1), Message("assistant", A1), Message("user", U2)]
    if not chat.accepts(plain, (), (U1, A1, U2)):
        chat = chat.with_shape(parts=True)
        if not chat.accepts(plain, (), (U1, A1, U2)):
            raise RenderingError("the chat template does not print a plain conversation")
    chat = chat.with_shape(alternate=not _takes_two_users(chat))
    chat = _measure_systems(chat)
    return _measure_tools(chat)


def _takes_two_users(chat: ChatText) -> bool:
    return chat.accepts([Message("user", U1), Message("user", U2)], (), (U1, U2))


def _measure_systems(chat: ChatText) -> ChatText:
    first = [Message("system", S1), Message("user", U1)]
    middle = [*first, Message("assistant", A1), Message("system", S2), Message("user", U2)]
    if not chat.accepts(first, (), (S1, U1)):
        return chat.with_shape(system="none")
    if not chat.with_shape(alternate=False).accepts(middle, (), (S1, U1, A1, S2, U2)):
        chat = chat.with_shape(system="first")
    two = [Message("system", S1), Message("system", S2), Message("user", U1)]
    if chat.shape.system == "first" or not chat.accepts(two, (), (S1, S2, U1)):
        chat = chat.with_shape(several_systems=False)
    return chat


def _measure_tools(chat: ChatText) -> ChatText:
    for text_arguments in (False, True):
        trial = chat.with_shape(tools=True, text_arguments=text_arguments, alternate=False)
        one = [Message("user", U1), Message("assistant", tool_calls=(call(A1, "call00001"),))]
        results = [result(R1, "call00001")]
        if not trial.accepts([*one, *results], (), (U1, A1, R1)) or not _describes(trial):
            continue
        calls = (call(A1, "call00001"), call(A2, "call00002"))
        results.append(result(R2, "call00002"))
        both = [Message("user", U1), Message("assistant", tool_calls=calls), *results]
        parallel = trial.accepts(both, (), (U1, A1, A2, R1, R2))
        chat = chat.with_shape(text_arguments=text_arguments, parallel=parallel)
        said, thought = (Message("assistant", A2, reasoning=why, tool_calls=calls[:1]) for why in ("", "why"))
        return chat.with_shape(
            text_beside_calls=chat.accepts([Message("user", U1), said], (), (A2, A1)),
            reasoning_beside_text=chat.accepts([Message("user", U1), thought], (), (A2, A1)),
        )
    return chat.with_shape(tools=False)


def _describes(chat: ChatText) -> bool:
    try:
        text = chat([Message("user", U1)], [TOOL])
    except RenderingError:
        return False
    return TOOL.name in text and TOOL.description in text
