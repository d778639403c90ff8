"""Addresses for NCCL, which no test uses."""


def get_ip() -> str:
    raise NotImplementedError("This vLLM is a fake.")


def get_open_port() -> int:
    raise NotImplementedError("This vLLM is a fake.")
