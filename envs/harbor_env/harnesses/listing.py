"""What there is to say about every described harness, without importing Harbor."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from harbor_env.harnesses import HARNESSES, find
from harbor_env.sandboxes.places import places

PROVED = Path(__file__).with_name("proved.json")
"""What live runs came to: `{"NAME[@DIALECT]": {CASE: {"version": ...}}}`. The live suite writes it."""


@dataclass(frozen=True, slots=True)
class Listed:
    """`baked` is of the pinned version; `proved` are the cases that held for it, as `CASE` or `DIALECT: CASE`."""

    name: str
    dialects: tuple[str, ...]
    version: str
    baked: bool
    proved: tuple[str, ...]


def list_harnesses(proved: Path = PROVED, cache: Path | None = None) -> list[Listed]:
    """Every harness by name. `cache` is where layers are, by default the usual place."""
    facts = json.loads(proved.read_text(encoding="utf-8")) if proved.is_file() else {}
    layers = _layers(cache)
    listed = []
    for harness in map(find, sorted(HARNESSES)):
        held = [
            f"{dialect}: {case}" if dialect else case
            for name, cases in sorted(facts.items())
            for base, _, dialect in [name.partition("@")]
            for case, run in cases.items()
            if base == harness.name and run["version"] == harness.version
        ]
        baked = (harness.name, harness.version) in layers
        listed.append(Listed(harness.name, harness.dialects, harness.version, baked, tuple(held)))
    return listed


def _layers(cache: Path | None) -> set[tuple[str, str]]:
    """(name, version) of every layer that holds a harness."""
    found = [json.loads(path.read_bytes()) for path in places(cache).layers.glob("*/layer.json")]
    return {(layer["name"], layer["version"]) for layer in found if layer.get("kind") == "harness"}
