"""Choosing and building the renderer for a model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harbor_env.errors import RenderingError
from harbor_env.gateway.rendering import Renderer
from harbor_env.gateway.rendering.families import choose
from harbor_env.gateway.rendering.source import read_source
from harbor_env.gateway.rendering.tokens import Tokens


def load_renderer(
    tokenizer: str | Path,
    *,
    renderer: str | None = None,
    model: str = "",
    chat_template: str | None = None,
    template_kwargs: Mapping[str, Any] | None = None,
) -> Renderer:
    """The renderer for a tokenizer: a Hugging Face folder, a hub id, or a `.gguf` file.

    `renderer` is a name in RENDERERS or `module:Name`; without it the family is known by the model's name, then by what
    its chat template prints; any other template gets the generic renderer. `chat_template` replaces the model's own:
    its text, or a file. Raises `RenderingError` where no tokenizer or no template is found, `UsageError` for a name.
    """
    source = read_source(tokenizer)
    template = _template_text(chat_template) if chat_template else source.template
    if not template:
        raise RenderingError(f"{tokenizer} has no chat template: give --chat-template a file")
    eos = source.special.get("eos_token", "")
    tokens = Tokens(source.data, template=template, name=model or source.name, eos=eos)
    return choose(tokens, source, template, renderer, dict(template_kwargs or {}))


def _template_text(given: str) -> str:
    if "\n" in given or "{" in given:
        return given
    path = Path(given).expanduser()
    if not path.is_file():
        raise RenderingError(f"no chat template file {path}")
    return path.read_text()
