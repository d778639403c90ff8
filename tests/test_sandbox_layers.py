"""Layers: built from Dockerfiles and installation scripts, once, whole, and mounted in order."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from harbor_env.errors import SandboxError, TaskError
from harbor_env.sandboxes.layers import BakeOptions, Layer, bake, open_layer
from harbor_env.sandboxes.sandbox import Bind
from tests.sandbox_world import (
    DATA,
    bash,
    environment,
    make_environment,
    names,
    needs_sandbox,
    own_cache,
    root,
    sandbox,
    write_tree,
)

pytestmark = needs_sandbox


@pytest.fixture
def options(tmp_path: Path) -> BakeOptions:
    return BakeOptions(cache=own_cache(tmp_path))


async def test_a_baked_layer_is_mounted_read_only_and_runs_offline(options: BakeOptions) -> None:
    script = (DATA / "bake_tool.sh").read_text()
    layer = await bake("tool", "1.0", script, check="tool check", env={"PREFIX": "/opt/tool"}, options=options)
    assert (layer.facts["name"], layer.facts["version"]) == ("tool", "1.0")
    async with sandbox(root([layer.files])) as box:
        assert (await bash(box, "tool now; rm -r /opt/tool; tool")).stdout == "ran now\n"
    async with sandbox(root([layer.files])) as box:
        assert (await bash(box, "tool again")).stdout == "ran again\n"


async def test_a_layer_is_baked_once_per_content_even_by_many_at_once(options: BakeOptions) -> None:
    script = "date +%N > /srv/when"
    made = await asyncio.gather(*(bake("x", "1", script, options=options) for _ in range(4)))
    assert len({layer.path for layer in made}) == 1
    other = await bake("x", "2", script, options=options)
    assert other.path != made[0].path
    first = (made[0].files / "srv/when").read_text()
    again = await bake("x", "1", script, fresh=True, options=options)
    assert again.path == made[0].path
    assert (again.files / "srv/when").read_text() != first


async def test_a_failed_bake_says_the_last_lines_and_leaves_nothing(options: BakeOptions) -> None:
    with pytest.raises(SandboxError, match=r"(?s)x 1 could not be installed \(exit code 1\): .*no such package"):
        await bake("x", "1", "echo no such package >&2; false; true", options=options)
    with pytest.raises(SandboxError, match="x 1 was installed but `false` fails"):
        await bake("x", "1", "true", check="false", options=options)
    with pytest.raises(SandboxError, match="not done after 0 seconds"):
        await bake("x", "1", "sleep 300", options=BakeOptions(cache=options.cache, timeout=0.2))
    assert names(Path(str(options.cache)) / "layers") == []
    assert names(Path(str(options.cache)) / "sandboxes") == []


async def test_python_libraries_are_compiled_with_the_interpreter_beside_them(options: BakeOptions) -> None:
    script = "python3 -m venv --without-pip /v; echo 'X = 1' > $(echo /v/lib/python3*/site-packages)/mod.py"
    layer = await bake("venv", "1", script, options=options)
    compiled = [path.name for path in layer.files.rglob("mod.*.pyc")]
    assert len(compiled) == 1


async def test_registry_settings_reach_the_script_and_stay_out_of_the_layer(
    options: BakeOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tree(tmp_path / "home", {".npmrc": "registry=http://a-registry/\n"})
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PIP_INDEX_URL", "http://an-index/")
    monkeypatch.setenv("SECRET_TOKEN", "hidden")
    monkeypatch.delenv("NPM_CONFIG_USERCONFIG", raising=False)
    script = 'cat "$NPM_CONFIG_USERCONFIG" >&2; echo "$PIP_INDEX_URL ${SECRET_TOKEN-none}" >&2; false'
    with pytest.raises(SandboxError, match=r"(?s)a-registry.*an-index/ none"):
        await bake("x", "1", script, options=options)


async def test_binds_of_a_bake_are_not_kept(options: BakeOptions, tmp_path: Path) -> None:
    write_tree(tmp_path / "shown", {"file": "x" * 1000})
    layer = await bake(
        "x", "1", "cp /dev/shown/file /opt/copied", binds=[Bind(str(tmp_path / "shown"), "/dev/shown")], options=options
    )
    assert names(layer.files / "opt") == ["copied"]
    assert not (layer.files / "dev").exists()


async def test_later_layers_cover_earlier_ones_and_a_folder_in_both_shows_both(options: BakeOptions) -> None:
    scripts = {
        "low": "mkdir -p /opt/t /a; echo low | tee /opt/t/both /opt/t/low /a/x",
        "high": "mkdir -p /opt/t /a; echo high | tee /opt/t/both /opt/t/high; rm /etc/os-release",
    }
    low, high = [await bake(name, "1", script, options=options) for name, script in scripts.items()]
    async with sandbox(root([low.files, high.files])) as box:
        done = await bash(box, "cat /opt/t/{both,low,high} /a/x; ls /etc/os-release")
    assert done.stdout == "high\nlow\nhigh\nlow\n"


def test_what_is_not_a_layer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match="is not a layer; `openenv-harbor bake`"):
        open_layer(tmp_path)


def _task(folder: Path) -> Path:
    context = folder / "environment"
    shutil.copytree(DATA / "building", context)
    (context / "data/link").symlink_to("x.csv")
    with (context / "Dockerfile").open("a") as dockerfile, tarfile.open(context / "archive.tar", "w") as tar:
        tar.add(context / "one.txt", arcname="in/side")
        dockerfile.write("ADD archive.tar /unpacked\n")
    return folder


async def test_a_dockerfile_is_built_as_docker_would(tmp_path: Path) -> None:
    async with environment(_task(tmp_path), dockerfile=None) as env:
        done = await env.exec(
            "pwd; cat built conf renamed.txt data/link /unpacked/in/side; ./run.sh; ls; echo $GREETING"
        )
        assert done.stdout.split() == [
            *("/app", "hello", "from", "/app", "greeting=hello", "one1,2", "oneran"),
            *("a.txt", "built", "conf", "data", "renamed.txt", "run.sh", "hello"),
        ]
        assert any("FROM some/image:1 stands for this machine's own programs" in note for note in env.notes)


async def test_a_build_is_shared_until_anything_it_was_made_from_changes(tmp_path: Path) -> None:
    dockerfile = f"FROM x\nCOPY f /f\nRUN echo {tmp_path.name}; date +%N > /when\n"
    write_tree(tmp_path / "environment", {"f": "1"})

    async def when() -> str:
        async with environment(tmp_path, dockerfile) as env:
            return str((await env.exec("cat /when")).stdout)

    first, *others = await asyncio.gather(when(), when(), when())
    assert set(others) == {first}
    write_tree(tmp_path / "environment", {"f": "2"})
    assert await when() != first


async def test_a_build_that_fails_says_which_line(tmp_path: Path) -> None:
    env = make_environment(tmp_path, "FROM x\nRUN true\nRUN echo broken >&2; exit 4\n")
    with pytest.raises(SandboxError, match=r"Dockerfile line 3: RUN failed with exit code 4: broken"):
        await env.start(force_build=False)
    await env.stop(delete=True)


async def test_a_file_the_context_lacks_is_a_fault_of_the_task(tmp_path: Path) -> None:
    env = make_environment(tmp_path, "FROM x\nCOPY missing /\n")
    with pytest.raises(TaskError, match="COPY missing: there is no such file"):
        await env.start(force_build=False)


async def test_the_task_s_layer_lies_over_the_harness_s(tmp_path: Path, options: BakeOptions) -> None:
    harness = await bake(tmp_path.name, "1", "echo harness | tee /opt/who /opt/only", options=options)
    async with environment(tmp_path, "FROM x\nRUN echo task > /opt/who\n", layers=[str(harness.path)]) as env:
        assert (await env.exec("cat /opt/who /opt/only")).stdout == "task\nharness\n"


async def test_a_root_file_system_of_one_s_own_is_the_base(tmp_path: Path) -> None:
    rootfs = _small_rootfs(tmp_path / "rootfs")
    async with environment(tmp_path, "FROM mine:1\nENV X=1\n", bases={"mine:1": str(rootfs)}) as env:
        done = await env.exec("echo $X; echo /usr/bin/*; echo new > /file; cat /file")
        assert done.stdout == "1\n/usr/bin/*\nnew\n"
        assert not any("this machine" in note for note in env.notes)
    assert "file" not in names(rootfs)


def _small_rootfs(rootfs: Path) -> Path:
    """bash, three tools and their libraries, copied from this machine."""
    programs = ["/bin/bash", "/bin/mkdir", "/bin/chmod", "/bin/cat"]
    listed = subprocess.run(["ldd", *programs], capture_output=True, text=True, check=True).stdout
    for path in [*programs, *re.findall(r"(/\S+) \(0x", listed)]:
        target = rootfs / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    (rootfs / "usr/bin").mkdir(parents=True)
    return rootfs


def test_layers_describe_themselves_as_data(tmp_path: Path) -> None:
    folder = tmp_path / "layers" / "abc"
    write_tree(folder, {"layer.json": json.dumps({"name": "x"}), "fs/a": ""})
    assert open_layer(folder) == Layer(folder, {"name": "x"})
