"""What every renderer shares: when a turn gets an end, how a reply is read, and how one is written.

Invariants: a delta is a function of the new messages alone, and of the sampled ids no more than whether they ended; a
reply gets exactly one end, its own if it was sampled.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from harbor_env.errors import RenderingError
from harbor_env.gateway.rendering import Delta, Parsed, Renderer
from harbor_env.gateway.rendering.chat_text import ChatText
from harbor_env.gateway.rendering.conversation import outside
from harbor_env.gateway.rendering.ends import Ends
from harbor_env.gateway.rendering.grammars import Reading
from harbor_env.gateway.rendering.guard import clear
from harbor_env.gateway.rendering.proof import Proof
from harbor_env.gateway.rendering.shape import Shape
from harbor_env.gateway.rendering.spelling import Spelling
from harbor_env.gateway.rendering.tokens import Tokens
from harbor_env.gateway.types import Finding, Ids, Message, Tool

TAIL = 64
"""How many of the prompt's last ids are looked at for opened reasoning: more than any generation prompt has."""

_BOUND = 16
"""How many bound renderers are kept: sessions share few settings, and each costs a proof to make again."""


@dataclass(frozen=True, slots=True)
class Family:
    """All that was measured of one tokenizer and template."""

    tokens: Tokens
    chat: ChatText
    ends: Ends
    spelling: Spelling
    proof: Proof


class FamilyRenderer:
    """A `Renderer` but for `_after` and `_with`. `variables` are the template's."""

    def __init__(self, name: str, family: Family, variables: Mapping[str, Any]) -> None:
        self.name = name
        self._family = family
        self._tokens = family.tokens
        self._spelling = family.spelling
        self._variables = dict(variables)
        self._bound: dict[str, Renderer] = {}
        self._opener = family.spelling.grammar.opener if family.spelling.grammar else ""
        self.tito: Literal["exact", "roots only"] = "exact" if family.proof.exact else "roots only"
        self.proof = family.proof.told
        self.stop_ids = self._tokens.ids_of(family.ends.stops)
        self.opening_stop_ids = self._tokens.ids_of(family.ends.opening)

    def render(self, messages: Sequence[Message], tools: Sequence[Tool]) -> list[int]:
        return self._tokens.encode(self._family.chat(messages, tools))

    def notes(self, messages: Sequence[Message], tools: Sequence[Tool]) -> tuple[Finding, ...]:
        return self._family.chat.findings(messages, tools)

    def bridge(
        self, prompt_ids: Ids, sampled_ids: Ids, new_messages: Sequence[Message], tools: Sequence[Tool]
    ) -> Delta | None:
        if not self._family.proof.covers(new_messages):
            return None
        try:
            follows, findings = self._after(new_messages, tools)
        except RenderingError:
            return None
        last = sampled_ids[-1] if len(sampled_ids) else None
        if last not in self.stop_ids:
            return Delta([*self._close_reasoning(prompt_ids, sampled_ids), *follows], findings)
        if follows[0] not in self.opening_stop_ids:
            return Delta(follows[1:], findings)
        if last == follows[0]:
            return Delta(follows[1:], findings)
        if last in self.opening_stop_ids:
            findings = (*findings, Finding("stopped_for_another_role", "the next message opens with another token"))
        return Delta(follows, findings)

    def parse(self, ids: Ids, prompt_ids: Ids, tools: Sequence[Tool]) -> Parsed:
        text = self._tokens.decode_marked(self._without_stop(ids))
        reasoning, rest = self._spelling.thinking.split(text, self._opener, opened=self._opened(prompt_ids))
        reading = self._spelling.grammar.read(rest, tools) if self._spelling.grammar else Reading(clear(rest))
        message = Message("assistant", reading.content, reasoning=reasoning, tool_calls=tuple(reading.calls))
        return Parsed(message, tuple(reading.findings))

    def compose(self, message: Message, tools: Sequence[Tool]) -> list[int]:
        if message.tool_calls and self._spelling.grammar is None:
            raise RenderingError(f"{self.name}: no call grammar is known for this chat template")
        message = outside(message, self._tokens.guard)
        reasoning = self._spelling.thinking.write(message.reasoning, self._prompt_tail)
        written = message.content
        if message.tool_calls and self._spelling.grammar:
            spaces = self._spelling.spaces
            calls = self._spelling.grammar.write(message.tool_calls, tools, spaces.joint)
            written += (spaces.gap if written else spaces.lead) + calls
        return self._tokens.encode(reasoning + written + self._closing(message))

    def _closing(self, message: Message) -> str:
        """A reply's end: the family's own, or the token that opens what such a reply waits for."""
        opening = self._family.ends.opening
        return opening[-1 if message.tool_calls else 0] if opening else self._family.ends.closing

    def decode(self, ids: Ids) -> str:
        return self._tokens.decode(ids)

    def encode(self, text: str) -> list[int]:
        return self._tokens.encode(self._tokens.guard(text))

    def structure(self, ids: Ids) -> Counter[int]:
        """How often each structural token occurs."""
        return Counter(token for token in ids if token in self._tokens.structural)

    @property
    def shape(self) -> Shape:
        """What the chat template takes as it is."""
        return self._family.chat.shape

    @property
    def grammar(self) -> str:
        """The name of the call grammar."""
        return self._spelling.grammar.name if self._spelling.grammar else "the renderers library's"

    @property
    def structural_texts(self) -> frozenset[str]:
        """The texts that no message can turn into structure."""
        return frozenset(self._tokens.texts.values())

    @property
    def thinking_prefilled(self) -> bool:
        """Whether a generation prompt opens reasoning."""
        return self._spelling.thinking.opened_by(self._prompt_tail)

    def bind(self, template_kwargs: Mapping[str, Any]) -> Renderer:
        variables = {**self._variables, **template_kwargs}
        key = json.dumps(variables, sort_keys=True, default=str)
        if key not in self._bound:
            if len(self._bound) >= _BOUND:
                del self._bound[next(iter(self._bound))]
            self._bound[key] = self._with(variables)
        return self._bound[key]

    def _after(self, new: Sequence[Message], tools: Sequence[Tool]) -> tuple[list[int], tuple[Finding, ...]]:
        """Ids from the stop token that ends a turn up to the next generation prompt."""
        raise NotImplementedError

    def _with(self, variables: Mapping[str, Any]) -> Renderer:
        raise NotImplementedError

    def _without_stop(self, ids: Ids) -> Ids:
        end = len(ids)
        while end and ids[end - 1] in self.stop_ids:
            end -= 1
        return ids[:end]

    def _opened(self, prompt_ids: Ids) -> bool:
        return self._spelling.thinking.opened_by(self._tokens.decode_marked(prompt_ids[-TAIL:]))

    @cached_property
    def _prompt_tail(self) -> str:
        return self._tokens.decode_marked(self.render([Message("user", "u")], ())[-TAIL:])

    def _close_reasoning(self, prompt_ids: Ids, sampled_ids: Ids) -> list[int]:
        """What ends reasoning that a length cut left open."""
        text = self._tokens.decode_marked(sampled_ids)
        if not self._spelling.thinking.is_open(text, self._opener, opened=self._opened(prompt_ids)):
            return []
        return self._tokens.encode(self._spelling.thinking.after)
