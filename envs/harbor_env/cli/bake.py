"""`openenv-harbor bake`: install harnesses once into layers that rollouts mount."""

from __future__ import annotations

import asyncio
from typing import Annotated

from typer import Option


def bake(
    harness: Annotated[str, Option(help="NAME[,NAME...] or all.")] = "all",
    force: Annotated[bool, Option(help="Bake again even where the layer exists.")] = False,
) -> None:
    """Install harnesses from npm or PyPI, once per pinned version.

    A rollout in the local sandbox bakes what it needs by itself; this does it ahead of time, with a network.

    $ openenv-harbor bake --harness mini-swe-agent,claude-code
    """
    from rich.console import Console

    from harbor_env.harnesses import HARNESSES, find
    from harbor_env.harnesses.baking import bake_harness

    console = Console(highlight=False)
    names = sorted(HARNESSES) if harness == "all" else [name.strip() for name in harness.split(",") if name.strip()]
    for found in [find(name) for name in names]:
        if found.bake is None:
            console.print(f"{found.name}: nothing to bake; Harbor installs it in each sandbox.", markup=False)
            continue
        layer = asyncio.run(bake_harness(found, lambda text: console.print(text, markup=False), fresh=force))
        console.print(f"{found.name} {found.version}: {layer}", markup=False, soft_wrap=True)
