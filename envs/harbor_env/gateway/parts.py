"""From settings to an engine and the renderer of its model."""

from __future__ import annotations

import threading

from harbor_env.config import GatewayConfig
from harbor_env.gateway.engine_pool import MakeParts, Parts
from harbor_env.gateway.engines import Engine, open_engine
from harbor_env.gateway.options import EngineOptions
from harbor_env.gateway.rendering import Renderer


def make_parts(config: GatewayConfig) -> MakeParts:
    """A function that makes the parts of one engine. The gateway has one tokenizer, so one renderer, loaded once."""
    loaded: list[Renderer] = []
    lock = threading.Lock()

    def renderer() -> Renderer:
        with lock:
            if not loaded:
                loaded.append(_load(config))
            return loaded[0]

    def make(options: EngineOptions | None) -> Parts:
        own = renderer() if config.tokenizer or config.model else None
        spec = options.kind if options else config.engine_spec
        url = options.url if options else config.llm_url
        model = (options.model if options else "") or config.model
        api_key = options.api_key if options else config.llm_api_key

        def hosted() -> Engine | None:
            return open_engine("hosted", url=url, model=model, api_key=api_key, renderer=None) if url else None

        return Parts(open_engine(spec, url=url, model=model, api_key=api_key, renderer=own), hosted, own)

    return make


def _load(config: GatewayConfig) -> Renderer:
    """The renderer the settings name. Imported here: its tokenizers are slow to import, and `--help` needs none."""
    from harbor_env.gateway.rendering.load import load_renderer

    return load_renderer(
        config.tokenizer or config.model,
        renderer=config.renderer or None,
        model=config.model,
        chat_template=config.chat_template or None,
    )
