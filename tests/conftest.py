"""Settings of the whole suite."""

from __future__ import annotations

import os
from importlib.util import find_spec

from hypothesis import HealthCheck, settings

# A busy machine is no failure, so no example has a deadline. CI repeats the same examples on every run; at a desk each
# run draws new ones.
settings.register_profile("desk", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("desk"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "desk")

# What needs torch and TRL runs where they are, in an environment of its own.
collect_ignore = [] if find_spec("trl") else ["trainer"]
