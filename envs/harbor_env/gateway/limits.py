"""What a session lets a harness have: output limits, sampling distribution, budgets, and what is not honoured."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, replace
from typing import Any

from harbor_env.errors import GatewayError
from harbor_env.gateway.engines import SamplingParams
from harbor_env.gateway.options import Budget, SessionOptions
from harbor_env.gateway.types import Call, Finding, Generation, Level

ASKED = ("temperature", "top_p", "top_k", "stop", "seed")
UNSENT, UNSENT_IN_TEXT = ("stop",), ("top_k", "stop")
"""Of those, what no engine is asked for in an evaluation either: one that takes ids, and one that takes messages."""


@dataclass(frozen=True, slots=True)
class Stop:
    """A budget is spent: the harness gets `text` as a last reply, and nothing is recorded as a turn."""

    finding: Finding
    text: str


@dataclass(frozen=True, slots=True)
class Spent:
    """What a session has used so far; `seconds` since its first call."""

    calls: int
    tokens: int
    seconds: float = 0.0


def budget_stop(budget: Budget, spent: Spent) -> Stop | None:
    """The stop that is due, if any."""
    if budget.max_calls is not None and spent.calls >= budget.max_calls:
        return _stop("budget_calls", spent.calls, budget.max_calls, "model calls")
    if budget.max_output_tokens is not None and spent.tokens >= budget.max_output_tokens:
        return _stop("budget_output_tokens", spent.tokens, budget.max_output_tokens, "output tokens")
    if budget.max_seconds is not None and spent.seconds >= budget.max_seconds:
        return seconds_stop(budget.max_seconds, spent.seconds)
    return None


def seconds_stop(limit: float, used: float) -> Stop:
    """The stop of a session whose wall time is over."""
    return _stop("budget_seconds", round(used, 1), limit, "seconds")


def _stop(code: str, used: float, limit: float, unit: str) -> Stop:
    text = f"The budget of {limit} {unit} for this session is spent. Stop here."
    return Stop(Finding(code, f"{used} of {limit} {unit}"), text)


def within_budget(budget: Budget, spent: Spent, generation: Generation) -> Generation | Stop:
    """The generation as far as the budget still reaches: calls made side by side may have spent what was left.

    Its beginning is what a lower output limit would have sampled, token for token.
    """
    stop = budget_stop(budget, spent)
    if stop is not None or budget.max_output_tokens is None:
        return stop or generation
    room, sampled = budget.max_output_tokens - spent.tokens, len(generation.ids)
    if sampled <= room:
        return generation
    detail = f"sampled {sampled}, kept {room}: calls at the same time spent the rest of the budget"
    spans = (replace(span, end=min(span.end, room)) for span in generation.weight_versions if span.start < room)
    return replace(
        generation,
        ids=generation.ids[:room],
        logprobs=generation.logprobs[:room],
        finish="length",
        weight_versions=tuple(spans),
        findings=(*generation.findings, Finding("max_tokens_clamped", detail)),
    )


def sampling_params(
    call: Call, options: SessionOptions, *, prompt_length: int, window: int, sampled_tokens: int
) -> tuple[SamplingParams, tuple[Finding, ...]]:
    """What to sample with: the session's distribution, and the harness's output limit clamped to the room left.

    GatewayError(overflow) where no token fits behind the prompt.
    """
    limit, findings = _output_limit(call, options, prompt_length, window, sampled_tokens)
    pinned, asked = options.sampling, call.sampling
    if options.purpose == "train":
        temperature = 1.0 if pinned.temperature is None else pinned.temperature
        return SamplingParams(limit, temperature, seed=pinned.seed), findings
    params = SamplingParams(
        limit,
        temperature=_first(pinned.temperature, asked.temperature, 1.0),
        top_p=_first(pinned.top_p, asked.top_p, 1.0),
        top_k=_first(pinned.top_k, asked.top_k, -1),
        seed=_first(pinned.seed, asked.seed, None),
    )
    return params, findings


def ignored(call: Call, options: SessionOptions, level: Level, known: Container[str]) -> tuple[Finding, ...]:
    """What the harness asked for and does not get. A code in `known` was said before and is not said again."""
    found: list[Finding] = []
    own = [name for name in ASKED if getattr(call.sampling, name) not in (None, ())]
    if options.purpose == "eval":
        own = [name for name in own if name in (UNSENT if level == "tokens" else UNSENT_IN_TEXT)]
    if own:
        found.append(Finding("sampling_ignored", f"{', '.join(own)}: the session's own distribution is used"))
    if call.thinking is not None and call.thinking not in _thinking_set(options):
        found.append(Finding("thinking_ignored", f"asked {'on' if call.thinking else 'off'}: the session decides"))
    if call.tool_choice.mode != "auto" and level == "tokens":
        found.append(Finding("tool_choice_ignored", f"{call.tool_choice.mode} {call.tool_choice.name}".strip()))
    if call.response_schema is not None and level == "tokens":
        found.append(Finding("response_schema_ignored", "the reply is not constrained to the schema"))
    return tuple(finding for finding in found if finding.code not in known)


def _thinking_set(options: SessionOptions) -> tuple[Any, ...]:
    """What the session's template variables say about thinking, under the names chat templates have for it."""
    return tuple(
        options.template_kwargs[name] for name in ("enable_thinking", "thinking") if name in options.template_kwargs
    )


def _output_limit(
    call: Call, options: SessionOptions, prompt_length: int, window: int, sampled_tokens: int
) -> tuple[int, tuple[Finding, ...]]:
    room = window - prompt_length
    if room < 1:
        sentence = f"prompt is too long: {prompt_length} tokens > {window} maximum"
        raise GatewayError("overflow", sentence, prompt_tokens=prompt_length, window=window)
    cap = options.budget.max_output_tokens
    left = None if cap is None else cap - sampled_tokens
    limit = min(value for value in (call.max_tokens, options.sampling.max_tokens, left, room) if value is not None)
    if call.max_tokens is None or limit >= call.max_tokens:
        return limit, ()
    return limit, (Finding("max_tokens_clamped", f"asked {call.max_tokens}, given {limit}"),)


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)
