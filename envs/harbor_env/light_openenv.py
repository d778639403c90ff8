"""Imports openenv without its web interface, which alone would load gradio and pandas: seconds for every client.

Import this module before any other of openenv's. openenv itself treats the web interface as optional; a server that
is asked for it (ENABLE_WEB_INTERFACE) still gets it, because openenv imports it again when it is used.
"""

from __future__ import annotations

import sys

_HEAVY = "gradio"

if _HEAVY not in sys.modules and "openenv.core" not in sys.modules:
    sys.modules[_HEAVY] = None  # type: ignore[assignment]  # an import of it now raises ModuleNotFoundError
    try:
        import openenv.core
    finally:
        del sys.modules[_HEAVY]
else:
    import openenv.core  # noqa: F401
