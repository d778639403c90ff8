"""`openenv-harbor serve`: the environment server, and the gateway below it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

from harbor_env.cli.engine_options import (
    ChatTemplate,
    Engine,
    LlmApiKey,
    LlmUrl,
    Model,
    Renderer,
    TemplateKwargs,
    Tokenizer,
    Window,
)


def serve(
    llm_url: LlmUrl = "",
    engine: Engine = "",
    model: Model = "",
    llm_api_key: LlmApiKey = "",
    tokenizer: Tokenizer = "",
    renderer: Renderer = "",
    chat_template: ChatTemplate = "",
    template_kwargs: TemplateKwargs = "",
    window: Window = 0,
    gateway: Annotated[str, Option(help="URL of a running gateway, instead of starting one.")] = "",
    gateway_admin_key: Annotated[
        str, Option(help="That gateway's admin key.", envvar="OPENENV_HARBOR_GATEWAY_ADMIN_KEY")
    ] = "",
    gateway_workers: Annotated[int, Option(help="Processes of the gateway.", min=1)] = 1,
    dataset: Annotated[
        list[str] | None, Option(help="bundled, a folder or a git repository of tasks; repeat for more.")
    ] = None,
    host: Annotated[str, Option(help="Address to listen on; beyond loopback an admin key is needed.")] = "127.0.0.1",
    port: Annotated[int, Option(help="Port of the server; the gateway is at /capture there.")] = 8000,
    admin_key: Annotated[str, Option(help="Key for all but health.", envvar="OPENENV_HARBOR_ADMIN_KEY")] = "",
    gateway_port: Annotated[int | None, Option(help="A port for the gateway alone, 0: a free one.", min=0)] = None,
    gateway_host: Annotated[str, Option(help="Address that port listens on. Default: --host.")] = "",
    public_url: Annotated[str, Option(help="How sandboxes elsewhere reach this server, or its gateway port.")] = "",
    expose: Annotated[str, Option(help="Get them an address: direct, gradio, cloudflared or module:Name.")] = "",
    data: Annotated[Path, Option(help="Folder of the gateway's store and the logs.")] = Path("server-data"),
    max_concurrent_envs: Annotated[int, Option(help="Episodes at a time; 0: what fits this machine.", min=0)] = 0,
    warm: Annotated[bool, Option("--warm", help="Fork Python harnesses in the local sandbox; see docs.")] = False,
    idle: Annotated[float, Option(help="Seconds after which an idle episode loses its slot.", min=1)] = 900,
    keep_logs: Annotated[bool, Option(help="Keep the files of every rollout.")] = False,
) -> None:
    """Serve Harbor tasks as an OpenEnv environment: a trainer resets, steps, and gets a reward with its trace.

    One port: the environment at its root, the gateway at /capture. When ready it prints one JSON line. Then, in Python:

    $ HarborSessionFactory("http://127.0.0.1:8000", split="train", harness="mini-swe-agent")

    Sandboxes elsewhere must reach the gateway: through a tunnel to a port where it is alone, or at your own address.

    $ openenv-harbor serve --gateway-port 8100 --expose cloudflared

    $ openenv-harbor serve --host 0.0.0.0 --public-url https://my-host.example    with OPENENV_HARBOR_ADMIN_KEY set
    """
    import asyncio

    from harbor_env.json_flags import json_object
    from harbor_env.server.app import serve as run
    from harbor_env.server.settings import ServerConfig
    from harbor_env.serving_gateway import EngineFlags

    flags = EngineFlags(
        llm_url=llm_url,
        engine=engine,
        model=model,
        llm_api_key=llm_api_key,
        tokenizer=tokenizer,
        renderer=renderer,
        window=window,
        gateway=gateway,
        admin_key=gateway_admin_key,
        chat_template=chat_template,
        template_kwargs=json_object("--template-kwargs", template_kwargs),
    )
    config = ServerConfig(
        engine=flags,
        datasets=tuple(dataset or ("bundled",)),
        host=host,
        port=port,
        admin_key=admin_key,
        public_url=public_url,
        expose=expose,
        gateway_port=gateway_port,
        gateway_host=gateway_host,
        data=data,
        max_concurrent_envs=max_concurrent_envs,
        gateway_workers=gateway_workers,
        idle=idle,
        warm=warm,
        keep_logs=keep_logs,
    )
    asyncio.run(run(config))
