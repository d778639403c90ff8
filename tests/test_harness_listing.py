"""`openenv-harbor harnesses`: what is said of each harness comes from its facts, its layer and the live runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from harbor_env import survey
from harbor_env.harnesses import HARNESSES, find
from harbor_env.harnesses.listing import list_harnesses, version_of


def run(version: str, note: str = "") -> dict[str, Any]:
    return {"version": version, "turns": 9, "rows": 2 if note else 1, "trained": 1.0, "note": note}


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "harbor_env.cli", "harnesses", *arguments]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def test_a_harness_is_baked_only_in_its_pinned_version_and_proved_only_in_it(tmp_path: Path) -> None:
    version = find("codex").version
    for key, name, held in (("a", "codex", version), ("b", "pi", "0.0.1")):
        (tmp_path / "layers" / key).mkdir(parents=True)
        facts = {"kind": "harness", "name": name, "version": held}
        (tmp_path / "layers" / key / "layer.json").write_text(json.dumps(facts))
    proved = tmp_path / "proved.json"
    runs = {"codex": {"plain": run(version), "cut": run("0.0.1")}}
    opencode = {"opencode@gemini": {"plain": run(find("opencode").version, "why")}}
    proved.write_text(json.dumps(runs | opencode))
    listed = {entry.name: entry for entry in list_harnesses(proved, tmp_path)}
    assert listed["codex"].baked
    assert [(proof.dialect, proof.case) for proof in listed["codex"].proved] == [("responses", "plain")]
    assert listed["codex"].cases == ("cut", "plain")
    assert (listed["pi"].baked, listed["pi"].proved) == (False, ())
    [proof] = listed["opencode"].proved
    assert (proof.dialect, proof.case, proof.rows, proof.note) == ("gemini", "plain", 2, "why")
    assert listed["opencode"].dialects == ("chat", "responses", "messages", "gemini")


def test_a_harness_that_is_part_of_harbor_has_harbors_version() -> None:
    assert version_of(find("terminus-2")).startswith("Harbor 0.")
    assert version_of(find("codex")) == find("codex").version


def test_what_can_be_run_with_says_the_same_of_each_harness() -> None:
    seen = survey.harnesses()
    assert list(seen) == sorted(HARNESSES)
    for entry in list_harnesses():
        assert seen[entry.name] == {
            "version": entry.version,
            "dialects": list(entry.dialects),
            "baked": entry.baked,
        }


def test_the_command_lists_every_described_harness_on_a_line_of_its_own() -> None:
    objects = [json.loads(line) for line in command("--json").stdout.splitlines()]
    assert [entry["name"] for entry in objects] == sorted(HARNESSES)
    lines = command().stdout.splitlines()
    assert [line.split()[0] for line in lines[1:]] == sorted(HARNESSES)


def test_the_command_says_everything_of_a_named_harness_and_which_names_there_are() -> None:
    told = command("codex").stdout
    assert told.startswith(f"codex {find('codex').version}, ")
    assert all(proof.case in told for entry in list_harnesses() if entry.name == "codex" for proof in entry.proved)
    wrong = command("codecs")
    assert wrong.returncode != 0
    assert "codecs" in wrong.stderr
    assert "codex" in wrong.stderr
