"""The vocabulary of the gateway: what a harness asked, what an engine sampled, what a turn is.

Everything here is frozen, slotted and free of IO. A dialect decodes a body to a `Call`, a renderer turns messages into
ids, an engine returns a `Generation`, the session records a `Turn` and hands a `Reply` back to the dialect.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Ids = Sequence[int]
"""Token ids. Inside a `Turn` they are `array('i')`; code that only reads takes any sequence."""

Role = Literal["system", "user", "assistant", "tool"]
Finish = Literal["stop", "length", "abort"]
ToolKind = Literal["function", "custom", "builtin"]
"""A `builtin` tool is a function whose calls have an item type of their own on the wire (Responses `local_shell`)."""
ConversationRole = Literal["main", "subagent", "compaction", "auxiliary"]
Level = Literal["tokens", "logprobs", "text"]
"""What an engine was measured to return: ids and aligned log probabilities, log probabilities only, or text only."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something dropped, clamped, ignored, forked or excluded; `code` is stable, `detail` is for people."""

    code: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call an assistant made.

    `id` is the id on the wire ("" where the dialect carries none). `arguments` is the JSON text as sampled or as the
    harness sent it, valid or not; for a `custom` tool it is the free text itself. `native_id` is the id the model
    wrote, for the families whose template prints ids (Kimi); "" elsewhere.
    """

    id: str
    name: str
    arguments: str
    native_id: str = ""


@dataclass(frozen=True, slots=True)
class Message:
    """One message, whatever dialect it came from.

    `content` is the joined text ("" for null, missing or empty). A `developer` message is a `system` message. A tool
    result is a `tool` message: `tool_call_id` names the call it answers, `name` the function where the dialect says
    it, `is_error` the dialect's error flag.
    """

    role: Role
    content: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""
    name: str = ""
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool the harness offers. `parameters` is its JSON schema; a `custom` tool takes one free text instead.

    `namespace` is the Responses namespace the tool lives in, "" for none.
    """

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    kind: ToolKind = "function"
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """`mode` is auto, none, required, or named (then `name` is the one tool)."""

    mode: Literal["auto", "none", "required", "named"] = "auto"
    name: str = ""


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling values as a harness asked for them; None where it did not. Recorded; used only outside training."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """One decoded request. The same conversation decodes to an equal `Call` in every dialect.

    `max_tokens` is the output limit asked for (None: none). `thinking` is None where the harness did not say.
    `response_schema` is a JSON schema the reply was asked to follow. `previous_id` is a Responses
    `previous_response_id`; the session resolves it to history. `findings` are what decoding dropped or repaired.
    `deferred_tools` were loaded in mid-conversation and are described in a tool result's text: they are never rendered
    with `tools`, and only serve to type the arguments of a sampled call. `compaction` asks for the reply as a
    Responses compaction item, in a response of its own (`inline`) or from the compaction endpoint.
    """

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    model: str = ""
    stream: bool = False
    max_tokens: int | None = None
    sampling: Sampling = Sampling()
    tool_choice: ToolChoice = ToolChoice()
    thinking: bool | None = None
    response_schema: Mapping[str, Any] | None = None
    previous_id: str = ""
    include_usage: bool = True
    findings: tuple[Finding, ...] = ()
    deferred_tools: tuple[Tool, ...] = ()
    compaction: Literal["", "inline", "endpoint"] = ""


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts as the engine saw them: rendered prompt, sampled reply, and the part of the prompt it had cached."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Reply:
    """One complete answer, ready for any dialect. `created` is in whole seconds since the epoch.

    `message.tool_calls[i].id` are the minted wire ids. `finish` is `stop` or `length`; a dialect derives its own
    "tool calls" finish from the message.
    """

    id: str
    message: Message
    finish: Finish
    usage: Usage
    model: str = ""
    created: int = 0


@dataclass(frozen=True, slots=True)
class WeightSpan:
    """Sampled tokens `start:end` of one generation came from weights `version`."""

    version: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Generation:
    """What an engine sampled: `ids` (the stop token included, if one was sampled) and one log probability per id.

    `logprobs` are natural logs under the distribution sampled from. An engine below level `tokens` returns no ids and
    fills `text` instead (and `message`, where it parsed calls itself). `trainable` is False where the log probabilities
    are not those of the distribution sampled from; a finding then says why.
    """

    ids: Ids
    logprobs: Sequence[float]
    finish: Finish
    weight_versions: tuple[WeightSpan, ...] = ()
    cached_tokens: int = 0
    text: str = ""
    message: Message | None = None
    findings: tuple[Finding, ...] = ()
    extras: Mapping[str, Any] = field(default_factory=dict)
    trainable: bool = True


@dataclass(frozen=True, slots=True)
class Turn:
    """One model call: a node of the session's tree. Written once, never changed.

    The prompt of this turn is, along its path, `parent.prompt + parent.sampled + delta_ids`. `delta` are the messages
    those ids render (all of them for a root). `sampled` and `logprobs` always have one length. `context` names tools
    and rendering options (a digest): a child has its parent's. `prompt_length` counts tokens before sampling.
    `trainable` is False where no exact log probabilities exist. `facts` are the request's facts: dialect, model asked,
    sampling asked, chosen headers, times in seconds, weight versions.
    """

    id: str
    parent: str | None
    delta: tuple[Message, ...]
    delta_ids: array[int]
    sampled: array[int]
    logprobs: array[float]
    finish: Finish
    reply: Message
    context: str
    prompt_length: int
    trainable: bool = True
    role: ConversationRole = "main"
    facts: Mapping[str, Any] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
