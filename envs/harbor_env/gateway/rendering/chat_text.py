"""A conversation as the text a chat template makes of it, reshaped to what the template takes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from harbor_env.errors import RenderingError
from harbor_env.gateway.rendering.conversation import (
    argument_findings,
    custom_names,
    message_dict,
    outside,
    tool_dict,
)
from harbor_env.gateway.rendering.guard import Guard
from harbor_env.gateway.rendering.shape import Shape, fit
from harbor_env.gateway.types import Finding, Message, Tool, ToolCall

STUB = "stub-of-a-turn"
"""Stands where the sampled reply is; the text after it is what a delta adds."""


@dataclass(frozen=True)
class ChatText:
    """A template with everything that decides its text. Pure."""

    template: Callable[..., str]
    guard: Guard
    variables: Mapping[str, Any]
    shape: Shape = field(default_factory=Shape)

    def __call__(self, messages: Sequence[Message], tools: Sequence[Tool] = (), *, prompt: bool = True) -> str:
        entries, described = self.entries(messages, tools)
        return self.template(entries, described, self.variables, prompt=prompt)

    def entries(
        self, messages: Sequence[Message], tools: Sequence[Tool], *, start: bool = True
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Messages and tools as the template reads them. `start` False: they go on where others ended."""
        custom = custom_names(tools)
        described = [tool_dict(tool, self.guard) for tool in tools]
        fitted = fit([outside(message, self.guard) for message in messages], described, custom, self.shape, start=start)
        text = self.shape.text_arguments
        entries = [message_dict(message, custom, text_arguments=text) for message in fitted.messages]
        if self.shape.parts:
            entries = [{**entry, "content": [{"type": "text", "text": entry["content"]}]} for entry in entries]
        return entries, list(fitted.tools)

    def findings(
        self, messages: Sequence[Message], tools: Sequence[Tool], *, start: bool = True
    ) -> tuple[Finding, ...]:
        """What has to be reshaped in these messages."""
        custom = custom_names(tools)
        return (*fit(messages, (), custom, self.shape, start=start).findings, *argument_findings(messages, custom))

    def with_shape(self, **changes: Any) -> ChatText:
        return replace(self, shape=replace(self.shape, **changes))

    def accepts(self, messages: Sequence[Message], tools: Sequence[Tool], expected: Sequence[str]) -> bool:
        """Whether the template prints each expected text once, in this order."""
        try:
            text = self(messages, tools)
        except RenderingError:
            return False
        places = [text.find(piece) for piece in expected]
        return all(text.count(piece) == 1 for piece in expected) and places == sorted(places)

    def after_stub(self, new: Sequence[Message], tools: Sequence[Tool]) -> tuple[str, tuple[Finding, ...]]:
        """The text that follows a stub turn: its own end, the new messages, the prompt for the next turn.

        The stub holds a call for each tool result that comes first, no reasoning, and stands in a conversation as
        short as can be: the cost is that of the new messages.
        """
        _, found, after = self([*stub_history(new), *new], tools).partition(STUB)
        if not found:
            raise RenderingError("the chat template does not print an assistant's turn")
        return after, self.findings(new, tools, start=False)


def stub_history(new: Sequence[Message]) -> list[Message]:
    results = list(new[: _leading_results(new)])
    if not results:
        return [Message("user", "u"), Message("assistant", STUB)]
    ids = [result.tool_call_id or f"call{i:05d}" for i, result in enumerate(results)]
    last = len(results) - 1
    calls = [
        ToolCall(ids[i], result.name or "f", json.dumps({"a": STUB if i == last else "x"}))
        for i, result in enumerate(results)
    ]
    return [Message("user", "u"), Message("assistant", tool_calls=tuple(calls))]


def _leading_results(new: Sequence[Message]) -> int:
    return next((i for i, message in enumerate(new) if message.role != "tool"), len(new))
