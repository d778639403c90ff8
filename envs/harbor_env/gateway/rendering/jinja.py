"""A chat template as a pure function of messages, tools and variables, with what models' templates expect around it.

Invariant: no clock, no randomness: `strftime_now` formats the instant in the variable `now` (ISO 8601), a fixed day
where none is given. Whatever a template raises becomes `RenderingError`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from jinja2 import Environment, TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from harbor_env.errors import RenderingError
from harbor_env.gateway.rendering.conversation import Raw

FIXED_DAY = "2024-07-26"
_RAISED = (TemplateError, TypeError, ValueError, LookupError, ArithmeticError, AttributeError, RecursionError)


class Template:
    """One compiled chat template. `special` are the names it may print: `bos_token`, `eos_token`, ..."""

    def __init__(self, source: str, special: Mapping[str, str]) -> None:
        self.source = source
        self._special = dict(special)
        try:
            self._compiled = _environment().from_string(source)
        except TemplateError as error:
            raise RenderingError(f"the chat template does not compile: {error}") from error

    def __call__(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]],
        variables: Mapping[str, Any],
        *,
        prompt: bool = True,
    ) -> str:
        """The text of a conversation; with `prompt`, up to where the assistant writes."""
        now = datetime.fromisoformat(str(variables.get("now", FIXED_DAY)))
        names = {**self._special, **variables, "strftime_now": now.strftime}
        try:
            return self._compiled.render(
                messages=messages, tools=tools or None, add_generation_prompt=prompt, documents=None, **names
            )
        except _RAISED as error:
            raise RenderingError(f"the chat template refused the conversation: {error}") from error


class _Generation(Extension):
    """`{% generation %}` blocks, which mark sampled text for trainers, are their body."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it as an instance variable

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _environment() -> Environment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.filters["from_json"] = json.loads
    environment.globals["raise_exception"] = _raise
    return environment


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    if isinstance(value, Raw):
        return str(value)
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise(message: str) -> None:
    raise TemplateError(message)
