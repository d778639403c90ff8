"""What there is to say about every described harness, without importing Harbor: the one place that says it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from harbor_env.harnesses import HARNESSES, Harness, find
from harbor_env.sandboxes.places import places

PROVED = Path(__file__).with_name("proved.json")
"""What live runs came to: `{"NAME[@DIALECT]": {CASE: {"version", "turns", "rows", "trained", "note"}}}`. The live suite
writes it, one entry a case that held."""


@dataclass(frozen=True, slots=True)
class Proof:
    """A live run that held: `trained` is the share of sampled tokens that is trained, `note` why a row more or less."""

    dialect: str
    case: str
    turns: int
    rows: int
    trained: float
    note: str


@dataclass(frozen=True, slots=True)
class Listed:
    """`baked`: a layer of this version is there. `proved` are its runs that held, `cases` those of any harness."""

    name: str
    dialects: tuple[str, ...]
    version: str
    baked: bool
    proved: tuple[Proof, ...]
    cases: tuple[str, ...]

    @property
    def cases_proved(self) -> frozenset[str]:
        """Those that held in any of its dialects."""
        return frozenset(proof.case for proof in self.proved)


def list_harnesses(proved: Path = PROVED, cache: Path | None = None) -> list[Listed]:
    """Every described harness by name. `cache` is where layers are, by default the usual place."""
    facts = json.loads(proved.read_text(encoding="utf-8")) if proved.is_file() else {}
    layers = _layers(cache)
    cases = tuple(dict.fromkeys(case for runs in facts.values() for case in sorted(runs)))
    return [
        Listed(
            harness.name,
            harness.dialects,
            version_of(harness),
            (harness.name, harness.version) in layers,
            tuple(
                Proof(dialect, case, run["turns"], run["rows"], run["trained"], run["note"])
                for dialect in harness.dialects
                for case, run in facts.get(entry_of(harness, dialect), {}).items()
                if run["version"] == version_of(harness)
            ),
            cases,
        )
        for harness in map(find, sorted(HARNESSES))
    ]


def version_of(harness: Harness) -> str:
    """The pinned version. A harness without one is part of Harbor and of the version that is installed."""
    if harness.version:
        return harness.version
    try:
        return f"Harbor {version('harbor')}"
    except PackageNotFoundError:
        return "Harbor's own"


def entry_of(harness: Harness, dialect: str) -> str:
    """How a harness in one of its dialects is called: its own choice needs no mention."""
    return harness.name if dialect == harness.dialect else f"{harness.name}@{dialect}"


def _layers(cache: Path | None) -> set[tuple[str, str]]:
    """(name, version) of every layer that holds a harness."""
    found = [json.loads(path.read_bytes()) for path in places(cache).layers.glob("*/layer.json")]
    return {(layer["name"], layer["version"]) for layer in found if layer.get("kind") == "harness"}
