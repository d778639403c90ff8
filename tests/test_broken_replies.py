"""A connection that breaks in a reply: the harness has nothing of it, or its beginning, and asks again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest

from harbor_env.capture import captured_calls
from harbor_env.gateway.dialects import DIALECTS
from harbor_env.gateway.export.rows import rows
from harbor_env.gateway.export.session_export import SessionExport
from harbor_env.gateway.types import Call, Message, Reply, ToolCall, Turn, Usage
from tests.play import player, result, said, user
from tests.turns import GO, make_turn

RESPONSES = DIALECTS["responses"]
CALL = ToolCall("call_1", "bash", '{"command": "ls"}')
WHOLE = Message("assistant", "Reading the notes.", "Where to begin?", (CALL,))
NUDGE = Message("user", "Your response above was cut off. Go on.")


def at(turn: Turn, began: float, seconds: float = 1.0) -> Turn:
    return replace(turn, facts={"began": began, "engine_s": seconds})


@pytest.mark.parametrize(
    "got",
    [
        (Message("assistant", "", "Where"),),
        (Message("assistant", "Reading the"), NUDGE),
        (Message("assistant", "Reading the notes.", "Where to begin?"),),
    ],
    ids=["thinking alone", "half the text", "all but the call"],
)
def test_a_reply_of_which_only_the_beginning_came_is_discarded_and_the_row_goes_on_without_it(
    got: tuple[Message, ...],
) -> None:
    broken, again = at(make_turn("t1", reply=WHOLE), 0), at(make_turn("t2", delta=(*GO, *got), delta_ids=(1, 2, 9)), 5)
    after = at(make_turn("t3", "t2"), 9)
    session = SessionExport("s", [broken, again, after])
    assert session.discarded == {"t1"}
    assert [(row.leaf, row.trained_tokens) for row in rows(session)] == [("t1", 0), ("t3", 4)]


def test_a_reply_that_came_whole_or_that_was_rewritten_is_not_discarded() -> None:
    whole, other = WHOLE, Message("assistant", "Something else.")
    for kept in (whole, other):
        turns = [
            at(make_turn("t1", reply=WHOLE), 0),
            at(make_turn("t2", delta=(*GO, kept, NUDGE), delta_ids=(1, 2, 9)), 5),
        ]
        assert SessionExport("s", turns).discarded == frozenset()


def test_a_reply_asked_for_side_by_side_with_its_own_beginning_is_not_discarded() -> None:
    beginning = Message("assistant", "Reading")
    turns = [
        at(make_turn("t1", reply=WHOLE), 0, 9.0),
        at(make_turn("t2", delta=(*GO, beginning), delta_ids=(1, 2, 9)), 5),
    ]
    assert SessionExport("s", turns).discarded == frozenset()


def items(reply_id: str, message: Message) -> list[dict[str, Any]]:
    answered = Reply(reply_id, message, "stop", Usage(1, 1))
    body: list[dict[str, Any]] = orjson.loads(RESPONSES.encode(answered, Call(GO)))["output"]
    return body


def test_what_codex_got_of_a_broken_reply_and_the_reply_that_followed_are_two_messages_of_responses() -> None:
    first, second = (f"turn_{n * 24}" for n in "ab")
    got, whole = items(first, WHOLE)[:1], items(second, WHOLE)
    history = [{"role": "user", "content": "go"}, *got, *whole]
    call = RESPONSES.decode({"model": "m", "input": history}, {})
    assert [message.tool_calls for message in call.messages[1:3]] == [(), (CALL,)]
    assert [message.reasoning for message in call.messages[1:3]] == [WHOLE.reasoning] * 2


def test_items_of_a_vendor_s_reply_are_one_message_whatever_their_ids() -> None:
    parts = items("turn_" + "a" * 24, WHOLE)
    parts[0]["id"], parts[1]["id"] = "rs_68f0", "msg_68f1"
    call = RESPONSES.decode({"model": "m", "input": [{"role": "user", "content": "go"}, *parts]}, {})
    assert call.messages[1] == WHOLE


def test_the_turn_after_a_broken_reply_is_one_conversation_with_what_follows_it() -> None:
    play = player()
    play.ask(user("go"), reply=said("Reading the notes.", reasoning="Hm."))
    begun = said("", reasoning="Hm.")
    again = play.ask(user("go"), begun, reply=said("Reading.", CALL))
    play.ask(user("go"), begun, again, result(again.tool_calls[0], "a"), reply=said("Done."))
    turns = play.session.tree.turns()
    assert [turn.parent for turn in turns] == [None, None, turns[1].id]


def test_the_calls_of_a_discarded_reply_are_not_expected_of_the_harness() -> None:
    turn = {"id": "t1", "reply": {"tool_calls": [{"id": "a", "function": {"name": "bash"}}]}, "findings": []}
    lost = {**turn, "findings": [{"code": "discarded", "detail": ""}]}
    assert [call.discarded for call in captured_calls({"turns": [lost, turn]})] == [True, False]
