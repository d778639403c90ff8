"""What each harness's Harbor adapter is given, by harness: a YAML file that batches and training runs share.

    mini-swe-agent:
      config: {agent: {system_template: "One bash command per reply."}}
    pi:
      arguments: [--tools, bash]

A harness that is not in the file gets nothing; a variant (`pi@messages`) takes its own entry, or its harness's.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from harbor_env.errors import UsageError

AgentKwargs = Mapping[str, Mapping[str, Any]]


def read_agent_kwargs(path: Path) -> AgentKwargs:
    """UsageError: the file cannot be read, or is not a mapping of mappings."""
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UsageError(f"{path} cannot be read as YAML: {error}") from None
    return checked(document, str(path))


def checked(document: Any, where: str) -> AgentKwargs:
    """UsageError: not a mapping of harnesses to mappings."""
    entries = document if isinstance(document, Mapping) else None
    if entries is None or not all(isinstance(entry, Mapping) for entry in entries.values()):
        raise UsageError(
            f"{where}: give a mapping of harness to arguments, such as `pi: {{arguments: [--tools, bash]}}`."
        )
    return entries


def kwargs_of(harness: str, entries: AgentKwargs) -> Mapping[str, Any]:
    """The harness's own entry, or that of the harness it is a variant of."""
    return entries.get(harness) or entries.get(harness.partition("@")[0]) or {}
