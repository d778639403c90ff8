"""The session as a trainer receives it: a compact document, and its expansion to OpenEnv's `TrainingTrace`.

The document holds each turn's ids and messages once, path by path, parents first. Expanding happens at the reader,
because a `TrainingTrace` repeats the whole prompt in every turn.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from harbor_env.gateway.export import openai_shape
from harbor_env.gateway.export.session_export import SessionExport, are_log_probabilities
from harbor_env.gateway.types import Turn

if TYPE_CHECKING:
    from openenv.core.harness import TrainingTrace

FORMAT = "harbor-trace-1"


def document(session: SessionExport) -> dict[str, Any]:
    """The compact trace; numpy arrays inside. Every turn stands once, right after what it continues where it can.

    A turn's `messages` are those its delta added; `tools` are per context. `trained` says whether the mask of its
    sampled tokens is 1. Log probabilities that are not finite become null in JSON.
    """
    ordered = [turn for path in session.paths() for turn in path.owned]
    first_of_context = {turn.context: turn for turn in reversed(ordered)}
    return {
        "format": FORMAT,
        "session_id": session.session_id,
        "metadata": dict(session.metadata),
        "trained_roles": list(session.trained_roles),
        "tools": {
            context: [openai_shape.tool(tool) for tool in session.tools(turn)]
            for context, turn in first_of_context.items()
        },
        "turns": [_turn(session, turn) for turn in ordered],
        "findings": [{"code": finding.code, "detail": finding.detail} for finding in session.findings],
    }


def encode(session: SessionExport) -> bytes:
    """The compact trace as JSON."""
    return orjson.dumps(document(session), option=orjson.OPT_SERIALIZE_NUMPY)


def expand(trace: Mapping[str, Any]) -> TrainingTrace:
    """OpenEnv's trace from a decoded compact document: one `TrainingTurn` per turn, in its order.

    Prompts are whole; the mask covers prompt and completion; requests and responses are OpenAI-shaped. A turn without
    ids (a text-only engine) is left out: nothing could be trained on it. ValueError: not such a document.
    """
    from openenv.core.harness import TrainingTrace
    from openenv.core.harness.training import TrainingTurn

    if trace.get("format") != FORMAT:
        raise ValueError(f"expected a {FORMAT} document, got {trace.get('format')!r}")
    reached: dict[str | None, tuple[list[int], list[dict[str, Any]]]] = {None: ([], [])}
    turns = []
    for turn in trace["turns"]:
        if turn["id"] in reached or turn["parent"] not in reached:
            raise ValueError(f"turn {turn['id']} is there twice or stands before its parent")
        before, said = reached[turn["parent"]]
        prompt, asked = before + turn["delta_ids"], said + turn["messages"]
        reached[turn["id"]] = (prompt + turn["sampled_ids"], [*asked, turn["reply"]])
        if prompt:
            # Constructed, not validated: the model would read each prompt token once per turn after it, several
            # seconds for a long session. Here every token is checked once, where it enters the conversation.
            turns.append(TrainingTurn.model_construct(**_fields(turn, prompt, asked, trace["tools"])))
    return TrainingTrace.model_construct(turns=turns)


def _turn(session: SessionExport, turn: Turn) -> dict[str, Any]:
    return {
        "id": turn.id,
        "parent": turn.parent,
        "role": turn.role,
        "trained": session.trains(turn),
        "finish_reason": openai_shape.finish_reason(turn),
        "context": turn.context,
        "delta_ids": np.frombuffer(turn.delta_ids, np.int32),
        "sampled_ids": np.frombuffer(turn.sampled, np.int32),
        "logprobs": np.frombuffer(turn.logprobs, np.float64),
        "messages": [openai_shape.message(message) for message in turn.delta],
        "reply": openai_shape.message(turn.reply),
        "facts": dict(turn.facts),
        "findings": [{"code": finding.code, "detail": finding.detail} for finding in session.findings_of(turn)],
    }


def _fields(
    turn: Mapping[str, Any], prompt: list[int], asked: list[dict[str, Any]], tools: Mapping[str, list[dict[str, Any]]]
) -> dict[str, Any]:
    """The fields of a `TrainingTurn`. ValueError: its ids and log probabilities are not what they must be."""
    _check(turn)
    sampled: list[int] = turn["sampled_ids"]
    model = str(turn["facts"].get("model", ""))
    offered = tools.get(turn["context"])
    choice = {"index": 0, "message": turn["reply"], "finish_reason": turn["finish_reason"]}
    usage = {
        "prompt_tokens": len(prompt),
        "completion_tokens": len(sampled),
        "total_tokens": len(prompt) + len(sampled),
    }
    return {
        "node_id": turn["id"],
        "prompt_token_ids": prompt,
        "completion_token_ids": sampled,
        "per_token_logps": [_logprob(value) for value in turn["logprobs"]],
        "loss_mask": [0] * len(prompt) + [int(turn["trained"])] * len(sampled),
        "request": {"model": model, "messages": asked, **({"tools": offered} if offered else {})},
        "response": {"id": turn["id"], "model": model, "choices": [choice], "usage": usage},
        "metadata": {
            "parent_id": turn["parent"],
            "role": turn["role"],
            "facts": turn["facts"],
            "findings": turn["findings"],
        },
    }


def _check(turn: Mapping[str, Any]) -> None:
    ids, logprobs = [*turn["delta_ids"], *turn["sampled_ids"]], turn["logprobs"]
    if not all(type(token) is int and token >= 0 for token in ids):
        raise ValueError(f"turn {turn['id']} holds something that is not a token id")
    if len(logprobs) != len(turn["sampled_ids"]):
        raise ValueError(f"turn {turn['id']} has {len(logprobs)} log probabilities for {len(turn['sampled_ids'])} ids")
    if turn["trained"] and (None in logprobs or not are_log_probabilities(logprobs)):
        raise ValueError(f"turn {turn['id']} is trained on something that is not a log probability")


def _logprob(value: float | None) -> float:
    """A log probability `TrainingTrace` accepts. Only turns with mask 0 hold values that are none."""
    return value if value is not None and math.isfinite(value) and value <= 0.0 else 0.0
