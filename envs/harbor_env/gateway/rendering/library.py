"""Families the `renderers` library knows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from pydantic import ValidationError
from renderers import config_from_name, create_renderer, template_field_names

from harbor_env.errors import RenderingError, UsageError
from harbor_env.gateway.rendering import Parsed, Renderer
from harbor_env.gateway.rendering.deferred import DeferredTokens
from harbor_env.gateway.rendering.ends import measure_ends
from harbor_env.gateway.rendering.family_renderer import TAIL, Family, FamilyRenderer
from harbor_env.gateway.rendering.guard import Guard
from harbor_env.gateway.rendering.jinja import FIXED_DAY
from harbor_env.gateway.rendering.library_bridge import RAISED, LibraryText, Rendered, StubBridge
from harbor_env.gateway.rendering.library_reading import read_reply
from harbor_env.gateway.rendering.measure import measure_shape
from harbor_env.gateway.rendering.proof import prove
from harbor_env.gateway.rendering.spelling import measure_spelling
from harbor_env.gateway.rendering.tokens import Tokens
from harbor_env.gateway.types import Finding, Ids, Message, Tool

_OWN_ENCODER = frozenset({"gpt-oss"})
"""Families whose library renderer encodes text itself and takes no part of it for structure: nothing to guard."""


class LibraryRenderer(FamilyRenderer):
    """A `Renderer` over the library's renderer `family`. Raises `UsageError` for variables the family does not take,
    `RenderingError` for a tokenizer that is not the family's."""

    def __init__(self, tokens: Tokens, family: str, variables: Mapping[str, Any]) -> None:
        self._rendered = rendered_by(tokens, family, variables)
        library = self._rendered.library
        guard = Guard(()) if family in _OWN_ENCODER else tokens.guard
        text = measure_shape(LibraryText(self._rendered, guard, {}))
        stops = tuple(tokens.decode(token) for token in library.get_stop_token_ids())
        ends = measure_ends(text, tokens, stops)
        opening = tokens.ids_of(ends.opening)
        stop = next(token for token in tokens.ids_of(ends.stops) if token not in opening)
        self._bridge = StubBridge(self._rendered, stop, frozenset(opening))
        text = LibraryText(self._rendered, guard, {}, text.shape, self._bridge)
        spelling = measure_spelling(text, tokens)
        super().__init__(family, Family(tokens, text, ends, spelling, prove(text, ends)), variables)
        self._library = library

    def render(self, messages: Sequence[Message], tools: Sequence[Tool]) -> list[int]:
        return self._rendered.ids(*self._family.chat.entries(messages, tools))

    def parse(self, ids: Ids, prompt_ids: Ids, tools: Sequence[Tool]) -> Parsed:
        if self._spelling.grammar:
            return super().parse(ids, prompt_ids, tools)
        text = self._tokens.decode(self._without_stop(ids))
        return read_reply(self._library, list(ids), list(prompt_ids[-TAIL:]), tools, text)

    def compose(self, message: Message, tools: Sequence[Tool]) -> list[int]:
        if self._spelling.grammar:
            return super().compose(message, tools)
        entries, _ = self._family.chat.entries([message], tools, start=False)
        if len(entries) > 1:
            raise RenderingError(f"{self.name} writes no such reply in one turn: text beside calls, or several calls")
        reply = self._bridge.reply(entries[0])
        if reply and reply[-1] in self.stop_ids:
            return reply
        return [*reply, *self._tokens.ids_of([self._closing(message) or self._family.ends.stops[0]])]

    def _after(self, new: Sequence[Message], tools: Sequence[Tool]) -> tuple[list[int], tuple[Finding, ...]]:
        entries, _ = self._family.chat.entries(new, tools, start=False)
        return self._bridge.after(entries), self._family.chat.findings(new, tools, start=False)

    def _with(self, variables: Mapping[str, Any]) -> Renderer:
        return LibraryRenderer(self._tokens, self.name, variables)


def rendered_by(tokens: Tokens, family: str, variables: Mapping[str, Any]) -> Rendered:
    """The family's renders and bridges. Raises like `LibraryRenderer`."""
    deferred = DeferredTokens(tokens)
    return Rendered(_build(deferred, family, variables), tokens, deferred)


def _build(tokens: DeferredTokens, family: str, variables: Mapping[str, Any]) -> Any:
    """The library's renderer. It keeps reasoning in history, so that a user message changes nothing before it."""
    try:
        empty = config_from_name(family)
    except ValueError as error:
        raise UsageError(f"no renderer {family!r} in the renderers library") from error
    known = template_field_names(empty)
    taken = {key: value for key, value in variables.items() if key != "now"}
    if unknown := sorted(set(taken) - known):
        raise UsageError(f"{family} has no template variable {', '.join(unknown)}; it has {', '.join(sorted(known))}")
    today = datetime.fromisoformat(str(variables.get("now", FIXED_DAY)))
    days = {"conversation_start_date": "%Y-%m-%d", "date_string": "%d %b %Y"}
    taken = {key: today.strftime(form) for key, form in days.items() if key in known} | taken
    try:
        return create_renderer(tokens, type(empty)(**taken, thinking_retention="all"))
    except ValidationError as error:
        raise UsageError(f"{family}: {error.errors()[0]['msg']}") from error
    except RAISED as error:
        raise RenderingError(f"the tokenizer does not fit the family {family}: {error}") from error
