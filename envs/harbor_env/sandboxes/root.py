"""What a sandbox is made of, and the keeper's instructions to make it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harbor_env.sandboxes.base import Base, is_mapped
from harbor_env.sandboxes.limits import Enforcement


@dataclass(frozen=True, slots=True)
class Bind:
    """A host path visible inside."""

    source: str
    target: str
    readonly: bool = True


@dataclass(frozen=True, slots=True)
class Root:
    """What a sandbox is made of. `layers` are folders of files, lowest first; `hosts` are (address, name) pairs."""

    base: Base
    layers: tuple[Path, ...] = ()
    binds: tuple[Bind, ...] = ()
    hostname: str = "sandbox"
    hosts: tuple[tuple[str, str], ...] = ()


def specify(folder: Path, root: Root, limits: Enforcement, keep: bool) -> dict[str, Any]:
    """The keeper's instructions. `points` starts with "/"; each has its own upper and work folder."""
    targets = ["/", *sorted(target for target in root.base.points if target != "/")]
    points = []
    for index, target in enumerate(targets):
        upper, work = folder / f"upper{index}", folder / f"work{index}"
        upper.mkdir()
        upper.chmod(0o755)
        work.mkdir()
        points.append({"target": target, "lower": _lower(root, target), "upper": str(upper), "work": str(work)})
    (folder / "root").mkdir()
    return {
        "folder": str(folder),
        "root": str(folder / "root"),
        "points": points,
        "binds": [*_base_binds(root.base), *(_as_dict(bind) for bind in root.binds)],
        "files": _files(root),
        "hostname": root.hostname,
        "mapped": is_mapped(),
        "cgroups": list(limits.cgroups),
        "keep": keep,
    }


def _lower(root: Root, target: str) -> list[str]:
    """Lower folders of one mount point, top first."""
    relative = target.lstrip("/")
    stack = [*(layer / relative for layer in reversed(root.layers)), root.base.skeleton / relative]
    found = [str(path) for path in stack if path.is_dir() and not path.is_symlink()]
    return [*found, root.base.points[target]] if target in root.base.points else found


def _base_binds(base: Base) -> list[dict[str, Any]]:
    return [{"source": source, "target": target, "readonly": True} for source, target in base.binds]


def _as_dict(bind: Bind) -> dict[str, Any]:
    return {"source": bind.source, "target": bind.target, "readonly": bind.readonly}


def _files(root: Root) -> dict[str, str]:
    """Name files made for each sandbox; the host's resolver is of use only to commands on the host's network."""
    resolver = Path("/etc/resolv.conf")
    hosts = (("127.0.0.1", f"localhost {root.hostname}"), ("::1", "localhost"), *root.hosts)
    return {
        "/etc/hosts": "".join(f"{address} {name}\n" for address, name in hosts),
        "/etc/hostname": f"{root.hostname}\n",
        "/etc/resolv.conf": resolver.read_text(encoding="utf-8") if resolver.is_file() else "",
    }
