"""Plan a turn, then record it: the pure heart of the gateway.

Invariant: `plan` changes nothing, and the prompt it returns is `ids(parent) + sampled(parent) + delta`, so a failed
call leaves no trace. Only `add` changes a session, and only by one finished turn.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from harbor_env.errors import GatewayError
from harbor_env.gateway.engines import SamplingParams
from harbor_env.gateway.limits import Spent, Stop, budget_stop, ignored, sampling_params, within_budget
from harbor_env.gateway.native_names import natively_named
from harbor_env.gateway.options import SessionOptions, context_digest
from harbor_env.gateway.rendering import Renderer
from harbor_env.gateway.tree import Attachment, Tree
from harbor_env.gateway.types import (
    Call,
    ConversationRole,
    Finding,
    Generation,
    Ids,
    Level,
    Message,
    Reply,
    Role,
    Tool,
    ToolCall,
    Turn,
    Usage,
)

UNTRAINABLE = frozenset({"logprob_not_finite", "logprobs_raw"})
"""Codes of findings whose turn is kept but never trained."""

FORKS = frozenset({"branch", "root_other_tools", "root_other_history", "root_no_exact_delta"})
"""Codes of findings that say why a turn stands beside another one."""

SCALARS = (str, int, float, bool)


@dataclass(frozen=True, slots=True)
class Plan:
    """One turn about to be sampled: where it hangs, what it adds, and what the engine is asked."""

    call: Call
    parent: Turn | None
    delta: tuple[Message, ...]
    delta_ids: Ids
    prompt_ids: array[int]
    context: str
    sampling: SamplingParams
    turn_index: int
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class Recorded:
    """A finished turn and the reply that shows it."""

    turn: Turn
    reply: Reply


@dataclass(frozen=True, slots=True)
class _Delta:
    """What a plan adds to its parent, whose ids, sampled ones included, are `before`."""

    attachment: Attachment
    before: array[int]
    ids: Ids
    findings: tuple[Finding, ...] = ()


@dataclass(slots=True)
class Session:
    """One rollout's capture: options, tree and counts. `window` is the engine's context length in tokens.

    `renderer` is None only for an engine below level `tokens`, which is sent messages instead of ids. `findings` counts
    them by code, `said` holds them. `first_call` is when the first recorded call came, in seconds since the epoch.
    """

    id: str
    options: SessionOptions
    level: Level
    window: int
    renderer: Renderer | None
    tree: Tree = field(default_factory=Tree)
    sampled_tokens: int = 0
    first_call: float = math.inf
    findings: Counter[str] = field(default_factory=Counter)
    said: set[Finding] = field(default_factory=set)
    _tools: tuple[tuple[Tool, ...], str] | None = None

    def add(self, turn: Turn) -> None:
        """Take a durable turn into the tree, whoever recorded it. Twice is once."""
        if turn.id in self.tree:
            return
        self.tree.add(turn)
        self.sampled_tokens += len(turn.sampled) or int(turn.facts.get("completion_tokens", 0))
        self.first_call = min(self.first_call, float(turn.facts.get("began", math.inf)))
        self.findings.update(finding.code for finding in turn.findings)
        self.said.update(turn.findings)

    def plan(self, call: Call, *, in_flight: int = 0, seconds: float = 0.0) -> Plan | Stop:
        """Decide which turn the call continues and what it adds. Changes nothing.

        `in_flight` counts calls of this session that are planned and not recorded, `seconds` those since its first
        call. Raises `GatewayError` where the prompt does not fit the window or the call cannot be rendered.
        """
        spent = Spent(len(self.tree) + in_flight, self.sampled_tokens, seconds)
        stop = budget_stop(self.options.budget, spent)
        if stop is not None:
            return stop
        call = self._resolve_previous(call)
        if not call.messages:
            raise GatewayError("bad_request", "messages: at least one message is required")
        context = self.context(call.tools)
        added = self._add_to_tree(call, context)
        parent = added.attachment.parent
        prompt = added.before
        prompt.extend(added.ids)
        sampling, findings = sampling_params(
            call,
            self.options,
            prompt_length=len(prompt),
            window=self.window,
            sampled_tokens=self.sampled_tokens,
        )
        dropped = ignored(call, self.options, self.level, self.findings)
        return Plan(
            call=call,
            parent=parent,
            delta=added.attachment.rest,
            delta_ids=added.ids,
            prompt_ids=prompt,
            context=context,
            sampling=sampling,
            turn_index=len(self.tree.path(parent)),
            findings=(*self._news(call.findings), *added.findings, *dropped, *findings),
        )

    def afford(self, generation: Generation) -> Generation | Stop:
        """What of a generation the budget has room for, after the turns recorded while it was sampled."""
        return within_budget(self.options.budget, Spent(len(self.tree), self.sampled_tokens), generation)

    def record(
        self,
        plan: Plan,
        generation: Generation,
        *,
        turn_id: str,
        mint: Callable[[], str],
        created: int,
        facts: Mapping[str, Any] | None = None,
        role: ConversationRole = "main",
    ) -> Recorded:
        """Turn a generation into a durable-to-be turn and the reply that shows it. Changes nothing.

        `mint` returns a fresh call id, unique beyond this session; `created` is in whole seconds since the epoch.
        """
        message, findings = self._reply_message(plan, generation)
        message = replace(message, tool_calls=tuple(_minted(call, mint) for call in message.tool_calls))
        found = (*plan.findings, *self._forked_meanwhile(plan), *generation.findings, *findings)
        exact = generation.trainable and not any(finding.code in UNTRAINABLE for finding in found)
        turn = Turn(
            id=turn_id,
            parent=plan.parent.id if plan.parent else None,
            delta=plan.delta,
            delta_ids=array("i", plan.delta_ids),
            sampled=array("i", generation.ids),
            logprobs=array("d", generation.logprobs),
            finish=generation.finish,
            reply=message,
            context=plan.context,
            prompt_length=len(plan.prompt_ids),
            trainable=self.level == "tokens" and bool(generation.ids) and exact,
            role=role,
            facts=_facts(plan, generation, facts),
            findings=found,
        )
        usage = Usage(
            len(plan.prompt_ids) or int(generation.extras.get("prompt_tokens", 0)),
            len(generation.ids) or int(generation.extras.get("completion_tokens", 0)),
            generation.cached_tokens,
        )
        reply = Reply(turn_id, message, generation.finish, usage, model=plan.call.model, created=created)
        return Recorded(turn, reply)

    def count(self, call: Call) -> int:
        """Tokens the call's prompt would have, exactly; nothing is recorded."""
        if self.renderer is None:
            raise GatewayError("bad_request", "token counts need an engine that takes token ids")
        call = self._resolve_previous(call)
        added = self._add_to_tree(call, self.context(call.tools))
        return len(added.before) + len(added.ids)

    def context(self, tools: tuple[Tool, ...]) -> str:
        """The digest of tools and rendering options; the last tools are remembered, for they rarely change."""
        if self._tools is None or self._tools[0] != tools:
            self._tools = (tools, context_digest(tools, self.options.template_kwargs))
        return self._tools[1]

    def _news(self, findings: Iterable[Finding]) -> Iterable[Finding]:
        """Findings about a history, less those said before: every call brings the whole history again."""
        return (finding for finding in findings if finding not in self.said)

    def _resolve_previous(self, call: Call) -> Call:
        """Put the history a `previous_response_id` stands for before the call's own messages.

        System messages opening the new request replace those that opened the old one: the vendor does not carry
        instructions over. The id stays: of turns that say the same, it is the one continued.
        """
        if not call.previous_id:
            return call
        turn = self.tree.get(call.previous_id)
        if turn is None:
            raise GatewayError(
                "not_found", f"previous_response_id {call.previous_id!r} is not a response of this session"
            )
        opening = _opening(call.messages)
        history = self.tree.messages(turn)
        carried = history[_opening(history) :] if opening else history
        messages = (*call.messages[:opening], *carried, *call.messages[opening:])
        return replace(call, messages=messages)

    def _add_to_tree(self, call: Call, context: str) -> _Delta:
        """What the call adds, and to which turn; an exact delta, or a new root."""
        if self.renderer is None:
            return self._text_delta(call, context)
        attachment = Attachment(None, call.messages)
        if self.options.history == "tree":
            attachment = self.tree.attach(call.messages, context, call.previous_id)
        if attachment.parent is None:
            findings = self._new_root(context) if self.options.history == "tree" else ()
            return _Delta(attachment, array("i"), self._render(call), (*findings, *self._reshaped(call)))
        before = self.tree.ids(attachment.parent)
        prompt_ids = before[: len(before) - len(attachment.parent.sampled)]
        rest = natively_named(attachment.rest, call.messages, self.tree)
        delta = self.renderer.bridge(prompt_ids, attachment.parent.sampled, rest, call.tools)
        if delta is None:
            finding = Finding("root_no_exact_delta", f"{self.renderer.name}: {self.renderer.proof}")
            findings = (finding, *self._reshaped(call))
            return _Delta(Attachment(None, call.messages), array("i"), self._render(call), findings)
        return _Delta(attachment, before, delta.ids, (*delta.findings, *self._fork(attachment.parent)))

    def _text_delta(self, call: Call, context: str) -> _Delta:
        attachment = self.tree.attach(call.messages, context, call.previous_id)
        findings = self._fork(attachment.parent) if attachment.parent else ()
        return _Delta(attachment, array("i"), array("i"), findings)

    def _fork(self, parent: Turn) -> tuple[Finding, ...]:
        """A finding where the parent already has a child: a retry, an edit or a parallel call."""
        if not self.tree.children(parent.id):
            return ()
        return (Finding("branch", f"turn {parent.id} has another continuation"),)

    def _forked_meanwhile(self, plan: Plan) -> tuple[Finding, ...]:
        """The fork a plan could not see: calls in flight side by side become siblings when they are recorded."""
        if any(finding.code in FORKS for finding in plan.findings):
            return ()
        if plan.parent is not None:
            return self._fork(plan.parent)
        return self._new_root(plan.context) if self.options.history == "tree" else ()

    def _new_root(self, context: str) -> tuple[Finding, ...]:
        roots = self.tree.children(None)
        if not roots:
            return ()
        if all(root.context != context for root in roots):
            return (Finding("root_other_tools", "tools or rendering options differ from every conversation so far"),)
        return (Finding("root_other_history", "the history continues no turn of this session"),)

    def _render(self, call: Call) -> list[int]:
        if self.renderer is None:
            return []
        return self.renderer.render(natively_named(call.messages, call.messages, self.tree), call.tools)

    def _reshaped(self, call: Call) -> Iterable[Finding]:
        """What the template could not take as it was, in a prompt rendered whole."""
        return self._news(self.renderer.notes(call.messages, call.tools)) if self.renderer else ()

    def _reply_message(self, plan: Plan, generation: Generation) -> tuple[Message, tuple[Finding, ...]]:
        if self.renderer is None or not generation.ids:
            return generation.message or Message("assistant", generation.text), ()
        tools = (*plan.call.tools, *plan.call.deferred_tools)
        parsed = self.renderer.parse(generation.ids, plan.prompt_ids, tools)
        return parsed.message, parsed.findings


def _opening(messages: Sequence[Message]) -> int:
    """How many system messages the conversation opens with."""
    role: Role = "system"
    return next((i for i, message in enumerate(messages) if message.role != role), len(messages))


def _minted(call: ToolCall, mint: Callable[[], str]) -> ToolCall:
    return replace(call, id=mint(), native_id=call.native_id or call.id)


def _facts(plan: Plan, generation: Generation, facts: Mapping[str, Any] | None) -> dict[str, Any]:
    """The request's facts, kept with the turn."""
    asked = plan.call.sampling
    names = ("temperature", "top_p", "top_k", "seed")
    sampling = {name: value for name in names if isinstance(value := getattr(asked, name), SCALARS)}
    kept: dict[str, Any] = {"model": plan.call.model, "asked": {**sampling, "max_tokens": plan.call.max_tokens}}
    kept["temperature"] = plan.sampling.temperature
    kept["max_tokens"] = plan.sampling.max_tokens
    if generation.weight_versions:
        kept["weights"] = [[span.version, span.start, span.end] for span in generation.weight_versions]
    if generation.cached_tokens:
        kept["cached_tokens"] = generation.cached_tokens
    if not generation.ids and "completion_tokens" in generation.extras:
        kept["completion_tokens"] = int(generation.extras["completion_tokens"])
    return {**kept, **(facts or {})}


def new_session(
    session_id: str,
    options: SessionOptions,
    *,
    level: Level,
    window: int,
    renderer: Renderer | None,
    turns: Iterable[Turn] = (),
) -> Session:
    """A session with the turns recorded so far, its renderer bound to the session's template variables."""
    if renderer is not None and options.template_kwargs:
        renderer = renderer.bind(options.template_kwargs)
    session = Session(session_id, options, level, window, renderer if level == "tokens" else None)
    for turn in turns:
        session.add(turn)
    return session
