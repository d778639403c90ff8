"""Sandboxes for tests, on one cache folder per user of this machine, so that the base is prepared once."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from harbor_env.sandboxes.base import host_base
from harbor_env.sandboxes.limits import NO_LIMITS, Enforcement
from harbor_env.sandboxes.places import Places, places
from harbor_env.sandboxes.preflight import obstacle
from harbor_env.sandboxes.sandbox import Bind, Command, Completed, Root, Sandbox
from tests import waiting

REPO = Path(__file__).parent.parent
CACHE = os.environ.get("SANDBOX_TEST_CACHE") or str(REPO / ".cache" / "sandboxes")
DATA = Path(__file__).parent / "data" / "sandbox"

needs_sandbox = pytest.mark.skipif(bool(obstacle(CACHE)), reason=f"no sandbox here: {obstacle(CACHE)}")


def where() -> Places:
    found = places(CACHE)
    found.make()
    return found


def root(layers: Sequence[Path] = (), binds: Sequence[Bind] = ()) -> Root:
    return Root(host_base(where()), tuple(layers), tuple(binds))


@asynccontextmanager
async def sandbox(
    chosen: Root | None = None, *, limits: Enforcement = NO_LIMITS, keep: bool = False
) -> AsyncIterator[Sandbox]:
    running = await Sandbox.start(where(), chosen or root(), limits=limits, keep=keep)
    try:
        yield running
    finally:
        await running.stop()


async def bash(running: Sandbox, script: str, *, timeout: float | None = 30, **options: Any) -> Completed:
    env = {"PATH": host_base(where()).path, **options.pop("env", {})}
    return await running.run(Command(("bash", "-c", script), env, **options), timeout=timeout)


async def until(holds: Callable[[], bool]) -> None:
    """Wait, at most 20 seconds, for something that nothing announces."""
    async with asyncio.timeout(20):
        await waiting.until(holds)


@asynccontextmanager
async def environment(folder: Path, dockerfile: str = "FROM python:3.12\n", **kwargs: Any) -> AsyncIterator[Any]:
    """A started LocalEnvironment for a task whose environment folder is `folder`/environment."""
    built = make_environment(folder, dockerfile, **kwargs)
    try:
        await built.start(force_build=False)
        yield built
    finally:
        await built.stop(delete=True)


def make_environment(folder: Path, dockerfile: str | None = "FROM python:3.12\n", **kwargs: Any) -> Any:
    from harbor.models.task.config import EnvironmentConfig
    from harbor.models.trial.paths import TrialPaths

    from harbor_env.sandboxes.local import LocalEnvironment

    context = folder / "environment"
    context.mkdir(parents=True, exist_ok=True)
    if dockerfile is not None:
        (context / "Dockerfile").write_text(dockerfile)
    task = EnvironmentConfig(**kwargs.pop("task", {}))
    trial = TrialPaths(folder / "trial")
    trial.mkdir()
    return LocalEnvironment(
        environment_dir=context,
        environment_name="task",
        session_id="task__1",
        trial_paths=trial,
        task_env_config=task,
        cache=str(own_cache(folder)),
        **kwargs,
    )


def own_cache(folder: Path) -> Path:
    """A cache that ends with the test, with no layers yet; bases are shared, for an ordinary user's is large."""
    cache = folder / "cache"
    if not cache.exists():
        cache.mkdir(parents=True)
        (cache / "bases").symlink_to(where().bases)
    return cache


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def write_tree(folder: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder
