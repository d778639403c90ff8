"""What there is to run with here: harnesses, sandboxes and why not, and the grade of an engine.

Quick: imports no Harbor. A sandbox of Harbor's counts as ready where its program, package and keys are there;
only a rollout proves it.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from harbor_env.errors import HarborEnvError
from harbor_env.harnesses.listing import list_harnesses
from harbor_env.sandboxes import SANDBOXES

PROBED_WITHIN = 20.0


@dataclass(frozen=True, slots=True)
class Needs:
    """What a backend cannot do without: a `program` on PATH, an importable `package`, and environment variables."""

    program: str = ""
    package: str = ""
    variables: tuple[str, ...] = ()
    instead: str = ""
    """A file below the home folder that does as well as the variables."""


NEEDS: Mapping[str, Needs] = {
    "docker": Needs(program="docker"),
    "podman": Needs(program="podman"),
    "singularity": Needs(program="singularity"),
    "apple-container": Needs(program="container"),
    "e2b": Needs(package="e2b", variables=("E2B_API_KEY",)),
    "daytona": Needs(package="daytona", variables=("DAYTONA_API_KEY",)),
    "modal": Needs(package="modal", variables=("MODAL_TOKEN_ID", "MODAL_TOKEN_SECRET"), instead=".modal.toml"),
    "runloop": Needs(package="runloop_api_client", variables=("RUNLOOP_API_KEY",)),
    "novita": Needs(package="novita_sandbox", variables=("NOVITA_API_KEY",)),
    "islo": Needs(package="islo", variables=("ISLO_API_KEY",)),
    "tensorlake": Needs(package="tensorlake", variables=("TENSORLAKE_API_KEY",)),
    "langsmith": Needs(package="langsmith", variables=("LANGSMITH_API_KEY",)),
    "kernel": Needs(package="kernel", variables=("KERNEL_API_KEY",)),
    "blaxel": Needs(package="blaxel", variables=("BL_WORKSPACE", "BL_API_KEY")),
}


def sandboxes(variables: Mapping[str, str], home: Path) -> dict[str, str]:
    """Every sandbox by name, with what is missing for it: "" where nothing is known to be."""
    found = {name: missing(name, variables, home) for name in SANDBOXES if name != "local"}
    return {"local": _local(), **found}


def missing(name: str, variables: Mapping[str, str], home: Path) -> str:
    """What the backend `name` lacks here, in one clause."""
    needs = NEEDS.get(name)
    if needs is None:
        return "not checked: needs its own extra of Harbor's and its keys"
    if needs.program and shutil.which(needs.program) is None:
        return f"no {needs.program} on PATH"
    if needs.package and find_spec(needs.package) is None:
        return f"pip install 'harbor[{name}]'"
    unset = [variable for variable in needs.variables if not variables.get(variable)]
    if unset and not (needs.instead and (home / needs.instead).is_file()):
        return f"set {' and '.join(unset)}"
    return ""


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
