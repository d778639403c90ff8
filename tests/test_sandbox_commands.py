"""Commands in a sandbox: how they end, what they see, and what they cannot do."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest

from harbor_env.errors import SandboxError
from harbor_env.sandboxes.base import is_mapped
from harbor_env.sandboxes.sandbox import Bind, Command
from tests.sandbox_world import CACHE, bash, names, needs_sandbox, root, sandbox, until

pytestmark = needs_sandbox


async def test_a_command_returns_its_streams_and_its_code() -> None:
    async with sandbox() as box:
        done = await bash(box, "echo out; echo err >&2; exit 3")
        assert (done.stdout, done.stderr, done.code) == ("out\n", "err\n", 3)
        assert (await bash(box, "kill -9 $$")).code == 137
        assert (await box.run(Command(("no-such-program",), {"PATH": "/usr/bin"}))).code == 127
        assert "no/such" in (await bash(box, "true", cwd="/no/such")).stderr


async def test_environment_and_working_folder_are_the_command_s_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_SECRET_OF_THE_HOST", "x")
    async with sandbox() as box:
        done = await bash(box, "env; pwd", env={"GIVEN": "1"}, cwd="/made/here", make_cwd=True)
    lines = done.stdout.splitlines()
    assert {"GIVEN=1", "HOME=/root", "USER=root"} <= set(lines)
    assert lines[-1] == "/made/here"
    assert "SECRET" not in done.stdout


async def test_a_long_command_and_a_large_environment_pass() -> None:
    async with sandbox() as box:
        variables = {f"V{number}": "x" * 60_000 for number in range(10)}
        done = await bash(box, f": {'y' * 100_000}; echo ${{#V9}}", env=variables)
    assert done.stdout == "60000\n"


async def test_a_timeout_kills_the_whole_group() -> None:
    async with sandbox() as box:
        with pytest.raises(TimeoutError):
            await bash(box, "sleep 300 & sleep 300 & sleep 300", timeout=0.3)
        assert await _sleepers(box) == 0


async def test_cancelling_kills_the_command() -> None:
    async with sandbox() as box:
        running = asyncio.create_task(bash(box, "touch /started; sleep 300"))
        while (await bash(box, "test -e /started")).code:
            pass
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert await _sleepers(box) == 0


async def _sleepers(box: object) -> int:
    script = "for i in $(seq 50); do pgrep -c sleep || exit 0; read -t 0.05 <> <(:); done"
    return int((await bash(box, script)).stdout.splitlines()[-1])  # type: ignore[arg-type]


async def test_a_child_in_the_background_holds_nobody_up() -> None:
    async with sandbox() as box:
        began = time.monotonic()
        done = await bash(box, "(sleep 300; echo late) & echo now")
        assert done.stdout == "now\n"
        assert time.monotonic() - began < 20
        assert (await bash(box, "pgrep -c sleep")).stdout == "1\n"


async def test_output_is_bounded_and_keeps_both_ends() -> None:
    async with sandbox() as box:
        command = Command(
            ("bash", "-c", "echo first; head -c 3000000 /dev/zero | tr '\\0' x; echo last"), {"PATH": "/bin"}
        )
        done = await box.run(command, output_limit=1000)
    assert done.stdout.startswith("first\nxxx")
    assert done.stdout.endswith("xxxlast\n")
    assert "[... 2999011 bytes left out ...]" in done.stdout


async def test_output_is_passed_on_while_the_command_runs() -> None:
    heard: list[tuple[str, str]] = []

    async def hear(text: str, stream: str) -> None:
        heard.append((text, stream))

    async with sandbox() as box:
        script = "echo one; while [ ! -e /go ]; do :; done; echo two >&2"
        running = asyncio.create_task(box.run(Command(("bash", "-c", script), {"PATH": "/bin"}), on_output=hear))
        await until(lambda: bool(heard))
        assert heard == [("one\n", "stdout")]
        await bash(box, "touch /go")
        await running
    assert heard == [("one\n", "stdout"), ("two\n", "stderr")]


async def test_processes_of_the_host_are_out_of_sight() -> None:
    async with sandbox() as box:
        done = await bash(
            box, "ls /proc | grep -c '^[0-9]'; cat /proc/1/environ /proc/1/maps /proc/1/fd/*; ls /proc/1/root/"
        )
    assert int(done.stdout.splitlines()[0]) < 10
    assert done.stdout.count("\n") == 1


async def test_the_host_s_homes_data_secrets_and_sockets_are_out_of_sight(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("x")
    paths = [str(tmp_path), CACHE, "/root/.ssh", "/home/*", "/run/docker.sock", "/var/lib/docker", str(Path.cwd())]
    async with sandbox() as box:
        done = await bash(box, f"ls -d {' '.join(paths)}; grep -v ':[*]:' /etc/shadow; ls /etc/ssh/*_key; ls /tmp")
    assert done.stdout == ""


@pytest.mark.root
async def test_files_the_host_hides_from_others_are_absent() -> None:
    if os.geteuid() != 0:
        pytest.skip("an ordinary user cannot read them anyway")
    async with sandbox() as box:
        done = await bash(box, "find /etc -type f ! -perm -o=r ! -name '*shadow'")
    assert done.stdout == ""


async def test_the_kernel_s_settings_cannot_be_written() -> None:
    async with sandbox() as box:
        done = await bash(
            box, "echo 1 > /proc/sys/kernel/panic; echo b > /proc/sysrq-trigger; touch /sys/x; wc -c < /proc/kcore"
        )
    assert done.stdout in ("0\n", "")
    assert done.stderr.count("\n") >= 3


async def test_a_command_can_neither_mount_nor_trace_process_1_nor_make_devices() -> None:
    async with sandbox() as box:
        for script in (
            "mount -t tmpfs t /mnt",
            "mknod /disk b 259 0",
            "kill -STOP 1; nsenter -t 1 -m true",
            "chroot /proc/1/root true",
        ):
            assert (await bash(box, script)).code != 0, script
        assert (await bash(box, "echo still here")).code == 0


async def test_process_1_is_deaf_to_signals_from_inside() -> None:
    async with sandbox() as box:
        await bash(box, "for s in INT TERM HUP QUIT KILL STOP USR1 ALRM CHLD; do kill -$s 1; done; kill -KILL -1")
        assert (await bash(box, "echo alive")).stdout == "alive\n"


async def test_what_is_written_is_the_sandbox_s_own() -> None:
    async with sandbox() as one, sandbox() as other:
        assert (await bash(one, "echo x > /usr/bin/mine && rm /etc/passwd && mkdir /app && ls /usr/bin/mine")).code == 0
        assert (await bash(other, "ls /usr/bin/mine /app")).stdout == ""
        assert (await bash(other, "test -s /etc/passwd")).code == 0
    assert "mine" not in names(Path("/usr/bin"))


async def test_a_bind_shows_a_host_folder_read_only(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("shown")
    async with sandbox(root(binds=[Bind(str(tmp_path), "/shown/deep")])) as box:
        done = await bash(box, "cat /shown/deep/file; touch /shown/deep/new")
    assert (done.stdout, done.code) == ("shown", 1)
    assert names(tmp_path) == ["file"]


async def test_users_other_than_root() -> None:
    async with sandbox() as box:
        done = await bash(box, "id -u; echo $HOME; cat /etc/shadow", user="nobody")
        if is_mapped():
            assert "only root inside" in done.stderr
            assert done.code == 126
        else:
            assert done.stdout == "65534\n/nonexistent\n"
            assert "Permission denied" in done.stderr
            assert (await bash(box, "id -u; id -g", user="1234:77")).stdout == "1234\n77\n"
        assert (await bash(box, "id -u", user="root")).stdout == "0\n"


async def test_a_sandbox_that_ended_says_so() -> None:
    async with sandbox() as box:
        running = asyncio.create_task(bash(box, "sleep 300"))
        await asyncio.sleep(0)
        await box.stop()
        with pytest.raises(SandboxError, match="the sandbox ended"):
            await running
        with pytest.raises(SandboxError):
            await bash(box, "true")


async def test_a_python_is_there() -> None:
    async with sandbox() as box:
        assert (await bash(box, "python3 -c 'print(6 * 7)'")).stdout == "42\n"


async def test_accounts_are_read_from_files_and_no_name_service_is_loaded() -> None:
    async with sandbox() as box:
        await bash(box, "echo 'passwd: evil' > /etc/nsswitch.conf; echo 'agent:x:0:0::/home/agent:' > /etc/passwd")
        assert (await bash(box, "echo $HOME", user="agent")).stdout == "/home/agent\n"
        await bash(box, "rm /etc/passwd /etc/group")
        assert (await bash(box, "echo $HOME; id -u", user="root")).stdout == "/root\n0\n"
        assert "there is no user 'agent'" in (await bash(box, "true", user="agent")).stderr
        assert "there is no group 'staff'" in (await bash(box, "true", user="0:staff")).stderr
