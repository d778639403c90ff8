"""Reasoning: the part of a reply between `<think>` and `</think>`, which the prompt may have opened already.

Invariant: the region is looked for only at the start of a reply; a call opener ends one that was never closed.
"""

from __future__ import annotations

from dataclasses import dataclass

from harbor_env.gateway.rendering.guard import clear


@dataclass(frozen=True, slots=True)
class Thinking:
    """`before`, `after`: all a family writes around reasoning; `empty`: what it writes where there is none.

    `opener`, `closer`: the tags in decoded text."""

    before: str = "<think>\n"
    after: str = "\n</think>\n\n"
    empty: str = ""
    opener: str = "<think>"
    closer: str = "</think>"

    def split(self, text: str, call_opener: str, *, opened: bool) -> tuple[str, str]:
        """Reasoning without its tags, and the rest of the reply."""
        body = text.lstrip()
        if body.startswith(self.opener):
            body = body[len(self.opener) :]
        elif not opened:
            lead = self.before[: len(self.before) - len(self.before.lstrip())]
            return "", text.removeprefix(lead)
        close = body.find(self.closer)
        if close >= 0:
            return clear(body[:close]).strip(), body[close + len(self.closer) :].lstrip("\n")
        call = body.find(call_opener) if call_opener else -1
        if call >= 0:
            return clear(body[:call]).strip(), body[call:]
        return clear(body).strip(), ""

    def is_open(self, text: str, call_opener: str, *, opened: bool) -> bool:
        """Whether a reply ends inside its reasoning."""
        body = text.lstrip()
        if body.startswith(self.opener):
            body = body[len(self.opener) :]
        elif not opened:
            return False
        return self.closer not in body and not (call_opener and call_opener in body)

    def opened_by(self, prompt_tail: str) -> bool:
        """Whether the end of a prompt leaves reasoning open."""
        return prompt_tail.rfind(self.opener) > prompt_tail.rfind(self.closer)

    def write(self, reasoning: str, prompt_tail: str) -> str:
        """Reasoning as sampled after a prompt that may have opened it already."""
        if not self.opened_by(prompt_tail):
            return f"{self.before}{reasoning}{self.after}" if reasoning else self.empty
        rest = self.before.partition("<think>")[2]
        tail = prompt_tail[prompt_tail.rfind(self.opener) + len(self.opener) :]
        return rest.removeprefix(tail) + reasoning + self.after
