"""Every error this package raises, by the boundary it arose at.

HarborEnvError
    GatewayError          answered to a harness in its own dialect; nothing changed in the session
        EngineError       the engine's fault: down, slow, refusing, or answering nonsense
    RenderingError        a conversation or template that cannot be turned into ids
    SandboxError          the sandbox's fault: an infrastructure failure, never a score
    TaskError             a task or dataset that is not usable, with the list of all that is wrong
    UsageError            a name or option the user got wrong, with what to type instead
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ErrorKind = Literal[
    "bad_request",  # 400: malformed JSON, wrong types, text-only limits
    "overflow",  # 400: the prompt does not fit the engine's window
    "unauthorized",  # 401: no key, or one that was never minted here
    "not_found",  # 404: no such route, session or response id
    "conflict",  # 409: the session was deleted, or its options changed
    "too_large",  # 413: body over the limit, compressed or not
    "unsupported_encoding",  # 415: a content-encoding not spoken here
    "rate_limited",  # 429: the engine's own, kept
    "engine_error",  # 502: the engine answered, but not with a usable generation
    "engine_down",  # 503: the engine did not answer
    "engine_timeout",  # 504: the engine did not answer in time
    "internal",  # 500: a bug of ours
]

STATUS: dict[ErrorKind, int] = {
    "bad_request": 400,
    "overflow": 400,
    "unauthorized": 401,
    "not_found": 404,
    "conflict": 409,
    "too_large": 413,
    "unsupported_encoding": 415,
    "rate_limited": 429,
    "engine_error": 502,
    "engine_down": 503,
    "engine_timeout": 504,
    "internal": 500,
}
RETRYABLE: frozenset[ErrorKind] = frozenset({"rate_limited", "engine_error", "engine_down", "engine_timeout"})


class HarborEnvError(Exception):
    """Base of all errors of this package; `str(error)` is a sentence fit for a user, or a sentence and a list."""


class GatewayError(HarborEnvError):
    """A request that was not served. `retry_after` is in seconds, None where the boundary did not say.

    For an overflow, `prompt_tokens` and `window` say how long the prompt is and how long it may be, where known.
    """

    def __init__(
        self,
        kind: ErrorKind,
        message: str,
        *,
        retry_after: float | None = None,
        prompt_tokens: int | None = None,
        window: int | None = None,
    ) -> None:
        super().__init__(message)
        self.kind: ErrorKind = kind
        self.message = message
        self.retry_after = retry_after
        self.prompt_tokens = prompt_tokens
        self.window = window

    @property
    def status(self) -> int:
        return STATUS[self.kind]

    @property
    def retryable(self) -> bool:
        return self.kind in RETRYABLE


class EngineError(GatewayError):
    """The engine could not give a usable generation. `kind` is overflow, rate_limited or one of the engine kinds."""


class RenderingError(HarborEnvError):
    """A template refused a conversation, or no renderer fits the model."""


class SandboxError(HarborEnvError):
    """A sandbox could not be made, reached or kept."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a dataset: the task's name, the file or variable, what is wrong and what to do about it."""

    task: str
    file: str
    what: str
    advice: str

    def __str__(self) -> str:
        return f"{self.task}: {self.file} {self.what}; {self.advice}"


SHOWN_PROBLEMS = 50


class TaskError(HarborEnvError):
    """A dataset or task folder is not what was expected. `problems` is all that is wrong, where there is a list."""

    def __init__(self, message: str, problems: tuple[Problem, ...] = ()) -> None:
        lines = [f"  {problem}" for problem in problems[:SHOWN_PROBLEMS]]
        if len(problems) > SHOWN_PROBLEMS:
            lines.append(f"  and {len(problems) - SHOWN_PROBLEMS} more")
        super().__init__("\n".join([f"{message}:", *lines]) if problems else message)
        self.message = message
        self.problems = problems


class UsageError(HarborEnvError):
    """A name or option that does not exist; the message says what does."""
