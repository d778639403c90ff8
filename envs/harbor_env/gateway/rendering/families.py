"""The renderer families by name, and which of them a model gets. `RENDERERS` closes the module."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from harbor_env.gateway.rendering import Renderer
from harbor_env.gateway.rendering.jinja import Template
from harbor_env.gateway.rendering.source import Source
from harbor_env.gateway.rendering.template import TemplateRenderer
from harbor_env.gateway.rendering.tokens import Tokens

Build = Callable[[Tokens, Source, str, Mapping[str, Any]], Renderer]


def generic(tokens: Tokens, source: Source, template: str, variables: Mapping[str, Any]) -> Renderer:
    return TemplateRenderer(tokens, Template(template, source.special), variables, source.eos)


def choose(tokens: Tokens, source: Source, template: str, name: str | None, variables: Mapping[str, Any]) -> Renderer:
    return generic(tokens, source, template, variables)


RENDERERS: dict[str, Build] = {"template": generic}
