"""`openenv-harbor harnesses`: what is said of each harness comes from its facts, its layer and the live runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from harbor_env.harnesses import HARNESSES, find
from harbor_env.harnesses.listing import list_harnesses


def test_a_harness_is_baked_only_in_its_pinned_version_and_proved_only_in_it(tmp_path: Path) -> None:
    version = find("codex").version
    for key, name, held in (("a", "codex", version), ("b", "pi", "0.0.1")):
        (tmp_path / "layers" / key).mkdir(parents=True)
        facts = {"kind": "harness", "name": name, "version": held}
        (tmp_path / "layers" / key / "layer.json").write_text(json.dumps(facts))
    proved = tmp_path / "proved.json"
    runs = {"codex": {"plain": {"version": version}, "cut": {"version": "0.0.1"}}}
    opencode = {"opencode@gemini": {"plain": {"version": find("opencode").version}}}
    proved.write_text(json.dumps(runs | opencode))
    listed = {entry.name: entry for entry in list_harnesses(proved, tmp_path)}
    assert (listed["codex"].baked, listed["codex"].proved) == (True, ("plain",))
    assert (listed["pi"].baked, listed["pi"].proved) == (False, ())
    assert listed["opencode"].proved == ("gemini: plain",)
    assert listed["opencode"].dialects == ("chat", "responses", "messages", "gemini")


def test_the_command_lists_every_described_harness() -> None:
    command = [sys.executable, "-m", "harbor_env.cli", "harnesses", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert [json.loads(line)["name"] for line in done.stdout.splitlines()] == sorted(HARNESSES)
