"""From settings to an engine and the renderer of its model."""

from __future__ import annotations

import threading

from harbor_env.config import GatewayConfig
from harbor_env.errors import RenderingError
from harbor_env.gateway.engine_pool import MakeParts, Parts
from harbor_env.gateway.engines import Engine, open_engine
from harbor_env.gateway.options import EngineOptions
from harbor_env.gateway.rendering import Renderer

EMBEDDED = "llamacpp"


def make_parts(config: GatewayConfig) -> MakeParts:
    """A function that makes the parts of one engine. The gateway has one tokenizer, so one renderer, loaded once."""
    loaded: list[Renderer | str] = []
    lock = threading.Lock()

    def renderer() -> Renderer | str:
        with lock:
            if not loaded:
                loaded.append(load_renderer_or_say_why(config))
            return loaded[0]

    def make(options: EngineOptions | None) -> Parts:
        own = renderer()
        spec = options.kind if options else config.engine_spec
        url = options.url if options else config.llm_url
        model = (options.model if options else "") or config.model
        api_key = options.api_key if options else config.llm_api_key

        def hosted() -> Engine | None:
            return open_engine("hosted", url=url, model=model, api_key=api_key, renderer=None) if url else None

        known = None if isinstance(own, str) else own
        engine = open_engine(spec, url=url, model=model, api_key=api_key, renderer=known)
        return Parts(engine, hosted, known, own if isinstance(own, str) else "")

    return make


def tokenizer_of(config: GatewayConfig) -> str:
    """Where the tokenizer is: as given, in the embedded GGUF file, or under the model's name; "" if nowhere."""
    if config.tokenizer:
        return config.tokenizer
    kind, _, argument = config.engine_spec.partition("?")[0].partition(":")
    if kind == EMBEDDED and not config.llm_url:
        from harbor_env.gateway.engines.llamacpp_server import model_file

        return str(model_file(argument))
    return config.model


def load_renderer_or_say_why(config: GatewayConfig) -> Renderer | str:
    """The renderer the settings name, or why there is none: an engine that takes messages needs none.

    A tokenizer that was asked for by name must load: RenderingError otherwise.
    """
    source = tokenizer_of(config)
    if not source:
        return "no tokenizer is known: give --tokenizer FOLDER, FILE.gguf or a hub id"
    # Imported here: tokenizers are slow to import, and `--help` needs none.
    from harbor_env.gateway.rendering.load import load_renderer

    try:
        return load_renderer(
            source,
            renderer=config.renderer or None,
            model=config.model,
            chat_template=config.chat_template or None,
        )
    except RenderingError as error:
        if config.tokenizer:
            raise
        return f"the tokenizer of {source} was not found ({error}): give --tokenizer"
