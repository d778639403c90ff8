"""One call through the gateway: plan, generate, record, commit.

Invariant: the engine call is the only long await; before the commit nothing changed, after it the turn is durable.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from harbor_env.errors import EngineError, GatewayError, RenderingError
from harbor_env.gateway.dialects import Dialect
from harbor_env.gateway.engines import EngineRequest
from harbor_env.gateway.limits import Stop, seconds_stop
from harbor_env.gateway.pace import Pace
from harbor_env.gateway.roles import conversation_role
from harbor_env.gateway.session import Plan
from harbor_env.gateway.sessions import LiveSession
from harbor_env.gateway.store import Store
from harbor_env.gateway.types import Call, Finding, Generation, Message, Reply, Usage


@dataclass(frozen=True, slots=True)
class Answer:
    """A reply, and the bytes that show it: the whole body, or every event of its stream."""

    reply: Reply
    data: bytes


async def take_turn(
    store: Store, pace: Pace, live: LiveSession, call: Call, *, dialect: Dialect, headers: Mapping[str, str]
) -> Answer:
    """Answer one call. Cancelling this before the commit aborts the generation and leaves no turn.

    The reply is written before the commit: what cannot be shown is no turn. `pace` bounds how many calls are rendered
    or parsed in one pass of the loop. `headers`, by lower-case name, are kept with the turn and tell which conversation
    of the harness it belongs to. Raises GatewayError, EngineError among them; the session is then as it was.
    """
    await pace.turn()
    now = live.clock()
    outcome: Plan | Stop | Answer = plan(live, call, now)
    if isinstance(outcome, Plan):
        live.first_call = min(live.first_call, now)
        # From here until the turn is in the tree, or will never be, the budget counts it as on its way.
        live.in_flight += 1
        try:
            outcome = await _take_planned(store, pace, live, outcome, dialect, headers)
        finally:
            live.in_flight -= 1
    if isinstance(outcome, Answer):
        return outcome
    await store.add_findings(live.session.id, [outcome.finding])
    return _written(dialect, _stopped(outcome, call), call)


def _written(dialect: Dialect, reply: Reply, call: Call) -> Answer:
    data = b"".join(dialect.stream(reply, call)) if call.stream else dialect.encode(reply, call)
    return Answer(reply, data)


async def _take_planned(
    store: Store, pace: Pace, live: LiveSession, planned: Plan, dialect: Dialect, headers: Mapping[str, str]
) -> Answer | Stop:
    began = live.clock()
    try:
        generation = await _generate(live, planned)
    except EngineError as error:
        # No turn, but not silent: a rollout that came to nothing must say whose fault it was.
        await store.add_findings(live.session.id, [Finding(error.kind, str(error))])
        raise
    if isinstance(generation, Stop):
        return generation
    seconds = live.clock() - began
    facts = {"dialect": dialect.name, "headers": headers, "began": round(began, 3), "engine_s": round(seconds, 3)}
    context = {"tools": planned.call.tools, "template_kwargs": live.session.options.template_kwargs}
    role = conversation_role(live.markers, headers, planned.call, planned.parent)
    while True:
        await pace.turn()
        kept = live.session.afford(generation)
        if isinstance(kept, Stop):
            return kept
        recorded = live.session.record(
            planned,
            kept,
            turn_id=f"turn_{secrets.token_hex(12)}",
            mint=_call_id,
            created=int(began),
            facts=facts,
            role=role,
        )
        answer = _written(dialect, recorded.reply, planned.call)
        counted = live.seq if live.session.options.budget.counts_turns else None
        committed = await asyncio.shield(store.commit_turn(live.session.id, recorded.turn, context, after=counted))
        if committed is not None:
            live.wrote(committed, recorded.turn)
            return answer
        live.read(store.turns_after(live.session.id, live.seq))


def plan(live: LiveSession, call: Call, now: float) -> Plan | Stop:
    """Plan a turn; a conversation the template refuses is the caller's error."""
    with _refused_for_good():
        return live.session.plan(call, in_flight=live.in_flight, seconds=live.seconds(now))


def count(live: LiveSession, call: Call) -> int:
    """Tokens of the call's prompt, refused like the call itself."""
    with _refused_for_good():
        return live.session.count(call)


@contextmanager
def _refused_for_good() -> Iterator[None]:
    try:
        yield
    except RenderingError as error:
        raise GatewayError("bad_request", str(error)) from error


async def _generate(live: LiveSession, planned: Plan) -> Generation | Stop:
    """Sample; where the session's wall time ends meanwhile, the generation is aborted."""
    renderer, budget = live.session.renderer, live.session.options.budget
    request = EngineRequest(
        id=secrets.token_hex(12),
        prompt_ids=planned.prompt_ids,
        sampling=planned.sampling,
        stop_ids=renderer.stop_ids if renderer else (),
        call=planned.call,
        turn_index=planned.turn_index,
        renderer=renderer,
    )
    left = None if budget.max_seconds is None else budget.max_seconds - live.seconds(live.clock())
    try:
        async with asyncio.timeout(left) as deadline:
            generation = await live.engine.engine.generate(request)
    except TimeoutError:
        if not deadline.expired() or budget.max_seconds is None:
            raise
        return seconds_stop(budget.max_seconds, max(budget.max_seconds, live.seconds(live.clock())))
    if generation.finish == "abort":
        raise EngineError("engine_error", "The engine aborted this generation; asking again may work.")
    return generation


def _call_id() -> str:
    return f"call_{secrets.token_hex(12)}"


def _stopped(stop: Stop, call: Call) -> Reply:
    reply_id, message = f"stop_{secrets.token_hex(8)}", Message("assistant", stop.text)
    return Reply(reply_id, message, "stop", Usage(0, 0), model=call.model, created=int(time.time()))
