"""`module:Name`, the way outsiders name what they bring: one reading of it for every table."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def import_object(path: str) -> Any:
    """What `module:Name` names. ImportError says why there is no such thing, whatever the path looks like."""
    module, _, name = path.partition(":")
    if not name or not all(part.isidentifier() for part in module.split(".")):
        raise ImportError(f"{path!r} is not module:Name")
    try:
        return getattr(import_module(module), name)
    except AttributeError as error:
        raise ImportError(str(error)) from error
