"""Datasets of Harbor's registry, by name and version, through Harbor's own client.

Invariant: a version once fetched whole is read from the cache; what a registry says reaches git only as a checked URL,
and a folder of this machine only from a registry that is a file on it.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from harbor_env.errors import TaskError
from harbor_env.git_source import is_address, is_ref, parse_repository
from harbor_env.sandboxes.places import places

REGISTRY = "OPENENV_HARBOR_REGISTRY"
"""Environment variable: a registry.json, by path or URL, in place of Harbor's own registry."""

_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?(@[\w.:-]+)?")


def fetch_registered(name: str) -> tuple[Path, str]:
    """(folder, NAME@VERSION) of a registered dataset, NAME[@VERSION] or ORG/NAME[@REF]. Raises TaskError."""
    if not _NAME.fullmatch(name):
        raise TaskError(f"{name!r} is no name in Harbor's registry: expected NAME@VERSION.")
    where = os.environ.get(REGISTRY, "")
    home = places().cache / "datasets" / "registry" / hashlib.sha256(where.encode()).hexdigest()[:24]
    folder = home / name.replace("/", "__")
    if "@" in name and folder.is_dir():
        return folder, name
    try:
        import harbor  # noqa: F401
    except ImportError:
        raise TaskError(
            f"{name!r} is in Harbor's registry, and Harbor is not installed: pip install 'openenv-harbor-env[server]'."
        ) from None
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home, prefix="part-") as part, ThreadPoolExecutor(1) as thread:
        made = Path(part, "tasks")
        made.mkdir()
        version = thread.submit(asyncio.run, _download(name, where, made)).result()
        folder = home / version.replace("/", "__")
        if not folder.is_dir():
            made.rename(folder)
    return folder, version


async def _download(name: str, where: str, folder: Path) -> str:
    """Put every task into `folder`; returns NAME@VERSION."""
    from harbor.models.task.id import GitTaskId, LocalTaskId

    try:
        client = _client(name, where)
        metadata = await client.get_dataset_metadata(name)
    except Exception as error:  # whatever a registry, its client or the network raises: it has no such dataset for us
        raise TaskError(f"Harbor's registry{f' {where}' if where else ''} does not give {name!r}: {error}.") from error
    for task in metadata.task_ids:
        if isinstance(task, GitTaskId):
            _check_git(task)
        elif isinstance(task, LocalTaskId) and (not where or "://" in where):
            raise TaskError(
                f"{name!r} has a task at {task.path}: only a registry in a file here may name folders here."
            )
    remote = [task for task in metadata.task_ids if not isinstance(task, LocalTaskId)]
    try:
        if remote:
            await client._task_client.download_tasks(task_ids=remote, output_dir=folder, export=True)
        for task in metadata.task_ids:
            if isinstance(task, LocalTaskId):
                shutil.copytree(_beside(where, task.path), folder / task.get_name(), symlinks=True)
    except subprocess.CalledProcessError as error:
        said = (error.stderr or b"").decode(errors="replace").strip().splitlines()
        raise TaskError(f"{name!r} cannot be fetched: {said[-1] if said else error}.") from error
    except Exception as error:  # as above, for the download of its tasks
        raise TaskError(f"{name!r} cannot be fetched: {error}.") from error
    return f"{name.partition('@')[0]}@{metadata.version or 'latest'}"


def _client(name: str, where: str) -> Any:
    if "/" in name:
        from harbor.registry.client.package import PackageDatasetClient

        return PackageDatasetClient()
    from harbor.registry.client.factory import RegistryClientFactory

    if not where:
        return RegistryClientFactory.create()
    if "://" in where:
        return RegistryClientFactory.create(registry_url=where)
    return RegistryClientFactory.create(registry_path=Path(where).expanduser())


def _check_git(task: Any) -> None:
    """TaskError where a task's repository or commit is not what it pretends to be."""
    repository = parse_repository(task.git_url)
    if repository.ref or not is_address(task.git_url):
        raise TaskError(f"{task.git_url!r} is no address of a git repository.")
    if task.git_commit_id and not is_ref(task.git_commit_id):
        raise TaskError(f"{repository.shown}: {task.git_commit_id!r} is no commit.")


def _beside(where: str, path: Path) -> Path:
    """A registry's local task lies beside its registry.json."""
    return path if path.is_absolute() else Path(where).expanduser().parent / path
