"""Files in and out, past whatever an agent left in the way."""

from __future__ import annotations

from pathlib import Path

import pytest

from harbor_env.errors import SandboxError
from harbor_env.sandboxes.transfer import Owned, download_dir, download_file, upload_dir, upload_file, upload_tree
from tests.sandbox_world import bash, environment, names, needs_sandbox, sandbox, write_tree

pytestmark = needs_sandbox


async def test_folders_keep_modes_links_and_empty_folders_both_ways(tmp_path: Path) -> None:
    source = write_tree(tmp_path / "in", {"run.sh": "#!/bin/sh\necho ran\n", "deep/er/ü name": "x"})
    (source / "run.sh").chmod(0o750)
    (source / "empty").mkdir()
    (source / "link").symlink_to("deep/er")
    async with sandbox() as box:
        await upload_dir(box, source, "/a/b")
        assert (
            await bash(box, "/a/b/run.sh; stat -c %U:%a /a/b/run.sh; readlink /a/b/link; ls -d /a/b/empty")
        ).stdout == ("ran\nroot:750\ndeep/er\n/a/b/empty\n")
        assert await download_dir(box, "/a/b", tmp_path / "out") == []
    assert (tmp_path / "out/run.sh").stat().st_mode & 0o777 == 0o750
    assert (tmp_path / "out/deep/er/ü name").read_text() == "x"
    assert (tmp_path / "out/link").readlink() == Path("deep/er")
    assert (tmp_path / "out/empty").is_dir()


async def test_a_file_goes_to_a_path_or_into_a_folder(tmp_path: Path) -> None:
    file = write_tree(tmp_path, {"name.txt": "text"}) / "name.txt"
    file.chmod(0o640)
    async with sandbox() as box:
        await upload_file(box, file, "/new/folder/other.txt")
        await upload_file(box, file, "/tmp")
        assert (
            await bash(box, "cat /new/folder/other.txt /tmp/name.txt; stat -c %a /tmp/name.txt")
        ).stdout == "texttext640\n"
        await download_file(box, "/tmp/name.txt", tmp_path / "made/here")
    assert (tmp_path / "made/here").read_text() == "text"
    assert (tmp_path / "made/here").stat().st_mode & 0o777 == 0o640


async def test_uploads_replace_links_and_write_nothing_through_them(tmp_path: Path) -> None:
    outside = write_tree(tmp_path / "outside", {"kept": "kept"})
    source = write_tree(tmp_path / "in", {"test.sh": "new", "sub/file": "new"})
    async with sandbox() as box:
        await bash(
            box,
            f"mkdir /tests; ln -s {outside}/kept /tests/test.sh; ln -s {outside} /tests/sub; ln -s /etc/passwd /one",
        )
        await upload_dir(box, source, "/tests")
        await upload_file(box, source / "test.sh", "/one")
        done = await bash(box, "cat /tests/test.sh /tests/sub/file /one; grep -c root /etc/passwd; find /tests -type l")
    assert done.stdout.startswith("newnewnew")
    assert (outside / "kept").read_text() == "kept"
    assert sorted(outside.iterdir()) == [outside / "kept"]


async def test_downloads_read_and_write_nothing_of_the_host_through_links(tmp_path: Path) -> None:
    secret = write_tree(tmp_path / "outside", {"secret": "the host's"}) / "secret"
    async with sandbox() as box:
        await bash(
            box,
            f"mkdir -p /logs/d; cd /logs; ln -s {secret} a; ln -s ../outside b; ln -s {tmp_path}/outside c; "
            "mkfifo pipe; echo ok > d/file; ln d/file hard; ln -s d inner; ln -s loop loop",
        )
        with pytest.raises(SandboxError):
            await download_file(box, "/logs/a", tmp_path / "one")
        left_out = await download_dir(box, "/logs", tmp_path / "out")
    assert {line.split(":")[0] for line in left_out} == {"./a", "./b", "./c", "./pipe"}
    assert (tmp_path / "out/inner/file").read_text() == "ok\n"
    assert (tmp_path / "out/hard").read_text() == "ok\n"
    assert not (tmp_path / "one").exists()
    assert [path.name for path in (tmp_path / "outside").iterdir()] == ["secret"]


async def test_a_second_download_writes_nothing_through_links_of_the_first(tmp_path: Path) -> None:
    async with sandbox() as box:
        await bash(box, "mkdir -p /logs/real; ln -s real /logs/x")
        await download_dir(box, "/logs", tmp_path / "out")
        (tmp_path / "victim").mkdir()
        (tmp_path / "out/x").unlink()
        (tmp_path / "out/x").symlink_to(tmp_path / "victim")
        await bash(box, "rm /logs/x; mkdir /logs/x; echo evil > /logs/x/file")
        await download_dir(box, "/logs", tmp_path / "out")
        (tmp_path / "out/link").symlink_to(tmp_path / "victim/file")
        await download_file(box, "/logs/x/file", tmp_path / "out/link")
    assert list((tmp_path / "victim").iterdir()) == []
    assert (tmp_path / "out/link").read_text() == "evil\n"


@pytest.mark.parametrize("path", ["/missing", "/tmp", "/pipe"])
async def test_what_is_no_regular_file_is_not_downloaded(tmp_path: Path, path: str) -> None:
    async with sandbox() as box:
        await bash(box, "mkfifo /pipe")
        with pytest.raises(SandboxError, match=path):
            await download_file(box, path, tmp_path / "got")
    assert names(tmp_path) == []


async def test_a_file_too_large_to_copy_is_refused_and_fills_no_disk(tmp_path: Path) -> None:
    async with sandbox() as box:
        await bash(box, "mkdir /logs; truncate -s 100T /logs/sparse || truncate -s 10T /logs/sparse")
        with pytest.raises(SandboxError, match="/logs"):
            await download_dir(box, "/logs", tmp_path / "out", limit=1 << 20)


async def test_owners_and_modes_may_be_set_on_the_way_in(tmp_path: Path) -> None:
    write_tree(tmp_path, {"f": "x"})
    async with sandbox() as box:
        await upload_tree(box, [(tmp_path / "f", "f")], "/to", Owned("0:0", "711"))
        assert (await bash(box, "stat -c %u:%g:%a /to/f")).stdout == "0:0:711\n"


async def test_transfers_work_while_a_fork_bomb_holds_every_process(tmp_path: Path) -> None:
    from harbor_env.sandboxes.limits import Limits, enforce

    async with sandbox(limits=enforce(Limits(processes=40))) as box:
        await bash(box, "echo log > /log; for i in $(seq 100); do setsid -f sleep 300; done 2>/dev/null")
        await download_file(box, "/log", tmp_path / "log")
    assert (tmp_path / "log").read_text() == "log\n"


async def test_harbor_s_log_folders_are_there_and_writable(tmp_path: Path) -> None:
    mounts = [{"type": "bind", "source": str(tmp_path), "target": f"/logs/{name}"} for name in ("agent", "verifier")]
    async with environment(tmp_path, auto_mounts=mounts) as env:
        done = await env.exec("stat -c %a /logs/agent /logs/verifier; echo 1 > /logs/verifier/reward.txt")
        assert done.stdout == "777\n777\n"
        await env.download_dir("/logs/verifier", tmp_path / "verifier")
        await env.download_dir_with_exclusions(source_dir="/logs", target_dir=tmp_path / "some", exclude=["agent"])
    assert (tmp_path / "verifier/reward.txt").read_text() == "1\n"
    assert names(tmp_path / "some") == ["verifier"]
