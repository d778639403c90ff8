"""Errors in OpenAI's shape, for Chat Completions and Responses alike.

Source: OpenAI's error-code guide; the overflow code is the one coding agents compact on.
"""

from __future__ import annotations

from typing import Any

from harbor_env.errors import ErrorKind, GatewayError

_SHAPE: dict[ErrorKind, tuple[str, str | None]] = {
    "bad_request": ("invalid_request_error", None),
    "overflow": ("invalid_request_error", "context_length_exceeded"),
    "unauthorized": ("invalid_request_error", "invalid_api_key"),
    "not_found": ("invalid_request_error", "not_found"),
    "conflict": ("invalid_request_error", "conflict"),
    "too_large": ("invalid_request_error", "request_too_large"),
    "unsupported_encoding": ("invalid_request_error", "unsupported_content_encoding"),
    "rate_limited": ("requests", "rate_limit_exceeded"),
    "engine_error": ("server_error", "engine_error"),
    "engine_down": ("server_error", "server_is_overloaded"),
    "engine_timeout": ("server_error", "engine_timeout"),
    "internal": ("server_error", "server_error"),
}


def openai_error(error: GatewayError, param: str) -> dict[str, Any]:
    """The inner `error` object. `param` names the field an overflow is about."""
    kind, code = _SHAPE[error.kind]
    overflow = error.kind == "overflow"
    message = _overflow(error) if overflow else error.message
    return {"message": message, "type": kind, "param": param if overflow else None, "code": code}


def _overflow(error: GatewayError) -> str:
    if error.window is None or error.prompt_tokens is None:
        return f"Your input exceeds the context window of this model. {error.message}"
    return (
        f"This model's maximum context length is {error.window} tokens. However, your messages resulted in "
        f"{error.prompt_tokens} tokens. Please reduce the length of the messages."
    )
