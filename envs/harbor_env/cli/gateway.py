"""`openenv-harbor gateway`: the gateway alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

from harbor_env.cli.engine_options import ChatTemplate, Engine, LlmApiKey, Model, Renderer, TemplateKwargs, Tokenizer


def gateway(
    llm_url: Annotated[str, Option(help="Base URL of a vLLM, SGLang or llama.cpp server.")] = "",
    engine: Engine = "",
    model: Model = "",
    llm_api_key: LlmApiKey = "",
    tokenizer: Tokenizer = "",
    renderer: Renderer = "",
    chat_template: ChatTemplate = "",
    template_kwargs: TemplateKwargs = "",
    host: Annotated[str, Option(help="Address to listen on; beyond loopback an admin key is needed.")] = "127.0.0.1",
    port: Annotated[int, Option(help="Port; 0 takes a free one.", min=0, max=65535)] = 8200,
    data: Annotated[Path, Option(help="Folder of the store: sessions and turns live here.")] = Path("gateway-data"),
    workers: Annotated[int, Option(help="Processes serving the same store.", min=1)] = 1,
    admin_key: Annotated[str, Option(help="Key for control routes.", envvar="OPENENV_HARBOR_ADMIN_KEY")] = "",
    public_url: Annotated[str, Option(help="How harnesses reach this gateway, where not at its own address.")] = "",
    window: Annotated[int, Option(help="Context length in tokens, where the engine does not say it.", min=0)] = 0,
) -> None:
    """Serve the token-native gateway for any program that takes a base URL.

    When ready it prints one JSON line: url, level, tito. Then:

    $ curl -s -X POST URL/sessions          gives session_id and api_key

    $ OPENAI_BASE_URL=URL/v1 OPENAI_API_KEY=KEY your-agent

    $ openenv-harbor export --url URL --session ID --format rows
    """
    from harbor_env.config import GatewayConfig
    from harbor_env.gateway.serve import serve
    from harbor_env.json_flags import json_object

    serve(
        GatewayConfig(
            llm_url=llm_url,
            engine=engine,
            model=model,
            llm_api_key=llm_api_key,
            tokenizer=tokenizer,
            renderer=renderer,
            chat_template=chat_template,
            template_kwargs=json_object("--template-kwargs", template_kwargs),
            host=host,
            port=port,
            data=data,
            workers=workers,
            admin_key=admin_key,
            public_url=public_url,
            window=window,
        )
    )
