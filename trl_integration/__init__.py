"""Feeds TRL AsyncGRPOTrainer from harness rollouts."""
