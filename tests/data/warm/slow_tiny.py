"""A module that takes a while to import, and remembers where that was."""

import os
import time

IMPORTED_IN = os.getpid()
MODE = os.environ.get("TINY_MODE", "plain")
SEEN = []
os.environ["TINY_WAS_HERE"] = "yes"

_until = time.process_time() + 0.3
while time.process_time() < _until:
    pass
