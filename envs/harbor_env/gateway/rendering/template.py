"""Rendering for any chat template: deltas are rendered after a stub and cut there, so history is never touched.

Invariants: a delta is a function of the new messages alone, never of the prompt or of the sampled ids beyond their last
one; a reply gets exactly one end, its own if it was sampled.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from harbor_env.errors import RenderingError
from harbor_env.gateway.rendering import Delta, Parsed
from harbor_env.gateway.rendering.chat_text import ChatText
from harbor_env.gateway.rendering.grammars import Grammar, Reading
from harbor_env.gateway.rendering.grammars.reasoning import Thinking
from harbor_env.gateway.rendering.guard import clear
from harbor_env.gateway.rendering.jinja import Template
from harbor_env.gateway.rendering.measure import Ends, choose_grammar, measure_ends, measure_shape, measure_thinking
from harbor_env.gateway.rendering.proof import Proof, prove
from harbor_env.gateway.rendering.shape import Shape
from harbor_env.gateway.rendering.tokens import Tokens
from harbor_env.gateway.types import Finding, Ids, Message, Tool

_TAIL = 64
"""How many of the prompt's last ids are looked at for opened reasoning: more than any generation prompt has."""


@dataclass(frozen=True, slots=True)
class Family:
    """All that was measured of one template."""

    chat: ChatText
    ends: Ends
    grammar: Grammar | None
    thinking: Thinking
    proof: Proof


class TemplateRenderer:
    """A `Renderer` for one tokenizer and Jinja chat template."""

    def __init__(self, tokens: Tokens, template: Template, variables: Mapping[str, Any], eos: Sequence[str]) -> None:
        self.name = "template"
        self._tokens = tokens
        self._template = template
        self._variables = dict(variables)
        self._eos = tuple(eos)
        self._bound: dict[str, TemplateRenderer] = {}
        self._family = study(tokens, template, self._variables, self._eos)
        self.tito: Literal["exact", "roots only"] = "exact" if self._family.proof.exact else "roots only"
        self.proof = self._family.proof.told
        self.stop_ids = self._ids_of(self._family.ends.stops)
        self.opening_stop_ids = self._ids_of(self._family.ends.opening)

    def render(self, messages: Sequence[Message], tools: Sequence[Tool]) -> list[int]:
        return self._tokens.encode(self._family.chat(messages, tools))

    def notes(self, messages: Sequence[Message], tools: Sequence[Tool]) -> tuple[Finding, ...]:
        return self._family.chat.with_findings(messages, tools)[1]

    def bridge(
        self, prompt_ids: Ids, sampled_ids: Ids, new_messages: Sequence[Message], tools: Sequence[Tool]
    ) -> Delta | None:
        if not self._family.proof.covers(new_messages):
            return None
        shown = tools if self._family.proof.needs_tools else [tool for tool in tools if tool.kind == "custom"]
        try:
            after, findings = self._family.chat.after_stub(new_messages, shown)
        except RenderingError:
            return None
        stop, rest = self._cut(after)
        follows = self._tokens.encode(stop + rest)
        ended = bool(sampled_ids) and sampled_ids[-1] in self.stop_ids
        if not ended:
            return Delta([*self._close_reasoning(prompt_ids, sampled_ids), *follows], findings)
        if stop not in self._family.ends.opening or sampled_ids[-1] == follows[0]:
            return Delta(follows[1:], findings)
        if sampled_ids[-1] in self.opening_stop_ids:
            findings = (*findings, Finding("stopped_for_another_role", f"the delta starts with its own {stop}"))
        return Delta(follows, findings)

    def parse(self, ids: Ids, prompt_ids: Ids, tools: Sequence[Tool]) -> Parsed:
        text = self._tokens.decode_marked(self._without_stop(ids))
        opener = self._family.grammar.opener if self._family.grammar else ""
        reasoning, rest = self._family.thinking.split(text, opener, opened=self._opened(prompt_ids))
        reading = self._family.grammar.read(rest, tools) if self._family.grammar else Reading(clear(rest))
        message = Message("assistant", reading.content, reasoning=reasoning, tool_calls=tuple(reading.calls))
        return Parsed(message, tuple(reading.findings))

    def compose(self, message: Message, tools: Sequence[Tool]) -> list[int]:
        if message.tool_calls and self._family.grammar is None:
            raise RenderingError(f"{self.name}: no call grammar is known for this chat template")
        tail = self._tokens.decode_marked(self._tokens.encode(self._family.chat([Message("user", "u")]))[-_TAIL:])
        reasoning = self._family.thinking.write(message.reasoning, tail)
        guard = self._tokens.guard
        written = guard(message.content)
        if message.tool_calls and self._family.grammar:
            calls = self._family.grammar.write(message.tool_calls, tools)
            written = f"{written}{self._family.grammar.gap}{calls}" if written else calls
        return self._tokens.encode(reasoning + written + self._family.ends.closing)

    def decode(self, ids: Ids) -> str:
        return self._tokens.decode(ids)

    def encode(self, text: str) -> list[int]:
        return self._tokens.encode(self._tokens.guard(text))

    def bind(self, template_kwargs: Mapping[str, Any]) -> TemplateRenderer:
        variables = {**self._variables, **template_kwargs}
        key = json.dumps(variables, sort_keys=True, default=str)
        if key not in self._bound:
            self._bound[key] = TemplateRenderer(self._tokens, self._template, variables, self._eos)
        return self._bound[key]

    def _ids_of(self, texts: Sequence[str]) -> tuple[int, ...]:
        found = (self._tokens.id_of(text) for text in texts)
        return tuple(token for token in found if token is not None)

    def _cut(self, after: str) -> tuple[str, str]:
        """The stop token that ends the stub, and what follows it."""
        places = [(at, stop) for stop in self._family.ends.stops if (at := after.find(stop)) >= 0]
        if not places:
            raise RenderingError("the chat template ends a turn with no stop token")
        at, stop = min(places)
        return stop, after[at + len(stop) :]

    def _without_stop(self, ids: Ids) -> Ids:
        end = len(ids)
        while end and ids[end - 1] in self.stop_ids:
            end -= 1
        return ids[:end]

    def _opened(self, prompt_ids: Ids) -> bool:
        return self._family.thinking.opened_by(self._tokens.decode_marked(prompt_ids[-_TAIL:]))

    def _close_reasoning(self, prompt_ids: Ids, sampled_ids: Ids) -> list[int]:
        """What ends reasoning that a length cut left open."""
        text = self._tokens.decode_marked(sampled_ids)
        opener = self._family.grammar.opener if self._family.grammar else ""
        if not self._family.thinking.is_open(text, opener, opened=self._opened(prompt_ids)):
            return []
        return self._tokens.encode(self._family.thinking.after)


def study(tokens: Tokens, template: Template, variables: Mapping[str, Any], eos: tuple[str, ...]) -> Family:
    """Measure a template and prove its deltas."""
    chat = ChatText(template, tokens.guard, variables, Shape())
    chat = replace(chat, shape=measure_shape(chat))
    ends = measure_ends(chat, tokens, eos)
    thinking = measure_thinking(chat, tokens)
    return Family(chat, ends, choose_grammar(chat, tokens), thinking, prove(chat, ends))
