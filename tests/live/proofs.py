"""What live runs came to: kept as data beside the harnesses and as a table in the docs, both written by the suite."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from harbor_env.harnesses import find
from harbor_env.harnesses.listing import PROVED, version_of
from tests.live import table
from tests.live.upsets import CASES

PAGE = Path(__file__).parents[2] / "docs/live.md"

Proved = dict[str, dict[str, dict[str, Any]]]


def record(harness: str, case: str, facts: dict[str, Any]) -> None:
    """Keep the facts of one run that held, in place of those of an earlier one, and write the page anew.

    `facts`: reward (None where there is none), turns, rows, trained (a share), findings (code to count), note; and
    sampled, in tokens, where the engine's log was read.
    """
    proved = _read()
    proved.setdefault(harness, {})[case] = {"version": version_of(find(harness)), **facts}
    write(proved)


def forget(harness: str, case: str) -> None:
    """Take back what an earlier run proved: the case is about to be tried again."""
    proved = _read()
    if proved.get(harness, {}).pop(case, None) is not None:
        write(proved)


def write(proved: Proved) -> None:
    """Write data and page, by harness and then by case, those of `upsets` first."""
    order = {case: place for place, case in enumerate(CASES)}
    ordered = {
        harness: dict(sorted(runs.items(), key=lambda run: (order.get(run[0], len(order)), run[0])))
        for harness, runs in sorted(proved.items())
        if runs
    }
    PROVED.write_text(json.dumps(ordered, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    PAGE.write_text(table.page(ordered), encoding="utf-8")


def _read() -> Proved:
    proved: Proved = json.loads(PROVED.read_text(encoding="utf-8")) if PROVED.is_file() else {}
    return proved
