"""A fake vLLM: the names that TRL imports beside `AsyncGRPOTrainer`. Nothing here serves a model."""
