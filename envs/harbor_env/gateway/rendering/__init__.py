"""Messages to ids and back, for one model family at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from harbor_env.gateway.types import Finding, Ids, Message, Tool


@dataclass(frozen=True, slots=True)
class Delta:
    """Ids to append after a turn's prompt and sampled ids, up to and including the next generation prompt.

    They close the previous message first where sampling did not (length cut), so there is never a missing or a second
    end of message.
    """

    ids: Ids
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class Parsed:
    """Sampled ids as a message. `message.tool_calls[i].id` is empty: the session mints it."""

    message: Message
    findings: tuple[Finding, ...] = ()


class Renderer(Protocol):
    """Rendering for one tokenizer and chat template. Pure: the same arguments give the same ids.

    `tito` is `exact` when deltas are proved append-only, else `roots only` with the reason in `proof`.
    `stop_ids` end a turn; `opening_stop_ids` are those among them that also open the next message (GLM).
    `notes` are the findings a full render of these messages comes with: what the template does not take as it is.
    `bridge` returns None where no exact delta exists. It reads `prompt_ids` but never copies them. `new_messages` may
    hold assistant messages no turn sampled: they are rendered as context.
    `parse` gets the prompt's ids only to see what was prefilled (an opened `<think>`).
    `compose` gives the ids a model of this family would sample for an assistant message, stop token included.
    `decode` gives exact text, special tokens included. `encode` gives the ids of plain text; the spelling of a special
    token in it stays text. `bind` returns a renderer with other template variables.
    """

    name: str
    tito: Literal["exact", "roots only"]
    proof: str
    stop_ids: tuple[int, ...]
    opening_stop_ids: tuple[int, ...]

    def render(self, messages: Sequence[Message], tools: Sequence[Tool]) -> list[int]: ...
    def notes(self, messages: Sequence[Message], tools: Sequence[Tool]) -> tuple[Finding, ...]: ...
    def bridge(
        self, prompt_ids: Ids, sampled_ids: Ids, new_messages: Sequence[Message], tools: Sequence[Tool]
    ) -> Delta | None: ...
    def parse(self, ids: Ids, prompt_ids: Ids, tools: Sequence[Tool]) -> Parsed: ...
    def compose(self, message: Message, tools: Sequence[Tool]) -> list[int]: ...
    def decode(self, ids: Ids) -> str: ...
    def encode(self, text: str) -> list[int]: ...
    def bind(self, template_kwargs: Mapping[str, Any]) -> Renderer: ...
