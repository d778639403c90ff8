"""Read-only layers in the cache: what a Dockerfile built, what a harness's installation wrote.

Invariant: a layer's name is a digest of what it was made from; it appears whole, by one rename, and never changes.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harbor_env.errors import SandboxError
from harbor_env.sandboxes.base import Base, host_base
from harbor_env.sandboxes.compiling import compile_python
from harbor_env.sandboxes.leftovers import remove_tree
from harbor_env.sandboxes.places import Places, places
from harbor_env.sandboxes.sandbox import Bind, Command, Root, Sandbox

_LOCK_POLL_S = 0.05
_LAST_LINES = 15
_PASSED_ON = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE")
_PASSED_ON_PREFIXES = ("PIP_", "UV_", "NPM_CONFIG_", "NODE_EXTRA_CA", "CURL_CA")
_REGISTRY_FILES = {
    "NPM_CONFIG_USERCONFIG": (".npmrc",),
    "PIP_CONFIG_FILE": (".config/pip/pip.conf", ".pip/pip.conf"),
    "UV_CONFIG_FILE": (".config/uv/uv.toml",),
}


@dataclass(frozen=True, slots=True)
class Layer:
    """`path` holds the layer's files below `fs`; `facts` is what its maker wrote down about it."""

    path: Path
    facts: Mapping[str, Any]

    @property
    def files(self) -> Path:
        return self.path / "fs"


def digest(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:32]


def find_layer(where: Places, key: str) -> Layer | None:
    """The finished layer called `key`, if there is one."""
    path = where.layers / key
    facts = path / "layer.json"
    return Layer(path, json.loads(facts.read_text(encoding="utf-8"))) if facts.is_file() else None


def open_layer(path: str | Path) -> Layer:
    """A layer by its folder. Raises SandboxError where there is none."""
    folder = Path(path)
    found = find_layer(Places(folder.parent.parent, folder.parent), folder.name) if folder.is_dir() else None
    if found is None or folder.parent.name != "layers":
        raise SandboxError(f"{folder} is not a layer; `openenv-harbor bake` makes one and prints its folder")
    return found


async def make_layer(
    where: Places, key: str, root: Root, build: Callable[[Sandbox], Any], *, fresh: bool = False
) -> Layer:
    """The layer called `key`, made by `await build(sandbox)` if it is not there; what `build` returns are its facts.

    Concurrent callers, in this and other processes, wait for one to build. A failed build leaves nothing. `fresh`
    replaces a layer that is there, under the feet of sandboxes that run on it.
    """
    found = None if fresh else find_layer(where, key)
    if found is not None:
        return found
    where.make()
    async with _locked(where.locks / key):
        found = find_layer(where, key)
        if found is not None and not fresh:
            return found
        sandbox = await Sandbox.start(where, root, keep=True)
        try:
            facts = await build(sandbox)
            await sandbox.stop()
            return await asyncio.to_thread(_commit, sandbox, where.layers / key, facts)
        finally:
            await asyncio.shield(_discard(sandbox))


async def _discard(sandbox: Sandbox) -> None:
    try:
        await sandbox.stop()
        await asyncio.to_thread(remove_tree, sandbox.folder)
    finally:
        sandbox.release()


def _commit(sandbox: Sandbox, target: Path, facts: Mapping[str, Any]) -> Layer:
    files = sandbox.folder / "upper0"
    for index, point in enumerate(sandbox.points[1:], 1):
        upper, place = sandbox.folder / f"upper{index}", files / point.lstrip("/")
        if any(upper.iterdir()):
            place.parent.mkdir(parents=True, exist_ok=True)
            upper.replace(place)
    made = sandbox.folder / "layer"
    made.mkdir(mode=0o755)
    files.rename(made / "fs")
    (made / "layer.json").write_text(json.dumps(facts, indent=1), encoding="utf-8")
    if target.exists():
        shutil.move(target, sandbox.folder / "replaced")
    os.sync()  # a sandbox's writes are not synced when it ends; a layer must be whole even after a power cut
    made.rename(target)
    return Layer(target, facts)


@asynccontextmanager
async def _locked(path: Path) -> AsyncIterator[None]:
    fd = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await asyncio.sleep(_LOCK_POLL_S)
        yield
    finally:
        os.close(fd)


@dataclass(frozen=True, slots=True)
class BakeOptions:
    """How to bake. `base` None: the host's own programs; `cache` None: the default folder; `timeout` in seconds.

    `bytecode` compiles the Python libraries that were installed.
    """

    base: Base | None = None
    cache: str | Path | None = None
    bytecode: bool = True
    timeout: float = 1800.0


async def bake(
    name: str,
    version: str,
    script: str,
    *,
    check: str = "",
    env: Mapping[str, str] | None = None,
    binds: Sequence[Bind] = (),
    fresh: bool = False,
    options: BakeOptions = BakeOptions(),
) -> Layer:
    """Install something once, as root with the host's network, and keep what it wrote as a layer.

    `script` is bash, run under `set -euo pipefail`; `check` must exit 0 afterwards, without a network. Variables and
    files that tell pip, uv and npm which registries to use are passed on and not kept. `binds` are visible to the
    script only. Keyed by everything that decides the result, `binds` by their paths. Raises SandboxError with the
    script's last lines.
    """
    where = places(options.cache)
    base = options.base if options.base is not None else await asyncio.to_thread(host_base, where)
    given = dict(env or {})
    shown = [f"{bind.source}:{bind.target}" for bind in binds]
    key = digest("bake", name, version, script, check, given, shown, options.bytecode, base.identity)
    registry_env, registry_binds = _registry_settings()
    variables = {"PATH": base.path, "DEBIAN_FRONTEND": "noninteractive", **registry_env, **given}

    async def install(sandbox: Sandbox) -> dict[str, Any]:
        failure = f"{name} {version} could not be installed"
        await _step(sandbox, script, variables, failure, isolated=False, timeout=options.timeout)
        if options.bytecode:
            await compile_python(sandbox, variables)
        if check:
            failure = f"{name} {version} was installed but `{check}` fails"
            await _step(sandbox, check, variables, failure, isolated=True, timeout=options.timeout)
        return {"kind": "harness", "name": name, "version": version, "base": base.identity}

    return await make_layer(where, key, Root(base, binds=(*binds, *registry_binds)), install, fresh=fresh)


async def _step(
    sandbox: Sandbox, script: str, env: Mapping[str, str], failure: str, *, isolated: bool, timeout: float
) -> None:
    command = Command(("bash", "-c", f"set -euo pipefail\n{script}"), env, cwd="/root", isolated=isolated)
    try:
        done = await sandbox.run(command, timeout=timeout)
    except TimeoutError as error:
        raise SandboxError(f"{failure}: not done after {timeout:.0f} seconds") from error
    if done.code != 0:
        lines = (done.stdout + done.stderr).strip().splitlines()[-_LAST_LINES:]
        raise SandboxError(f"{failure} (exit code {done.code}): " + "\n".join(lines))


def _registry_settings() -> tuple[dict[str, str], list[Bind]]:
    """The user's choice of registries: variables, and configuration files bound where no layer keeps them."""
    env = {
        name: value
        for name, value in os.environ.items()
        if name.upper() in _PASSED_ON or name.upper().startswith(_PASSED_ON_PREFIXES)
    }
    binds = []
    for variable, names in _REGISTRY_FILES.items():
        for path in (Path.home() / name for name in names):
            with contextlib.suppress(OSError):
                if variable not in env and path.is_file():
                    target = f"/dev/registries/{path.name}"
                    binds.append(Bind(str(path), target))
                    env[variable] = target
    return env, binds
