"""Sandboxes: the local one (namespaces) and every Harbor backend by name.

Importing this package imports neither Harbor nor anything the local sandbox needs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harbor_env.errors import UsageError

if TYPE_CHECKING:
    from harbor.models.trial.config import EnvironmentConfig

LOCAL = "harbor_env.sandboxes.local:LocalEnvironment"

_HARBORS = (
    *("ack", "apple-container", "beam", "blaxel", "cua-cloud", "cwsandbox", "daytona", "docker", "e2b", "ec2", "gke"),
    *("hf-sandbox", "hyperbrowser", "islo", "kata", "kernel", "langsmith", "modal", "mosaic", "novita", "opensandbox"),
    *(
        "openshift",
        "podman",
        "prime",
        "runloop",
        "runta",
        "sail",
        "sbx",
        "singularity",
        "skypilot",
        "smol",
        "tensorlake",
    ),
    *("use-computer", "vercel"),
)
SANDBOXES: dict[str, str] = {"local": LOCAL, **{name: name for name in _HARBORS}}
"""Sandbox name -> Harbor's name for the backend, or `module:Class` of a Harbor environment."""


def backend_of(name: str) -> str:
    """Harbor's name for the sandbox `name`, or `module:Class`. Raises UsageError for a name there is not."""
    target = SANDBOXES.get(name, name if ":" in name else "")
    if not target:
        raise UsageError(f"There is no sandbox {name!r}. Choose one of: {', '.join(SANDBOXES)}; or give module:Class.")
    return target


def environment_config(
    name: str,
    *,
    gateway: str | None = None,
    layers: Sequence[str | Path] = (),
    env: Mapping[str, str] | None = None,
    **kwargs: Any,
) -> EnvironmentConfig:
    """Harbor's configuration for the sandbox `name`, or `module:Class`.

    `gateway` (a URL or HOST:PORT) and `layers` (folders that `bake` returned) are for the local sandbox; other backends
    take neither. `kwargs` reach the environment class, except those that are fields of Harbor's configuration
    (`override_memory_mb`, `mounts`, ...). Raises UsageError for a name there is not.
    """
    from harbor.models.trial.config import EnvironmentConfig

    target = backend_of(name)
    fields = {key: kwargs.pop(key) for key in list(kwargs) if key in EnvironmentConfig.model_fields}
    if target == LOCAL:
        kwargs |= {"gateway": gateway, "layers": [str(layer) for layer in layers]}
    chosen = {"import_path": target} if ":" in target else {"type": target}
    return EnvironmentConfig(**chosen, **fields, env=dict(env or {}), kwargs=kwargs)
