"""Harnesses as read-only layers, made once per pinned version and mounted by every rollout in the local sandbox."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harbor_env.errors import UsageError
from harbor_env.harnesses import Harness
from harbor_env.sandboxes.layers import bake
from harbor_env.sandboxes.sandbox import Bind

PREFIX = "/opt/harness"
UNNOTICED = 1.0
"""Seconds: a layer that is there is found within, and nobody needs to hear of it."""


async def bake_harness(harness: Harness, say: Callable[[str], None], *, fresh: bool = False) -> Path:
    """The folder of the harness's layer, installed from its registry unless it is there.

    `say` hears of an installation, for it takes a minute. Raises UsageError for a harness that installs nothing and
    SandboxError, with the installer's last words, for one that could not be installed.
    """
    if harness.bake is None:
        raise UsageError(f"{harness.name} has nothing to bake: Harbor installs it in each sandbox.")
    began = time.monotonic()
    baking = asyncio.create_task(
        bake(
            harness.name,
            harness.version,
            harness.bake.script,
            check=harness.bake.check,
            env={"PREFIX": f"{PREFIX}/{harness.name}", "HOST_PYTHON": sys.base_prefix, "HOME": "/root"},
            binds=(Bind(sys.base_prefix, sys.base_prefix),),
            fresh=fresh,
        )
    )
    try:
        done, _ = await asyncio.wait({baking}, timeout=UNNOTICED)
        if not done:
            say(f"Baking {harness.name} {harness.version}, once per version; this takes minutes ...")
        layer = await baking
    finally:
        baking.cancel()
        await asyncio.wait({baking})
    if not done:
        say(f"Baked {harness.name} {harness.version} in {time.monotonic() - began:.0f} s.")
    return layer.path


def warm_start(harness: Harness) -> dict[str, Any]:
    """What the local sandbox takes as `warm`: nothing where the harness cannot be started so."""
    warm = harness.warm
    if warm is None:
        return {}
    bin_folder = f"{PREFIX}/{harness.name}/python/bin"
    facts = {
        "modules": warm.modules,
        "command": warm.command,
        "entry": warm.entry,
        "python": warm.python or f"{bin_folder}/python3",
        "cold": warm.script or f"{bin_folder}/{warm.command}",
        "env": {name: value for name, value in harness.env.items() if "{" not in value},
    }
    return {"warm": facts}
