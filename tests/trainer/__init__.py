"""Tests that need torch and TRL; they run in an environment of their own, which scripts/trainer_test_env.sh makes."""
