"""The harness's own trajectory (ATIF) beside what was captured: did every tool call go through the gateway, and back?

Pure. A trajectory is what the harness believes happened, so a call it made that no turn sampled means a model was asked
around the gateway, and the capture is not the rollout.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class AtifCheck:
    """`none`: no trajectory to compare with. `detail` says what differs."""

    status: Literal["match", "differ", "none"]
    detail: str = ""


NO_ATIF = AtifCheck("none")


@dataclass(frozen=True, slots=True)
class CapturedCall:
    """A tool call a turn sampled; `id` is the one minted for the wire, "" where the dialect carries none.

    The harness may have `discarded` the reply it stood in: then its trajectory need not have it. `turn` is that
    reply's, "" where it is not known.
    """

    id: str
    name: str
    discarded: bool = False
    turn: str = ""


def compare(trajectory: Mapping[str, Any] | None, captured: Sequence[CapturedCall], turns: int) -> AtifCheck:
    """Compare a trajectory with the tool calls of a session of `turns` turns.

    Calls are matched by id where both sides have ids, else by name and number. Fewer calls in the trajectory than
    captured differ too, except none at all: some harnesses keep calls out of their steps.
    """
    if trajectory is None:
        return NO_ATIF
    steps = list(_agent_steps(trajectory))
    calls = [call for step in steps for call in step.get("tool_calls") or ()]
    asked = _model_calls(steps, captured)
    problems = [] if asked <= turns else [f"{asked} agent steps, {turns} turns captured"]
    if calls and captured:
        problems += _call_problems(calls, captured)
    return AtifCheck("differ", "; ".join(problems)) if problems else AtifCheck("match")


def _model_calls(steps: Sequence[Mapping[str, Any]], captured: Sequence[CapturedCall]) -> int:
    """How many turns the steps stand for: a harness may give each of a turn's parallel calls a step of its own."""
    turn_of = {call.id: call.turn for call in captured if call.id and call.turn}
    named = [{turn_of.get(str(call.get("tool_call_id"))) for call in step.get("tool_calls") or ()} for step in steps]
    turns = {turn for each in named for turn in each if turn}
    return len(turns) + sum(not any(each) for each in named)


def count_tool_calls(trajectory: Mapping[str, Any] | None) -> int | None:
    """The tool calls the harness says it made, its subagents' included; None where it keeps no count."""
    if trajectory is None:
        return None
    return sum(len(step.get("tool_calls") or ()) for step in _agent_steps(trajectory))


def _agent_steps(trajectory: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for step in trajectory.get("steps") or ():
        sampled = step.get("llm_call_count") != 0 and not step.get("is_copied_context")
        if step.get("source") == "agent" and sampled and not _failed(step):
            yield step
    for subagent in trajectory.get("subagent_trajectories") or ():
        yield from _agent_steps(subagent)


def _failed(step: Mapping[str, Any]) -> bool:
    """A step that says nothing, does nothing and cost no token: some harnesses keep one for a call that failed."""
    cost = (step.get("metrics") or {}).get("completion_tokens")
    return cost == 0 and not step.get("message") and not step.get("tool_calls")


def _call_problems(calls: Sequence[Mapping[str, Any]], captured: Sequence[CapturedCall]) -> list[str]:
    minted = {call.id for call in captured if call.id}
    kept = [call for call in captured if not call.discarded]
    shown = {str(call.get("tool_call_id") or "") for call in calls}
    if minted & shown:
        return [
            *_listed("not captured", (name for name in shown - minted if name)),
            *_listed("not in the trajectory", {call.id for call in kept if call.id} - shown),
        ]
    theirs = Counter(str(call.get("function_name") or "") for call in calls)
    return [
        *_listed("not captured", (theirs - Counter(call.name for call in captured)).elements()),
        *_listed("not in the trajectory", (Counter(call.name for call in kept) - theirs).elements()),
    ]


def _listed(what: str, names: Iterable[str]) -> list[str]:
    found = sorted(names)
    return [f"{len(found)} tool calls {what} ({', '.join(found[:3])})"] if found else []
