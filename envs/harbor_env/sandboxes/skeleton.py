"""The layer between a base and everything else: mount points, fresh folders, and covers over what must not be seen.

A whiteout (a character device 0:0) in this layer makes a file of the base absent, yet lets the sandbox create it anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

_FOLDERS = {"dev": 0o755, "proc": 0o755, "sys": 0o755, "tmp": 0o1777, "root": 0o700, "home": 0o755, "run": 0o755}
_MORE_FOLDERS = {"mnt": 0o755, "media": 0o755, "srv": 0o755, "var": 0o755, "var/tmp": 0o1777, "var/lib": 0o755}
_RUN_LINKS = {"var/run": "/run", "var/lock": "/run/lock"}
_VAR_FOLDERS = (
    "var/cache",
    "var/log",
    "var/spool",
    "var/mail",
    "var/lib/misc",
    "run/lock",
    "var/cache/apt/archives/partial",
    "var/lib/apt/lists/partial",
)
_WRITTEN_AT_START = ("etc/hosts", "etc/hostname", "etc/resolv.conf")
_DEPTH, _OPT_DEPTH = 4, 1
_APT_AS_ROOT = 'APT::Sandbox::User "root";\n'


@dataclass(slots=True)
class Plan:
    """What the skeleton of one base holds. Paths are absolute, as seen inside."""

    mapped: bool
    rootfs: bool = False
    points: dict[str, str] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    copied: list[str] = field(default_factory=list)
    masked: list[str] = field(default_factory=list)


def make_skeleton(bases: Path, identity: str, plan: Plan) -> Path:
    """The skeleton's folder, made once for a base and what is to be covered in it."""
    text = json.dumps(
        [identity, plan.mapped, plan.rootfs, plan.points, plan.links, plan.copied, plan.masked, _revision()]
    )
    target = bases / hashlib.sha256(text.encode()).hexdigest()[:32]
    if target.is_dir():
        return target
    bases.mkdir(mode=0o700, parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(dir=bases, prefix="making-"))
    work.chmod(0o755)
    _fill(work, plan)
    try:
        work.rename(target)
    except OSError:  # another process made it first
        shutil.rmtree(work)
    return target


def _revision() -> int:
    """Changes when this file does, so that a skeleton made by another revision of it is not used."""
    return Path(__file__).stat().st_mtime_ns


def _fill(root: Path, plan: Plan) -> None:
    for name, mode in {**_FOLDERS, **({} if plan.rootfs else _MORE_FOLDERS)}.items():
        _folder(root / name).chmod(mode)
    for name in _WRITTEN_AT_START:
        _touch(root / name)
    if plan.rootfs:
        return
    for name in _VAR_FOLDERS:
        _folder(root / name)
    for link, destination in {**_RUN_LINKS, **{path[1:]: to for path, to in plan.links.items()}}.items():
        _folder((root / link).parent)
        (root / link).symlink_to(destination)
    for path in plan.points:
        _folder(root / path[1:])
    for path in plan.copied:
        _copy(Path(path), root / path[1:])
    for path in plan.masked:
        if not any(path.startswith(f"{copied}/") for copied in plan.copied):
            _cover(root / path[1:])
    _accounts(root / "etc")
    if plan.mapped:
        _make_writable(root, plan)


def _repeat_folders(folder: str, root: Path, depth: int) -> None:
    """Make the folders of the base that lie up to `depth` below `folder` again below `root`."""
    _folder(root / folder[1:])
    if depth == 0 or not os.access(folder, os.R_OK | os.X_OK):
        return
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                _repeat_folders(entry.path, root, depth - 1)


def _folder(path: Path) -> Path:
    """Make a folder and those above it, open to every user inside whatever this process's umask is."""
    if not path.is_dir():
        _folder(path.parent)
        path.mkdir()
        path.chmod(0o755)
    return path


def _touch(path: Path) -> None:
    _folder(path.parent)
    path.touch()
    path.chmod(0o644)


def _copy(source: Path, target: Path) -> None:
    """Copy what others may read, so that all of it belongs to the sandbox's root."""
    if os.path.lexists(target) and not target.is_dir():
        return
    mode = source.lstat().st_mode
    if stat.S_ISLNK(mode):
        target.symlink_to(source.readlink())
    elif stat.S_ISDIR(mode) and os.access(source, os.R_OK | os.X_OK):
        _folder(target)
        for child in source.iterdir():
            _copy(child, target / child.name)
    elif stat.S_ISREG(mode) and mode & stat.S_IROTH:
        _folder(target.parent)
        shutil.copy2(source, target)


def _cover(path: Path) -> None:
    """Make a file of the base absent; it may lie in a folder that is absent already."""
    if not os.path.lexists(path) and (path.parent.is_dir() or not os.path.lexists(path.parent)):
        os.mknod(_folder(path.parent) / path.name, stat.S_IFCHR, os.makedev(0, 0))


def _accounts(etc: Path) -> None:
    """A shadow file that names the host's accounts and lets none log in."""
    passwd = Path("/etc/passwd")
    names = [line.split(":")[0] for line in passwd.read_text(encoding="utf-8").splitlines()] if passwd.exists() else []
    for name, tail in (("shadow", "*:19000:0:99999:7:::"), ("gshadow", "*::")):
        file = etc / name
        if os.path.lexists(file):
            file.unlink()
        file.write_text("".join(f"{account}:{tail}\n" for account in names if account), encoding="utf-8")
        file.chmod(0o640)


def _make_writable(root: Path, plan: Plan) -> None:
    """Folders of the base reappear here as the sandbox's own, so that packages can be installed by an ordinary user."""
    for path in plan.points:
        _repeat_folders(path, root, _OPT_DEPTH if path.startswith("/opt") else _DEPTH)
    apt = root / "etc/apt/apt.conf.d"
    _touch(apt / "99sandbox")
    (apt / "99sandbox").write_text(_APT_AS_ROOT, encoding="utf-8")
