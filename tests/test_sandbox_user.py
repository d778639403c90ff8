"""The same sandbox for an ordinary user: root drops to one, in a mount namespace where it can reach this checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from harbor_env.sandboxes.leftovers import remove_tree
from tests.sandbox_world import DATA, REPO, needs_sandbox

NOBODY = 65534
FILES = ("commands", "network", "lifecycle", "limits", "transfer", "layers", "trial", "warm")


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder of nobody's, on a path that nobody may walk (pytest's own is closed to others)."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    os.chown(folder, NOBODY, NOBODY)
    yield folder
    remove_tree(folder)


@needs_sandbox
@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="everything else ran as an ordinary user already")
@pytest.mark.timeout(600)
def test_an_ordinary_user_has_the_same_sandbox(home: Path) -> None:
    start = ["unshare", "--mount", "--propagation", "private", "bash", str(DATA / "as_nobody.sh"), str(home)]
    tests = [f"tests/test_sandbox_{name}.py" for name in FILES]
    run = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-rfE", *tests]
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "TMPDIR": str(home),
        "SANDBOX_TEST_CACHE": str(home / "cache"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "OPEN": ":".join(_closed_folders()),
    }
    done = subprocess.run([*start, *run], cwd=REPO, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


def _closed_folders() -> list[str]:
    """Folders on the way to Python and this checkout that others may not enter."""
    paths = {Path(sys.base_prefix), Path(sys.prefix), REPO}
    parents = {parent for path in paths for parent in (path, *path.parents)}
    return [str(path) for path in sorted(parents) if not path.stat().st_mode & 0o001]
