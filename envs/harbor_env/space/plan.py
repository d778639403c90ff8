"""What a Space is made of: settings everybody may read, secrets nobody may, datasets that travel along.

Invariant: a secret is in `secrets` and nowhere else; what only this machine has is copied or refused.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from harbor_env.config import is_loopback
from harbor_env.errors import UsageError
from harbor_env.server.settings import PREFIX
from harbor_env.serving_gateway import EngineFlags

ADMIN_KEY = f"{PREFIX}ADMIN_KEY"
LLM_API_KEY = "OPENENV_LLM_API_KEY"
PORT = 8000
"""Where the server listens in its container, as the Dockerfile and openenv.yaml say."""
CLOUD_EXTRAS = ("e2b", "daytona", "modal")
"""Sandboxes whose client is installed where they are asked for."""
BESIDE = "datasets"
"""Folder of a Space in which datasets of this machine travel."""
_REPO = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
_NAME = re.compile(r"[A-Za-z_]\w*")
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")


@dataclass(frozen=True, slots=True)
class Space:
    """`repo` is OWNER/NAME, or NAME of whoever is logged in.

    `datasets` are folders of this machine by the name they have in the Space. `extras` are the package's, for pip.
    """

    repo: str
    title: str
    variables: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    datasets: Mapping[str, Path] = field(default_factory=dict)
    extras: tuple[str, ...] = ("server",)
    private: bool = False

    @property
    def url(self) -> str:
        """Where the Space will answer, once `repo` has an owner."""
        return f"https://{re.sub(r'[^a-z0-9]+', '-', self.repo.lower())}.hf.space"


def plan(
    repo: str,
    engine: EngineFlags,
    *,
    datasets: Sequence[str] = ("bundled",),
    sandboxes: Sequence[str] = (),
    admin_key: str = "",
    variables: Mapping[str, str] | None = None,
    secrets: Mapping[str, str] | None = None,
) -> Space:
    """A Space that serves `datasets` over `engine`. UsageError: it could not work there.

    `variables` and `secrets` of the caller win over those made here.
    """
    if unknown := sorted(set(sandboxes) - set(CLOUD_EXTRAS)):
        raise UsageError(f"--sandbox {unknown[0]} brings no client along. Choose of: {', '.join(CLOUD_EXTRAS)}.")
    if not _REPO.fullmatch(repo):
        raise UsageError(f"{repo!r} is no Space: give OWNER/NAME.")
    _refuse_what_only_is_here(engine)
    specs, copied = _datasets(datasets)
    settings = {
        f"{PREFIX}LLM_URL": engine.llm_url,
        f"{PREFIX}ENGINE": engine.engine,
        f"{PREFIX}MODEL": engine.model,
        f"{PREFIX}TOKENIZER": engine.tokenizer,
        f"{PREFIX}RENDERER": engine.renderer,
        f"{PREFIX}WINDOW": str(engine.window or ""),
        f"{PREFIX}DATASET": ",".join(specs),
    }
    embedded = not engine.llm_url and engine.engine in ("", "llamacpp")
    return Space(
        repo=repo,
        title=f"Harbor tasks: {', '.join(Path(spec).name for spec in datasets)}",
        variables={**{name: value for name, value in settings.items() if value}, **(variables or {})},
        secrets={
            **({ADMIN_KEY: admin_key} if admin_key else {}),
            **({LLM_API_KEY: engine.llm_api_key} if engine.llm_api_key and engine.llm_url else {}),
            **(secrets or {}),
        },
        datasets=copied,
        extras=("server", *(["embedded"] if embedded else []), *(name for name in CLOUD_EXTRAS if name in sandboxes)),
    )


def assignments(flag: str, words: Sequence[str], environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """KEY=VALUE words; a KEY alone takes its value from `environment`, which keeps it off the command line."""
    found = {}
    for word in words:
        name, assigned, value = word.partition("=")
        if not _NAME.fullmatch(name) or not (assigned or environment is not None):
            raise UsageError(f"{flag} takes KEY=VALUE{' or KEY' if environment is not None else ''}, not {name!r}.")
        if not assigned and environment is not None:
            if not environment.get(name):
                raise UsageError(f"{flag} {name} takes its value from the environment, where {name} is not set.")
            value = environment[name]
        found[name] = value
    return found


def _datasets(specs: Sequence[str]) -> tuple[list[str], dict[str, Path]]:
    """Specs as the Space reads them, and the folders of this machine that have to travel along."""
    told: list[str] = []
    copied: dict[str, Path] = {}
    for spec in specs:
        folder = Path(spec).expanduser()
        if "," in spec:
            raise UsageError(f"--dataset {spec!r}: a Space's list of datasets is separated by commas; rename it.")
        if spec == "bundled" or not folder.is_dir():
            told.append(spec)
            continue
        folder = folder.resolve()
        if copied.get(folder.name, folder) != folder:
            raise UsageError(f"Two datasets are both called {folder.name!r}: give them folders of other names.")
        copied[folder.name] = folder
        told.append(f"{BESIDE}/{folder.name}")
    return told, copied


def _refuse_what_only_is_here(engine: EngineFlags) -> None:
    host = urlsplit(engine.llm_url).hostname or ""
    if host and (is_loopback(host) or _is_private(host)):
        raise UsageError(f"--llm-url {engine.llm_url} leads to no engine from a Space: give an address it can reach.")
    kind, _, argument = engine.engine.partition(":")
    if kind == "llamacpp" and argument:
        raise UsageError(f"--engine {engine.engine} names a file here: leave it out for the model that comes along.")
    if engine.tokenizer and not _HUB_ID.fullmatch(engine.tokenizer) and Path(engine.tokenizer).expanduser().exists():
        raise UsageError(f"--tokenizer {engine.tokenizer} is a file here, which the Space lacks: give a hub id.")


def _is_private(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        return False
