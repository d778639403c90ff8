"""Weights over NCCL, which no test uses."""


def packed_nccl_broadcast_producer(*args: object, **options: object) -> None:
    raise NotImplementedError("This vLLM is a fake.")
