"""Play conversations through a session the way a gateway does, with a fake renderer and made-up log probabilities."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from harbor_env.gateway.options import SessionOptions
from harbor_env.gateway.session import Plan, Recorded, Session, new_session
from harbor_env.gateway.types import Call, Generation, Message, Reply, Tool, ToolCall
from tests.fake_renderer import END, FakeRenderer

BASH = Tool("bash", "Run a command.", {"type": "object", "properties": {"command": {"type": "string"}}})


def user(text: str) -> Message:
    return Message("user", text)


def system(text: str) -> Message:
    return Message("system", text)


def said(text: str = "", *calls: ToolCall, reasoning: str = "") -> Message:
    return Message("assistant", text, reasoning, calls)


def bash(command: str, call_id: str = "") -> ToolCall:
    return ToolCall(call_id, "bash", f'{{"command": "{command}"}}')


def result(call: ToolCall, text: str) -> Message:
    return Message("tool", text, tool_call_id=call.id)


def logprobs(ids: Sequence[int]) -> list[float]:
    return [-((token % 97) + 1) / 64 for token in ids]


@dataclass(slots=True)
class Player:
    """Sends histories, samples what the test says, and records; `history` helpers are left to the test.

    `sent` and `sampled` are the ids that went to the engine and came back, by turn, as an engine would have seen them;
    `shown` are the replies as the harness would have seen them.
    """

    session: Session
    renderer: FakeRenderer = field(default_factory=FakeRenderer)
    tools: tuple[Tool, ...] = (BASH,)
    sent: dict[str, list[int]] = field(default_factory=dict)
    sampled: dict[str, list[int]] = field(default_factory=dict)
    shown: dict[str, Reply] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def plan(self, *history: Message, tools: tuple[Tool, ...] | None = None, **call: Any) -> Plan:
        planned = self.session.plan(Call(history, self.tools if tools is None else tools, **call))
        assert isinstance(planned, Plan)
        return planned

    def finish(self, planned: Plan, reply: Message, *, cut: int | None = None) -> Recorded:
        """Sample `reply` (its first `cut` tokens, stopped by length) for a planned turn, and record it."""
        ids = self.renderer.compose(reply, planned.call.tools)
        finish = "stop"
        if cut is not None:
            ids, finish = ids[:cut], "length"
        generation = Generation(ids, logprobs(ids), finish)  # type: ignore[arg-type]
        recorded = self.session.record(
            planned,
            generation,
            turn_id=f"t{next(self._numbers)}",
            mint=lambda: f"call_{next(self._numbers)}",
            created=0,
        )
        self.session.add(recorded.turn)
        turn = recorded.turn.id
        self.sent[turn], self.sampled[turn], self.shown[turn] = list(planned.prompt_ids), ids, recorded.reply
        return recorded

    def ask(self, *history: Message, reply: Message, cut: int | None = None, **call: Any) -> Message:
        """One whole call; returns the reply as the harness is shown it."""
        return self.finish(self.plan(*history, **call), reply, cut=cut).reply.message

    def check_prompts(self) -> None:
        """Every turn's prompt is its parent's prompt, what the parent sampled, and its own delta."""
        for turn in self.session.tree.turns():
            before = self.session.tree.ids(self.session.tree.get(turn.parent) if turn.parent else None)
            assert turn.prompt_length == len(before) + len(turn.delta_ids)


def player(options: SessionOptions | None = None, *, window: int = 100_000, refuses_deltas: bool = False) -> Player:
    renderer = FakeRenderer(refuses_deltas=refuses_deltas)
    session = new_session("s", options or SessionOptions(), level="tokens", window=window, renderer=renderer)
    return Player(session, renderer)


__all__ = ["BASH", "END", "Player", "bash", "logprobs", "player", "result", "said", "system", "user"]
