"""What a request asks for and will not get, as findings.

Invariant: a field that could change what a vendor samples is read, named by a finding, or refused; null, false, zero
and empty ask for nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from harbor_env.gateway.dialects.fields import Json, WrongField
from harbor_env.gateway.types import Finding

CONTINUITY = dict.fromkeys(
    ("required_prefix_token_ids", "prompt_token_ids", "continue_final_message"),
    "prompts are continued by their messages here, leave it out",
)
"""Fields some engines take a prompt's tokens by: without them the request means something else."""


def words(names: str) -> frozenset[str]:
    """A set of field names, written as a sentence of them."""
    return frozenset(names.split())


def refuse_fields(body: Json, refused: Mapping[str, str]) -> None:
    """A field whose loss would change the conversation itself is refused with what to do instead."""
    for key, advice in refused.items():
        if body.get(key):
            raise WrongField(advice, key)


def unread_fields(obj: Json, known: frozenset[str], within: str = "") -> list[Finding]:
    """A finding for each field that is neither read nor known to mean nothing here. `within` opens its path."""
    if obj.keys() <= known:
        return []
    return [Finding("field_ignored", f"{within}{key[:80]}") for key, value in obj.items() if key not in known and value]


def note(findings: list[Finding], noted: Iterable[Finding]) -> None:
    """Add findings about one of many alike, such as tools, each once."""
    findings.extend(finding for finding in noted if finding not in findings)


def note_effort(findings: list[Finding], field: str, value: Any) -> None:
    """How hard to think was asked for; a policy thinks or does not."""
    if value not in (None, ""):
        findings.append(Finding("effort_ignored", f"{field}: {str(value)[:80]}"))


def note_parallel(findings: list[Finding], forbidden: bool) -> None:
    """One call at a time was asked for; sampling is not constrained to it."""
    if forbidden:
        findings.append(Finding("parallel_calls_not_prevented"))


def note_allowed(findings: list[Finding], names: Iterable[str]) -> None:
    """A choice among some of the tools was asked for; all of them stay in the prompt, and none is barred."""
    findings.append(Finding("allowed_tools_ignored", ", ".join(names)[:200]))


def note_prefill(findings: list[Finding]) -> None:
    """A reply was begun by the harness; it is rendered as a turn of its own."""
    findings.append(Finding("prefill_not_continued", "the last message is an assistant's"))
