"""The store's tables, and how a `Turn` becomes one row and comes back equal.

Token ids are int32 arrays and log probabilities float64 arrays in the machine's byte order (little-endian on every
platform this runs on), so a row grows with its own turn's tokens only, never with the conversation before it.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from harbor_env.gateway.types import Finding, Message, ToolCall, Turn

VERSION = 1

TABLES = """
CREATE TABLE IF NOT EXISTS sessions (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    key_digest BLOB NOT NULL UNIQUE,
    created_at REAL NOT NULL,
    status TEXT NOT NULL,
    options BLOB NOT NULL,
    active_at REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS contexts (
    session INTEGER NOT NULL REFERENCES sessions (number) ON DELETE CASCADE,
    digest TEXT NOT NULL,
    document BLOB NOT NULL,
    PRIMARY KEY (session, digest)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS turns (
    seq INTEGER PRIMARY KEY,
    session INTEGER NOT NULL REFERENCES sessions (number) ON DELETE CASCADE,
    id TEXT NOT NULL,
    parent TEXT,
    context TEXT NOT NULL,
    role TEXT NOT NULL,
    finish TEXT NOT NULL,
    prompt_length INTEGER NOT NULL,
    trainable INTEGER NOT NULL,
    delta_ids BLOB NOT NULL,
    sampled BLOB NOT NULL,
    logprobs BLOB NOT NULL,
    delta BLOB NOT NULL,
    reply BLOB NOT NULL,
    facts BLOB NOT NULL,
    UNIQUE (session, id)
);
CREATE INDEX IF NOT EXISTS turns_in_order ON turns (session, seq);
CREATE TABLE IF NOT EXISTS findings (
    seq INTEGER PRIMARY KEY,
    session INTEGER NOT NULL REFERENCES sessions (number) ON DELETE CASCADE,
    turn TEXT,
    code TEXT NOT NULL,
    detail TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS findings_of_turn ON findings (session, turn);
"""

_ALWAYS = "id, parent, context, role, finish, prompt_length, trainable, delta_ids, sampled, logprobs"
TURN_COLUMNS = f"{_ALWAYS}, delta, reply, facts"

_UNREAD = Message("assistant")
SHAPE_COLUMNS = f"{_ALWAYS}, facts"


def turn_to_row(turn: Turn) -> tuple[Any, ...]:
    """The values of `TURN_COLUMNS`; a turn's findings are rows of their own. TypeError: facts that are not JSON."""
    return (
        turn.id,
        turn.parent,
        turn.context,
        turn.role,
        turn.finish,
        turn.prompt_length,
        turn.trainable,
        turn.delta_ids.tobytes(),
        turn.sampled.tobytes(),
        turn.logprobs.tobytes(),
        orjson.dumps(turn.delta),
        orjson.dumps(turn.reply),
        orjson.dumps(dict(turn.facts)),
    )


def turn_from_row(row: Sequence[Any], findings: tuple[Finding, ...] = ()) -> Turn:
    """The turn whose `TURN_COLUMNS` are `row`."""
    delta = tuple(_message(message) for message in orjson.loads(row[10]))
    return _turn(row, delta, message_from_json(row[11]), row[12], findings)


def turn_of_shape(row: Sequence[Any]) -> Turn:
    """The turn whose `SHAPE_COLUMNS` are `row`: its messages and findings were left where they are."""
    return _turn(row, (), _UNREAD, row[10])


def _turn(
    row: Sequence[Any], delta: tuple[Message, ...], reply: Message, facts: bytes, findings: tuple[Finding, ...] = ()
) -> Turn:
    """A turn of the columns that both orders begin with, and of what they do not share."""
    return Turn(
        id=row[0],
        parent=row[1],
        context=row[2],
        role=row[3],
        finish=row[4],
        prompt_length=row[5],
        trainable=bool(row[6]),
        delta_ids=array("i", row[7]),
        sampled=array("i", row[8]),
        logprobs=array("d", row[9]),
        delta=delta,
        reply=reply,
        facts=orjson.loads(facts),
        findings=findings,
    )


def message_from_json(data: bytes) -> Message:
    return _message(orjson.loads(data))


def _message(fields: Mapping[str, Any]) -> Message:
    calls = tuple(ToolCall(**call) for call in fields["tool_calls"])
    return Message(**{**fields, "tool_calls": calls})
