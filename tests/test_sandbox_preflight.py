"""What a machine that forbids sandboxes is told."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harbor_env.sandboxes.preflight import obstacle, preflight
from tests.sandbox_world import CACHE, REPO, needs_sandbox


@needs_sandbox
def test_on_a_machine_that_allows_sandboxes_every_fatal_check_passes() -> None:
    checks = preflight(CACHE)
    assert {check.name for check in checks} >= {"Linux", "Python", "programs", "overlayfs", "/proc", "limits"}
    assert [check for check in checks if check.fatal and not check.ok] == []
    assert [check for check in checks if not check.ok and not check.remedy] == []


@needs_sandbox
def test_preflight_is_quick_enough_to_run_before_every_batch() -> None:
    began = time.process_time()
    preflight(CACHE)
    assert time.process_time() - began < 1


FORBIDDEN = """
import os, subprocess, sys
os.unshare(os.CLONE_NEWUSER)
open("/proc/sys/user/max_user_namespaces", "w").write("0")
open("/proc/self/setgroups", "w").write("deny")
uid, gid = {uid}, {gid}
open("/proc/self/uid_map", "w").write(f"1000 {{uid}} 1")
open("/proc/self/gid_map", "w").write(f"1000 {{gid}} 1")
os.setresuid(1000, 1000, 1000)
from harbor_env.sandboxes.preflight import obstacle, preflight
print(obstacle(sys.argv[1]))
"""


@needs_sandbox
def test_a_machine_that_forbids_namespaces_is_told_which_setting_to_change(tmp_path: Path) -> None:
    code = FORBIDDEN.format(uid=os.getuid(), gid=os.getgid())
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, cwd=REPO, check=False
    )
    if done.returncode:
        pytest.skip(f"this machine cannot act such a machine: {done.stderr.splitlines()[-1]}")
    assert "user namespaces:" in done.stdout
    assert "sysctl -w user.max_user_namespaces=28000" in done.stdout


@needs_sandbox
def test_a_scratch_folder_overlayfs_cannot_use_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENENV_HARBOR_SCRATCH", "/proc/self/scratch")
    (check,) = (check for check in preflight(CACHE) if check.name == "overlayfs")
    assert not check.ok
    assert "set OPENENV_HARBOR_SCRATCH to a folder on a local disk" in check.remedy


@needs_sandbox
def test_where_nothing_is_in_the_way_there_is_no_obstacle() -> None:
    assert obstacle(CACHE) == ""
