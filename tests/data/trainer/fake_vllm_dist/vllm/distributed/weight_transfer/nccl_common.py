"""Weights over NCCL, which no test uses."""


def trainer_init(*args: object, **options: object) -> None:
    raise NotImplementedError("This vLLM is a fake.")
