"""Turns for tests: one at a time, and hypothesis strategies for whole sessions with branches."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

from harbor_env.gateway.types import Finding, Message, ToolCall, Turn

ROLES = ("main", "subagent", "compaction", "auxiliary")
GO = (Message("user", "go"),)
DONE = Message("assistant", "done")


def make_turn(
    turn_id: str,
    parent: str | None = None,
    delta_ids: Sequence[int] = (1, 2),
    sampled: Sequence[int] = (3, 4),
    logprobs: Sequence[float] | None = None,
    *,
    trainable: bool = True,
    role: Any = "main",
    delta: tuple[Message, ...] = GO,
    reply: Message = DONE,
    context: str = "c0",
    findings: tuple[Finding, ...] = (),
    facts: Mapping[str, Any] | None = None,
) -> Turn:
    """A turn; log probabilities default to -0.5, -0.75, -1.0, ..."""
    values = [-0.5 - 0.25 * index for index in range(len(sampled))] if logprobs is None else logprobs
    return Turn(
        id=turn_id,
        parent=parent,
        delta=delta,
        delta_ids=array("i", delta_ids),
        sampled=array("i", sampled),
        logprobs=array("d", values),
        finish="stop",
        reply=reply,
        context=context,
        prompt_length=len(delta_ids),
        trainable=trainable,
        role=role,
        facts=facts if facts is not None else {"dialect": "chat", "model": "policy"},
        findings=findings,
    )


def long_session(turns: int = 200, first: int = 20_000, growth: int = 80, reply: int = 120) -> list[Turn]:
    """One chain as a coding agent makes it; the defaults end at 60,000 tokens."""
    found: list[Turn] = []
    for index in range(turns):
        size = first if index == 0 else growth
        start = index * 997
        call = ToolCall(f"call_{index:024}", "bash", f'{{"command": "echo step {index}"}}')
        found.append(
            make_turn(
                f"turn-{index:032}",
                found[-1].id if found else None,
                [(start + offset) * 7919 % 150_000 for offset in range(size)],
                [(start + offset) * 104_729 % 150_000 for offset in range(reply)],
                [math.log((1 + (start + offset) % 89) / 97) for offset in range(reply)],
                delta=(Message("tool" if index else "user", "four characters a token " * (size // 6)),),
                reply=Message("assistant", "I will look at the file first. " * 10, tool_calls=(call,)),
            )
        )
    return found


@st.composite
def sessions(draw: st.DrawFn, *, distinct_ids: bool = False) -> list[Turn]:
    """Turns in commit order: any forest, interleaved as parallel conversations are.

    With `distinct_ids` no id occurs twice and every turn samples something, so that no two paths look alike.
    """
    found: list[Turn] = []
    fresh = 0
    for index in range(draw(st.integers(0, 12))):
        parent = draw(st.sampled_from([None, *(turn.id for turn in found)]))
        lengths = draw(st.tuples(st.integers(1, 3), st.integers(1 if distinct_ids else 0, 4)))
        trainable = draw(st.booleans())
        values = st.floats(-20, 0) if trainable else st.sampled_from([math.nan, -math.inf, 0.5, -1.0])
        ids = [
            range(fresh, fresh + length)
            if distinct_ids
            else draw(st.lists(st.integers(0, 3), min_size=length, max_size=length))
            for length, fresh in ((lengths[0], fresh), (lengths[1], fresh + lengths[0]))
        ]
        fresh += sum(lengths)
        found.append(
            make_turn(
                f"t{index}",
                parent,
                *ids,
                draw(st.lists(values, min_size=lengths[1], max_size=lengths[1])),
                trainable=trainable,
                role=draw(st.sampled_from(ROLES)),
            )
        )
    return found
