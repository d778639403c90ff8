"""`openenv-harbor push`: the environment server as a Hugging Face Space."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from harbor_env.cli.engine_options import Model, Window

if TYPE_CHECKING:
    from harbor_env.space.plan import Space


def push(
    repo_id: Annotated[str, Argument(help="OWNER/NAME of the Space; NAME alone is yours.")],
    dry_run: Annotated[Path | None, Option(help="Write the folder here and stop: no network, no token.")] = None,
    llm_url: Annotated[str, Option(help="Base URL of an engine the Space reaches. Without: the embedded one.")] = "",
    engine: Annotated[str, Option(help="Its kind: vllm, sglang, llamacpp, hosted.")] = "",
    model: Model = "",
    llm_api_key: Annotated[str, Option(help="Key for the engine; a secret.", envvar="OPENENV_LLM_API_KEY")] = "",
    tokenizer: Annotated[str, Option(help="Hub id. Default: the model's name.")] = "",
    renderer: Annotated[str, Option(help="Renderer by name. Default: by model or template.")] = "",
    window: Window = 0,
    dataset: Annotated[list[str] | None, Option(help="bundled, a folder, which is copied, or a repository.")] = None,
    sandbox: Annotated[list[str] | None, Option(help="Cloud sandboxes to install: e2b, daytona, modal.")] = None,
    private: Annotated[bool, Option(help="Only you see it; sandboxes elsewhere cannot reach its gateway.")] = False,
    hardware: Annotated[str, Option("--hardware", "-H", help="The Space's hardware, such as cpu-basic.")] = "",
    env: Annotated[list[str] | None, Option("--env", "-e", help="KEY=VALUE: a variable everybody may read.")] = None,
    secret: Annotated[list[str] | None, Option(help="KEY, read from the environment, or KEY=VALUE.")] = None,
    admin_key: Annotated[str, Option(help="Minted if not given.", envvar="OPENENV_HARBOR_ADMIN_KEY")] = "",
    title: Annotated[str, Option(help="Title of the Space's page.")] = "",
) -> None:
    """Deploy the environment server to a Hugging Face Space; works from an installed wheel.

    $ openenv-harbor push me/my-env --llm-url https://my-engine.example --model Qwen/Qwen3-8B --dataset my-tasks

    $ openenv-harbor push me/my-env --sandbox e2b --secret E2B_API_KEY --dry-run my-space

    Settings become variables of the Space, keys its secrets. The admin key is shown once and is in no file.
    """
    import os
    import tempfile
    from dataclasses import replace

    from harbor_env.serving_gateway import EngineFlags
    from harbor_env.space.plan import assignments, plan

    space = plan(
        repo_id,
        EngineFlags(llm_url, engine, model, llm_api_key, tokenizer, renderer, window),
        datasets=dataset or ["bundled"],
        sandboxes=sandbox or [],
        admin_key=admin_key,
        variables=assignments("--env", env or []),
        secrets=assignments("--secret", secret or [], os.environ),
    )
    space = replace(space, private=private, title=title or space.title)
    if dry_run is not None:
        from harbor_env.space.folder import write_folder

        write_folder(space, dry_run)
        print(f"{dry_run} is what would be pushed to {space.repo}.")
        _tell(space)
        return
    from harbor_env.space.hub import HuggingFace
    from harbor_env.space.hub import push as upload

    with tempfile.TemporaryDirectory() as scratch:
        pushed = upload(HuggingFace(), space, Path(scratch) / "space", hardware)
    print(f"https://huggingface.co/spaces/{pushed.space.repo} is built now and will answer at {pushed.space.url}.")
    _tell(pushed.space)
    if pushed.minted:
        print(f"Its admin key, which is shown once: {pushed.minted}")


def _tell(space: Space) -> None:
    """Settings by name and value, secrets by name alone, and what does not come along or cannot work."""
    from harbor_env.space.folder import left_out
    from harbor_env.space.plan import ADMIN_KEY

    for name, value in space.variables.items():
        print(f"variable  {name}={value}")
    for name in sorted({ADMIN_KEY, *space.secrets}):
        print(f"secret    {name}{'' if name in space.secrets else '  (minted when pushed, or kept)'}")
    for name, folder in space.datasets.items():
        for path in left_out(folder):
            print(f"left out  {name}/{path}")
    if space.private:
        print("note      sandboxes elsewhere cannot reach the gateway of a private Space.")
