"""What this machine lets the local sandbox do, and what to do where it does not. Takes well under a second."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from harbor_env.sandboxes.base import is_mapped
from harbor_env.sandboxes.cgroups import find_hierarchy
from harbor_env.sandboxes.places import Places, places

_PROGRAMS = ("bash", "tar", "rm", "mkdir", "chmod", "chown", "cat")
_TRIAL_S = 10
_OTHER_SCRATCH = (
    "set OPENENV_HARBOR_SCRATCH to a folder on a local disk (ext4, xfs, btrfs) or tmpfs, not NFS or an overlay"
)
_TRY_NAMESPACES = """
import os, sys
sys.path.append(sys.argv[1])
from inside import keeper, syscalls
if sys.argv[2] == "mapped":
    keeper.enter_user_namespace()
os.unshare(os.CLONE_NEWNS | os.CLONE_NEWNET | os.CLONE_NEWUTS | os.CLONE_NEWIPC | os.CLONE_NEWCGROUP | os.CLONE_NEWPID)
syscalls.mount("none", "/", "", syscalls.MS_REC | syscalls.MS_PRIVATE)
"""
_TRY_OVERLAY = (
    _TRY_NAMESPACES
    + """
root, data = sys.argv[3], "lowerdir={0}/lower,upperdir={0}/upper,workdir={0}/work,userxattr".format(sys.argv[3])
syscalls.mount("overlay", root + "/merged", "overlay", 0, data)
os.mkdir(root + "/merged/made")
"""
)
_TRY_PROC = (
    _TRY_NAMESPACES
    + """
pid = os.fork()
if pid == 0:
    try:
        syscalls.mount("proc", sys.argv[3] + "/merged", "proc")
    except OSError as error:
        print(error, file=sys.stderr)
        os._exit(1)
    os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
)


@dataclass(frozen=True, slots=True)
class Check:
    """One thing the sandbox needs. `remedy` is what to do, "" if nothing is wrong; without a `fatal` one, none runs."""

    name: str
    ok: bool
    detail: str
    remedy: str = ""
    fatal: bool = True


def preflight(cache: str | Path | None = None) -> list[Check]:
    """Everything the local sandbox depends on, tried out."""
    where = places(cache)
    checks = [_kernel(), _python(), _programs(), _namespaces()]
    if all(check.ok for check in checks):
        checks += _scratch(where)
    return [*checks, _cgroups()]


@lru_cache(maxsize=4)
def obstacle(cache: str | Path | None = None) -> str:
    """Why no sandbox can be made here and what to do about it, in one sentence; "" where one can."""
    failed = [check for check in preflight(cache) if check.fatal and not check.ok]
    return f"{failed[0].name}: {failed[0].detail}; {failed[0].remedy}" if failed else ""


def _kernel() -> Check:
    release = platform.release()
    if sys.platform != "linux":
        return Check("Linux", False, f"this is {sys.platform}", "use another sandbox, such as --sandbox docker")
    version = tuple(int(part) for part in release.split("-")[0].split(".")[:2])
    return Check("Linux", version >= (5, 12), release, "" if version >= (5, 12) else "Linux 5.12 or later is needed")


def _python() -> Check:
    version = platform.python_version()
    ok = hasattr(os, "unshare")
    return Check("Python", ok, version, "" if ok else "Python 3.12 or later is needed to make namespaces")


def _programs() -> Check:
    missing = [name for name in _PROGRAMS if not shutil.which(name)]
    return Check(
        "programs",
        not missing,
        f"missing: {', '.join(missing)}" if missing else ", ".join(_PROGRAMS),
        f"install {', '.join(missing)}" if missing else "",
    )


def _try(script: str, folder: str = "") -> str:
    """Run a trial as the keeper would be run; "" where it works, else the last thing it said."""
    mode = "mapped" if is_mapped() else "plain"
    command = [sys.executable, "-I", "-S", "-c", script, str(Path(__file__).parent), mode, folder]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TRIAL_S, check=False)
    except subprocess.TimeoutExpired:
        return f"no answer within {_TRIAL_S} seconds"
    return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["failed"])[-1]


def _namespaces() -> Check:
    failed = _try(_TRY_NAMESPACES)
    name = "user namespaces" if is_mapped() else "namespaces"
    if not failed:
        return Check(name, True, "an ordinary user's, with one user inside" if is_mapped() else "real root's")
    return Check(name, False, failed, _why_no_namespaces())


def _why_no_namespaces() -> str:
    settings: dict[str, Callable[[str], bool]] = {
        "kernel/apparmor_restrict_unprivileged_userns": lambda value: value == "1",
        "kernel/unprivileged_userns_clone": lambda value: value == "0",
        "user/max_user_namespaces": lambda value: value == "0",
    }
    wanted = {"kernel/apparmor_restrict_unprivileged_userns": 0, "kernel/unprivileged_userns_clone": 1}
    for path, forbids in settings.items():
        file = Path("/proc/sys", path)
        if file.exists() and forbids(file.read_text(encoding="ascii").strip()):
            key = path.replace("/", ".")
            return f"this machine forbids them: as root, `sysctl -w {key}={wanted.get(path, 28000)}`, or run as root"
    if Path("/.dockerenv").exists() or Path("/run/.containerenv").exists():
        return (
            "the container this runs in forbids them: start it with --privileged, or with "
            "--cap-add SYS_ADMIN --security-opt seccomp=unconfined --security-opt apparmor=unconfined"
        )
    return "run as root, or use another sandbox, such as --sandbox docker"


def _scratch(where: Places) -> list[Check]:
    try:
        where.scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
        return [_overlay(where), _proc(where)]
    except OSError as error:
        return [Check("overlayfs", False, f"{where.scratch}: {error.strerror}", _OTHER_SCRATCH)]


def _overlay(where: Places) -> Check:
    with tempfile.TemporaryDirectory(dir=where.scratch, prefix="preflight-", ignore_cleanup_errors=True) as folder:
        _folders(folder, "lower", "upper", "work", "merged")
        failed = _try(_TRY_OVERLAY, folder)
        work = Path(folder, "work/work")
        if work.exists():
            work.chmod(0o700)
    return Check("overlayfs", not failed, failed or f"works in {where.scratch}", _OTHER_SCRATCH if failed else "")


def _proc(where: Places) -> Check:
    with tempfile.TemporaryDirectory(dir=where.scratch, prefix="preflight-") as folder:
        _folders(folder, "merged")
        failed = _try(_TRY_PROC, folder)
    remedy = "the outer container masks /proc: start it with --privileged or --security-opt systempaths=unconfined"
    return Check("/proc", not failed, failed or "can be mounted", remedy if failed else "")


def _folders(folder: str, *names: str) -> None:
    for name in names:
        Path(folder, name).mkdir()


def _cgroups() -> Check:
    found = find_hierarchy()
    if isinstance(found, str):
        remedy = "without cgroups, memory is limited for each process and CPU by affinity"
        return Check("limits", False, found, remedy, fatal=False)
    return Check("limits", True, f"cgroup v{found.version}", fatal=False)
