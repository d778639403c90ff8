"""What live runs came to: kept as data beside the harnesses and as a table in the docs, both written by the suite."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from harbor_env.harnesses import find

REPOSITORY = Path(__file__).parents[2]
PROVED = REPOSITORY / "envs/harbor_env/harnesses/proved.json"
TABLE = REPOSITORY / "docs/live.md"

Proved = dict[str, dict[str, dict[str, Any]]]

HEAD = """# Live runs

Real harnesses, unmodified, on the bundled task `l3-eight-step-trail` through Harbor in the local sandbox. The engine is
scripted: Qwen3's tokenizer, one token in ten split as no encoder would, oddly spaced JSON, thinking and text in every
turn. Written by `make live`; a row here is a training row with at least one trained token, and "trained" is the share
of the sampled tokens of main and subagent turns that have mask 1 in exactly one row.

| harness | version | case | reward | turns | rows | trained | findings | note |
|---|---|---|---|---|---|---|---|---|
"""


def record(harness: str, case: str, facts: dict[str, Any]) -> None:
    """Keep the facts of one run, in place of those of an earlier one, and write the table anew."""
    proved = _proved()
    version = find(harness).version
    proved.setdefault(harness, {})[case] = {"version": version, **facts}
    _write(proved)


def _proved() -> Proved:
    proved: Proved = json.loads(PROVED.read_text()) if PROVED.is_file() else {}
    return proved


def _write(proved: Proved) -> None:
    PROVED.write_text(json.dumps(proved, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
    TABLE.parent.mkdir(exist_ok=True)
    TABLE.write_text(HEAD + "".join(_line(name, case, proved[name][case]) for name in proved for case in proved[name]))


def forget(harness: str, case: str) -> None:
    """Take back what an earlier run proved: the case is about to be tried again."""
    proved = _proved()
    if proved.get(harness, {}).pop(case, None) is not None:
        _write(proved)


def _line(harness: str, case: str, facts: dict[str, Any]) -> str:
    findings = ", ".join(f"{code} {count}" for code, count in facts["findings"].items())
    reward = "none" if facts["reward"] is None else f"{facts['reward']:g}"
    cells = (
        harness,
        facts["version"],
        case,
        reward,
        facts["turns"],
        facts["rows"],
        f"{facts['trained']:.0%}",
        findings,
    )
    return "| " + " | ".join(map(str, (*cells, facts["note"]))) + " |\n"
