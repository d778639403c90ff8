"""A fake at the tokenizer's boundary: one id per character, small ids for structure, so that tests read well."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from harbor_env.errors import UsageError
from harbor_env.gateway.rendering import Delta, Parsed
from harbor_env.gateway.types import Finding, Ids, Message, Tool, ToolCall

ROLES = {"system": 1, "user": 2, "assistant": 3, "tool": 4}
END, CALL, ARGUMENTS, CALL_END, THINK, THINK_END = 5, 6, 7, 8, 9, 10
TEXT = 1000


class FakeRenderer:
    """Append-only, exact, and stateless; `template_kwargs` are kept to show that `bind` was used."""

    name = "fake"
    tito: Literal["exact", "roots only"] = "exact"
    proof = "by construction"
    stop_ids = (END,)
    opening_stop_ids: tuple[int, ...] = ()

    def __init__(self, template_kwargs: Mapping[str, Any] | None = None, *, refuses_deltas: bool = False) -> None:
        self.template_kwargs = dict(template_kwargs or {})
        self.refuses_deltas = refuses_deltas

    def render(self, messages: Sequence[Message], tools: Sequence[Tool]) -> list[int]:
        head = [ROLES["system"], *self.encode(",".join(tool.name for tool in tools)), END] if tools else []
        return [*head, *self._messages(messages), ROLES["assistant"]]

    def notes(self, messages: Sequence[Message], tools: Sequence[Tool]) -> tuple[Finding, ...]:
        """A second opening system message is the one thing this renderer would reshape."""
        opening = [message.role for message in messages[:2]]
        return (Finding("systems_joined"),) if opening == ["system", "system"] else ()

    def bridge(
        self, prompt_ids: Ids, sampled_ids: Ids, new_messages: Sequence[Message], tools: Sequence[Tool]
    ) -> Delta | None:
        if self.refuses_deltas:
            return None
        close = [] if sampled_ids and sampled_ids[-1] == END else [END]
        return Delta([*close, *self._messages(new_messages), ROLES["assistant"]])

    def parse(self, ids: Ids, prompt_ids: Ids, tools: Sequence[Tool]) -> Parsed:
        text: list[int] = []
        reasoning: list[int] = []
        calls: list[list[int]] = []
        target = text
        for token in ids:
            if token == THINK:
                target = reasoning
            elif token == THINK_END:
                target = text
            elif token == CALL:
                calls.append([])
                target = calls[-1]
            elif token == CALL_END:
                target = text
            elif token != END:
                target.append(token)
        made = tuple(self._call(call) for call in calls)
        return Parsed(Message("assistant", self.decode(text), self.decode(reasoning), made))

    def compose(self, message: Message, tools: Sequence[Tool]) -> list[int]:
        return [*self._body(message), END]

    def decode(self, ids: Ids) -> str:
        return "".join(chr(token - TEXT) for token in ids if token >= TEXT)

    def encode(self, text: str) -> list[int]:
        return [TEXT + ord(character) for character in text]

    def bind(self, template_kwargs: Mapping[str, Any]) -> FakeRenderer:
        if "unknown" in template_kwargs:
            raise UsageError("There is no template variable 'unknown'.")
        return FakeRenderer(template_kwargs, refuses_deltas=self.refuses_deltas)

    def _messages(self, messages: Sequence[Message]) -> list[int]:
        return [token for message in messages for token in (ROLES[message.role], *self._body(message), END)]

    def _body(self, message: Message) -> list[int]:
        ids = [THINK, *self.encode(message.reasoning), THINK_END] if message.reasoning else []
        ids += self.encode(message.content)
        for call in message.tool_calls:
            ids += [CALL, *self.encode(call.name), ARGUMENTS, *self.encode(call.arguments), CALL_END]
        return ids

    def _call(self, ids: list[int]) -> ToolCall:
        at = ids.index(ARGUMENTS) if ARGUMENTS in ids else len(ids)
        return ToolCall("", self.decode(ids[:at]), self.decode(ids[at + 1 :]))
