"""What there is to run with here: harnesses, sandboxes and why not, and the grade of an engine.

Quick: imports no Harbor. A sandbox of Harbor's counts as ready where its program, package and keys are there;
only a rollout proves it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harbor_env.errors import HarborEnvError, TaskError
from harbor_env.harnesses.listing import list_harnesses
from harbor_env.sandboxes import SANDBOXES
from harbor_env.sandboxes.backends import missing

PROBED_WITHIN = 20.0


def sandboxes(variables: Mapping[str, str], home: Path) -> dict[str, str]:
    """Every sandbox by name, with what is missing for it: "" where nothing is known to be."""
    found = {name: missing(name, variables, home) for name in SANDBOXES if name != "local"}
    return {"local": _local(), **found}


def datasets(specs: Sequence[str], variables: Mapping[str, str]) -> dict[str, Any]:
    """Counts of tasks by `splits`; `problems`, what is wrong with a dataset, by spec; `secrets` that are not set.

    A secret is a variable of the host that verifiers cannot do without, with the number of tasks they grade.
    """
    from harbor_env.server.catalog import Catalog

    usable: dict[str, Catalog] = {}
    problems: dict[str, str] = {}
    for spec in specs:
        try:
            catalog = Catalog([spec])
            _ = catalog.splits
            usable[spec] = catalog
        except TaskError as error:
            problems[spec] = str(error)
    found = next(iter(usable.values())) if len(usable) == 1 else Catalog(tuple(usable))
    splits = found.splits
    tasks = {task.path: task for dataset in splits.values() for task in dataset}
    unset = Counter(name for task in tasks.values() for name in task.secrets if not variables.get(name))
    counts = {name: len(dataset) for name, dataset in splits.items()}
    return {"splits": counts, "problems": problems, "secrets": dict(sorted(unset.items()))}


def harnesses() -> dict[str, dict[str, Any]]:
    """Every harness described here: version, dialects, and whether a layer of it is there for the local sandbox."""
    return {
        entry.name: {"version": entry.version, "dialects": list(entry.dialects), "baked": entry.baked}
        for entry in list_harnesses()
    }


async def engine_grade(spec: str, url: str, model: str, api_key: str) -> dict[str, Any]:
    """What a first contact measures of an engine; {"ready": False, "reason": ...} where there is none."""
    from harbor_env.gateway.engines import open_engine

    try:
        engine = open_engine(spec, url=url, model=model, api_key=api_key)
        try:
            async with asyncio.timeout(PROBED_WITHIN):
                info = await engine.probe()
        finally:
            await engine.close()
    except TimeoutError:
        return {"ready": False, "reason": f"{url} did not answer within {PROBED_WITHIN:.0f} s"}
    except HarborEnvError as error:
        return {"ready": False, "reason": str(error)}
    findings = [f"{finding.code}: {finding.detail}" for finding in info.findings]
    facts = {"level": info.level, "model": info.model, "window": info.max_model_len, "route": info.route}
    return {"ready": True, **facts, "findings": findings}


def _local() -> str:
    """Why the local sandbox does not run here: "" where it does."""
    from harbor_env.sandboxes.preflight import obstacle

    return obstacle()
