"""Where files are kept that outlive a run. Invariant: everything lies below one cache folder and one scratch folder.

`OPENENV_HARBOR_CACHE` (default `$XDG_CACHE_HOME/openenv-harbor`) holds layers, datasets and models.
`OPENENV_HARBOR_SCRATCH` (default: a folder in the cache) holds what running sandboxes write; overlayfs must be able to
write there.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Places:
    """Folders of this user: `cache` keeps what can be fetched or made again, `scratch` what a run alone needs."""

    cache: Path
    scratch: Path

    @property
    def layers(self) -> Path:
        return self.cache / "layers"

    @property
    def bases(self) -> Path:
        return self.cache / "bases"

    @property
    def locks(self) -> Path:
        return self.cache / "locks"

    def make(self) -> None:
        for folder in (self.layers, self.bases, self.locks, self.scratch):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def places(cache: str | Path | None = None) -> Places:
    """The folders in use: `cache` if given, else from the environment."""
    root = cache or os.environ.get("OPENENV_HARBOR_CACHE")
    if not root:
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "openenv-harbor"
    path = Path(root).expanduser().absolute()
    scratch = os.environ.get("OPENENV_HARBOR_SCRATCH")
    return Places(path, Path(scratch).absolute() if scratch else path / "sandboxes")
