"""Builds a task's environment folder into a cached layer by carrying out its Dockerfile in a sandbox."""

from __future__ import annotations

import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from harbor_env.errors import SandboxError, TaskError
from harbor_env.sandboxes.base import Base, host_base, rootfs_base
from harbor_env.sandboxes.context import Context, context_digest
from harbor_env.sandboxes.dockerfile import Copy, MakeDir, Recipe, Run, Step, read_dockerfile
from harbor_env.sandboxes.layers import Layer, digest, make_layer
from harbor_env.sandboxes.places import Places
from harbor_env.sandboxes.sandbox import Command, Root, Sandbox
from harbor_env.sandboxes.transfer import Owned, all_below, upload_tree

_LAST_LINES = 15


@dataclass(frozen=True, slots=True)
class Built:
    """What a task's sandbox starts from. `env`, `workdir` and `user` are the Dockerfile's, "" for its defaults."""

    base: Base
    layers: tuple[Path, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    workdir: str = "/"
    user: str = ""
    notes: tuple[str, ...] = ()


def find_base(where: Places, image: str, bases: Mapping[str, str]) -> tuple[Base, tuple[str, ...]]:
    """The base that stands for `image`, and a note where that is the host's own root."""
    rootfs = bases.get(image) or bases.get("*")
    if rootfs:
        return rootfs_base(where, Path(rootfs).expanduser()), ()
    return host_base(where), (
        f"FROM {image} stands for this machine's own programs; `bases` maps images to root folders",
    )


async def build(
    where: Places, folder: Path, bases: Mapping[str, str], *, image: str = "", fresh: bool = False
) -> Built:
    """Build `folder`/Dockerfile, or take `image` where there is none. Raises TaskError or SandboxError."""
    dockerfile = folder / "Dockerfile"
    if not dockerfile.is_file():
        base, notes = find_base(where, image, bases)
        return Built(base, notes=notes)
    text = dockerfile.read_text(encoding="utf-8")
    recipe = read_dockerfile(text)
    base, notes = find_base(where, recipe.image, bases)
    notes += recipe.notes
    layers: tuple[Path, ...] = ()
    if recipe.steps:
        key = digest("dockerfile", text, context_digest(folder), base.identity)

        async def carry_out(sandbox: Sandbox) -> dict[str, Any]:
            for step in recipe.steps:
                await _carry_out(sandbox, step, Context(folder), base)
            return {"kind": "task", "from": recipe.image, "base": base.identity}

        layer: Layer = await make_layer(where, key, Root(base), carry_out, fresh=fresh)
        layers = (layer.files,)
    return Built(base, layers, _with_path(recipe, base), recipe.workdir, recipe.user, notes)


def _with_path(recipe: Recipe, base: Base) -> dict[str, str]:
    return {"PATH": base.path, **recipe.env}


async def _carry_out(sandbox: Sandbox, step: Step, context: Context, base: Base) -> None:
    match step:
        case MakeDir():
            script = 'mkdir -p -- "$1" && { [ -z "$2" ] || chown -- "$2" "$1"; }'
            await _must(sandbox, ("sh", "-c", script, "workdir", step.path, step.user), {"PATH": base.path}, "WORKDIR")
        case Copy():
            await _copy(sandbox, step, context)
        case Run():
            env = {"PATH": base.path, "DEBIAN_FRONTEND": "noninteractive", **step.env}
            what = f"Dockerfile line {step.line}: RUN"
            await _must(sandbox, step.argv, env, what, cwd=step.cwd, user=step.user or None, isolated=False)


async def _must(
    sandbox: Sandbox,
    argv: tuple[str, ...],
    env: Mapping[str, str],
    what: str,
    *,
    cwd: str = "/",
    user: str | None = None,
    isolated: bool = True,
) -> None:
    done = await sandbox.run(Command(argv, env, cwd=cwd, user=user, isolated=isolated))
    if done.code != 0:
        lines = (done.stdout + done.stderr).strip().splitlines()[-_LAST_LINES:]
        raise SandboxError(f"{what} failed with exit code {done.code}: " + "\n".join(lines))


async def _copy(sandbox: Sandbox, step: Copy, context: Context) -> None:
    owned = Owned(step.owner, step.mode)
    target = PurePosixPath(step.target)
    if step.text is not None:
        with tempfile.TemporaryDirectory(dir=sandbox.folder) as folder:
            members = [(_write(Path(folder, "text"), step.text), target.name)]
            await upload_tree(sandbox, members, str(target.parent), owned)
        return
    sources = [path for pattern in step.sources for path in context.find(pattern)]
    if len(sources) > 1 and not step.target.endswith("/"):
        raise TaskError(f"COPY of several files needs a target that ends in /, not {step.target}")
    into = step.target.endswith("/") or await _is_folder(sandbox, step.target)
    for source in sources:
        with tempfile.TemporaryDirectory(dir=sandbox.folder) as scratch:
            members, below = _members(step, source, context, Path(scratch), into=into)
            await upload_tree(sandbox, members, below, owned)


def _members(
    step: Copy, source: Path, context: Context, scratch: Path, *, into: bool
) -> tuple[list[tuple[Path, str]], str]:
    """What to copy for one source, and the folder inside to copy it below."""
    target = PurePosixPath(step.target)
    if source.is_dir():
        return list(context.members(source)), str(target)
    if step.unpack and tarfile.is_tarfile(source):
        with tarfile.open(source) as archive:
            archive.extractall(scratch, filter="tar")
        return all_below(scratch), str(target)
    name, below = (source.name, target) if into else (target.name, target.parent)
    return [(source.resolve(), name)], str(below)


def _write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o644)
    return path


async def _is_folder(sandbox: Sandbox, path: str) -> bool:
    return (await sandbox.run(Command(("test", "-d", path), {"PATH": "/usr/bin:/bin"}))).code == 0
