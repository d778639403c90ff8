"""Parts of `scripts/kill_rollouts.py`."""
