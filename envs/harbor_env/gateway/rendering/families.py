"""The renderer families by name, and which of them a model gets. `RENDERERS` closes the module."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from harbor_env.errors import RenderingError, UsageError
from harbor_env.gateway.rendering import Renderer
from harbor_env.gateway.rendering.fingerprint import Prints
from harbor_env.gateway.rendering.jinja import Template
from harbor_env.gateway.rendering.template import TemplateRenderer
from harbor_env.gateway.rendering.tokens import Tokens
from harbor_env.lookup import import_object

if TYPE_CHECKING:
    from harbor_env.gateway.rendering.source import Source

Build: TypeAlias = "Callable[[Tokens, Source, str, Mapping[str, Any]], Renderer]"
"""Tokenizer, what the files say, chat template, template variables -> renderer."""


def choose(tokens: Tokens, source: Source, template: str, name: str | None, variables: Mapping[str, Any]) -> Renderer:
    """By `name`; else by the model's name; else by what the template prints; else the generic renderer.

    A family counts only where its renderer prints what the model's own template prints, and its deltas are proved.
    """
    if name:
        return _named(name)(tokens, source, template, variables)
    compiled = Template(template, source.special)
    candidates = [family for family, token in FAMILIES.items() if tokens.id_of(token) is not None]
    own = _model_families().get(tokens.name_or_path) if candidates else None
    own = own if own in RENDERERS else None
    prints = Prints(tokens, compiled, variables)
    for family in [own] if own else filter(prints.same, candidates):
        try:
            renderer = RENDERERS[family](tokens, source, template, variables)
        except (RenderingError, UsageError):
            continue
        if renderer.tito == "exact":
            return renderer
    return TemplateRenderer(tokens, compiled, variables, source.eos)


def _named(name: str) -> Build:
    if name in RENDERERS:
        return RENDERERS[name]
    if ":" not in name:
        raise UsageError(f"no renderer {name!r}; there are {', '.join(RENDERERS)}, and module:Name for your own")
    try:
        build: Build = import_object(name)
    except ImportError as error:
        raise UsageError(f"no renderer {name!r}: {error}") from error
    return build


def _generic(tokens: Tokens, source: Source, template: str, variables: Mapping[str, Any]) -> Renderer:
    return TemplateRenderer(tokens, Template(template, source.special), variables, source.eos)


def _library(family: str) -> Build:
    def build(tokens: Tokens, source: Source, template: str, variables: Mapping[str, Any]) -> Renderer:
        from harbor_env.gateway.rendering.library import LibraryRenderer

        return LibraryRenderer(tokens, family, variables)

    return build


def _model_families() -> Mapping[str, str]:
    """Exact hub names to families, as the `renderers` library knows them."""
    from renderers.base import MODEL_RENDERER_MAP

    known: Mapping[str, str] = MODEL_RENDERER_MAP
    return known


FAMILIES: Mapping[str, str] = {
    **dict.fromkeys(("qwen3", "qwen3.5", "qwen3.6", "qwen3.8", "prime-qwen3"), "<tool_response>"),
    **dict.fromkeys(("nemotron-3", "nemotron-3-ultra", "nemotron-3.5"), "<tool_response>"),
    **dict.fromkeys(("glm-4.5", "glm-5", "glm-5.1", "glm-5.3"), "<|observation|>"),
    **dict.fromkeys(("kimi-k2", "kimi-k2.5"), "<|im_middle|>"),
    **dict.fromkeys(("deepseek-v3", "deepseek-r1", "deepseek-v4"), "<｜Assistant｜>"),
    **dict.fromkeys(("laguna-xs.2", "laguna-m.1", "laguna-xs-2.1", "laguna-s-2.1"), "〈|EOS|〉"),
    "llama-3": "<|eot_id|>",
    "gemma4": "<turn|>",
    "minimax-m2": "<minimax:tool_call>",
    "hy3": "<｜hy_eos:opensource｜>",
    "inkling": "<|message_model|>",
    "gpt-oss": "<|call|>",
}
"""The `renderers` library's families with a token each has, in the order a template's prints are compared."""

RENDERERS: dict[str, Build] = {"template": _generic, **{family: _library(family) for family in FAMILIES}}
