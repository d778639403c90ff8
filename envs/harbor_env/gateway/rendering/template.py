"""The generic renderer: any Jinja chat template, its deltas rendered after a stub turn and cut there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harbor_env.errors import RenderingError
from harbor_env.gateway.rendering.chat_text import ChatText
from harbor_env.gateway.rendering.ends import measure_ends
from harbor_env.gateway.rendering.family_renderer import Family, FamilyRenderer
from harbor_env.gateway.rendering.jinja import Template
from harbor_env.gateway.rendering.measure import measure_shape
from harbor_env.gateway.rendering.proof import prove
from harbor_env.gateway.rendering.spelling import measure_spelling
from harbor_env.gateway.rendering.tokens import Tokens
from harbor_env.gateway.types import Finding, Message, Tool


class TemplateRenderer(FamilyRenderer):
    """A `Renderer` for one tokenizer and Jinja chat template; `eos` are the texts of the model's own end tokens."""

    def __init__(self, tokens: Tokens, template: Template, variables: Mapping[str, Any], eos: Sequence[str]) -> None:
        chat = measure_shape(ChatText(template, tokens.guard, variables))
        ends = measure_ends(chat, tokens, tuple(eos))
        spelling = measure_spelling(chat, tokens)
        if spelling.grammar is None:
            chat = chat.with_shape(tools=False)
            spelling = measure_spelling(chat, tokens)
        super().__init__("template", Family(tokens, chat, ends, spelling, prove(chat, ends)), variables)
        self._template = template
        self._eos = tuple(eos)

    def _after(self, new: Sequence[Message], tools: Sequence[Tool]) -> tuple[list[int], tuple[Finding, ...]]:
        shown = tools if self._family.proof.needs_tools else [tool for tool in tools if tool.kind == "custom"]
        after, findings = self._family.chat.after_stub(new, shown)
        end = self._family.ends.find(after)
        if end < 0:
            raise RenderingError("the chat template ends a turn with no stop token")
        return self._tokens.encode(after[end:]), findings

    def _with(self, variables: Mapping[str, Any]) -> TemplateRenderer:
        return TemplateRenderer(self._tokens, self._template, variables, self._eos)
