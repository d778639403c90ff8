"""Which turn a history continues, whatever the harness did to it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harbor_env.gateway.meaning import same_arguments, same_json, same_message
from harbor_env.gateway.types import Message, ToolCall, Turn
from tests.fake_renderer import END
from tests.play import Player, bash, player, result, said, system, user

START = (system("You are an agent."), user("Count the lines."))


def turns(play: Player) -> list[Turn]:
    return play.session.tree.turns()


def parents(play: Player) -> list[str | None]:
    return [turn.parent for turn in turns(play)]


def test_a_conversation_is_one_chain() -> None:
    play = player()
    first = play.ask(*START, reply=said("Let me look.", bash("ls")))
    history = (*START, first, result(first.tool_calls[0], "a.txt"))
    second = play.ask(*history, reply=said("", bash("wc -l a.txt")))
    play.ask(*history, second, result(second.tool_calls[0], "3"), reply=said("3 lines."))
    ids = [turn.id for turn in turns(play)]
    assert parents(play) == [None, *ids[:2]]
    play.check_prompts()


def test_a_retry_of_the_same_prompt_is_a_sibling() -> None:
    play = player()
    play.ask(*START, reply=said("One."))
    play.ask(*START, reply=said("Two."))
    assert parents(play) == [None, None]
    assert turns(play)[1].delta == START


def test_a_retry_in_mid_conversation_shares_its_parent_and_says_so() -> None:
    play = player()
    first = play.ask(*START, reply=said("", bash("ls")))
    history = (*START, first, result(first.tool_calls[0], "a.txt"))
    play.ask(*history, reply=said("One."))
    play.ask(*history, reply=said("Two."))
    root = turns(play)[0].id
    assert parents(play) == [None, root, root]
    assert [finding.code for finding in turns(play)[2].findings] == ["branch"]


def test_an_edited_user_message_branches_where_it_was_edited() -> None:
    play = player()
    first = play.ask(*START, reply=said("Which file?"))
    play.ask(*START, first, user("a.txt"), reply=said("3."))
    play.ask(*START, first, user("b.txt"), reply=said("4."))
    root = turns(play)[0].id
    assert parents(play) == [None, root, root]


def test_a_subagent_with_its_own_prompt_and_tools_is_a_new_root_beside_the_chain() -> None:
    play = player()
    first = play.ask(*START, reply=said("", bash("ls")))
    play.ask(system("You are a subagent."), user("Explore."), reply=said("Done."), tools=())
    play.ask(*START, first, result(first.tool_calls[0], "a"), reply=said("Done."))
    assert parents(play) == [None, None, turns(play)[0].id]
    assert [finding.code for finding in turns(play)[1].findings] == ["root_other_tools"]


def test_the_same_history_with_other_tools_is_a_new_root() -> None:
    play = player()
    first = play.ask(*START, reply=said("", bash("ls")))
    play.ask(*START, first, result(first.tool_calls[0], "a"), reply=said("x"), tools=())
    assert parents(play) == [None, None]


def test_a_compaction_is_a_new_root_that_keeps_the_newest_exchange_as_context() -> None:
    play = player()
    first = play.ask(*START, reply=said("", bash("ls")))
    shown = result(first.tool_calls[0], "a")
    compacted = (system("You are an agent."), user("Summary: listed files."), first, shown)
    second = play.ask(*compacted, reply=said("Going on."))
    play.ask(*compacted, second, user("More."), reply=said("Done."))
    ids = [turn.id for turn in turns(play)]
    assert parents(play) == [None, None, ids[1]]
    assert turns(play)[1].delta == compacted
    assert [finding.code for finding in turns(play)[1].findings] == ["root_other_history"]


def test_an_assistant_message_no_turn_sampled_is_context_and_later_turns_find_it_again() -> None:
    play = player()
    shots = (user("2+2?"), said("4"), user("3+3?"))
    first = play.ask(*shots, reply=said("6"))
    inserted = (said("I was told to stop."), user("Go on."))
    second = play.ask(*shots, first, *inserted, reply=said("Going."))
    play.ask(*shots, first, *inserted, second, user("And?"), reply=said("Done."))
    ids = [turn.id for turn in turns(play)]
    assert parents(play) == [None, *ids[:2]]
    assert turns(play)[1].delta == inserted


def test_a_reply_cut_at_the_limit_is_continued_and_closed_once() -> None:
    play = player()
    first = play.ask(*START, reply=said("A long answer"), cut=6)
    assert first.content == "A long"
    play.ask(*START, first, user("Resume."), reply=said("Done."))
    cut, resumed = turns(play)
    assert resumed.parent == cut.id
    ids = list(play.session.tree.ids(resumed))
    at = cut.prompt_length + len(cut.sampled)
    assert ids[at] == END
    assert ids[at + 1] != END


def test_parallel_calls_in_flight_become_siblings_and_both_can_be_continued() -> None:
    play = player()
    first = play.ask(*START, reply=said("", bash("ls")))
    history = (*START, first, result(first.tool_calls[0], "a"))
    left, right = play.plan(*history), play.plan(*history)
    one = play.finish(left, said("", bash("one")))
    two = play.finish(right, said("", bash("two")))
    for recorded in (one, two):
        message = recorded.reply.message
        play.ask(*history, message, result(message.tool_calls[0], "ok"), reply=said("Done."))
    assert parents(play)[3:] == [one.turn.id, two.turn.id]


@pytest.mark.parametrize(
    "rewrite",
    [
        lambda call: replace(call, arguments='{"__unparsedToolInput":{"raw":"{\\"a","len":3}}'),
        lambda call: replace(call, name="invalid", arguments='{"tool":"bash","error":"no"}'),
        lambda call: replace(call, arguments="{}"),
    ],
)
def test_a_minted_call_id_names_its_turn_however_the_call_was_rewritten(rewrite) -> None:
    play = player()
    first = play.ask(*START, reply=said("Text.", ToolCall("", "bash", '{"command": "l')))
    back = said("", rewrite(first.tool_calls[0]))
    play.ask(*START, back, result(first.tool_calls[0], "bad input"), reply=said("Sorry."))
    assert parents(play) == [None, turns(play)[0].id]


@pytest.mark.parametrize(
    "pieces",
    [
        [said("Let me look."), "ls", "pwd"],
        ["ls", "pwd"],
        [said("", reasoning="Hm."), said("Let me "), said("look."), "ls", "pwd"],
        [said("Let me look."), "ls and pwd"],
    ],
    ids=["text and calls", "calls alone", "every block", "text beside both calls"],
)
@pytest.mark.parametrize("ids", ["ids kept", "ids lost"])
def test_a_reply_sent_back_as_several_messages_in_a_row_is_one_reply(pieces: list[Message | str], ids: str) -> None:
    play = player()
    text = "" if pieces[0] == "ls" else "Let me look."
    first = play.ask(*START, reply=said(text, bash("ls"), bash("pwd"), reasoning="Hm."))
    shown = first if ids == "ids kept" else replace(first, tool_calls=(bash("ls"), bash("pwd")))
    calls = dict(zip(["ls", "pwd"], shown.tool_calls, strict=True))
    sent = [
        piece if isinstance(piece, Message) else said("", *(calls[name] for name in piece.split(" and ")))
        for piece in pieces
    ]
    results = [result(call, "x") for call in shown.tool_calls]
    play.ask(*START, *sent, *results, reply=said("Done."))
    root, second = turns(play)
    assert (second.parent, second.delta) == (root.id, tuple(results))
    play.check_prompts()


def test_messages_in_a_row_that_are_two_replies_or_none_stay_apart() -> None:
    play = player()
    first = play.ask(*START, reply=said("Let me look."))
    second = play.ask(*START, first, reply=said("", bash("ls")))
    play.ask(*START, first, second, result(second.tool_calls[0], "x"), reply=said("Done."))
    play.ask(*START, said("Of course."), said("Let me look."), user("go"), reply=said("Done."))
    ids = [turn.id for turn in turns(play)]
    assert parents(play) == [None, ids[0], ids[1], None]


def test_calls_without_ids_are_found_by_name_and_parsed_arguments() -> None:
    play = player()
    first = play.ask(*START, reply=said("", ToolCall("", "pay", '{"sum": 20000.0, "to": "x"}')))
    back = said("", ToolCall("", "pay", '{"to":"x","sum":20000}'))
    play.ask(*START, back, Message("tool", "paid"), reply=said("Done."))
    changed = said("", ToolCall("", "pay", '{"to":"x","sum":20001}'))
    play.ask(*START, changed, Message("tool", "paid"), reply=said("Done."))
    assert first.tool_calls[0].id
    assert parents(play) == [None, turns(play)[0].id, None]


def test_reasoning_does_not_decide_identity() -> None:
    play = player()
    first = play.ask(*START, reply=said("Hm.", bash("ls"), reasoning="I should list."))
    for reasoning in ("", "I should", "other"):
        back = replace(first, reasoning=reasoning)
        play.ask(*START, back, result(first.tool_calls[0], reasoning or "a"), reply=said("x"))
    assert set(parents(play)[1:]) == {turns(play)[0].id}


def test_assistant_text_compares_without_outer_whitespace_and_user_text_exactly() -> None:
    play = player()
    play.ask(*START, reply=said("\n\nDone. "))
    play.ask(*START, said("Done."), user("Sure?"), reply=said("Yes."))
    play.ask(*START, said("Done. "), user("Sure? "), reply=said("Yes."))
    root = turns(play)[0].id
    assert parents(play) == [None, root, root]


def test_the_latest_of_two_equal_matches_is_continued() -> None:
    play = player()
    play.ask(*START, reply=said("Same."))
    play.ask(*START, reply=said("Same."))
    play.ask(*START, said("Same."), user("On."), reply=said("x"))
    assert turns(play)[2].parent == turns(play)[1].id


def test_the_deepest_match_wins_over_the_latest() -> None:
    play = player()
    first = play.ask(*START, reply=said("One."))
    second = play.ask(*START, first, user("Two?"), reply=said("Two."))
    play.ask(*START, reply=said("One."))
    play.ask(*START, first, user("Two?"), second, user("Three?"), reply=said("Three."))
    assert turns(play)[3].parent == turns(play)[1].id


def test_interleaved_conversations_each_keep_their_own_chain() -> None:
    play = player()
    other = (system("Sub."), user("Explore."))
    a1 = play.ask(*START, reply=said("a1"))
    b1 = play.ask(*other, reply=said("b1"))
    a2 = play.ask(*START, a1, user("2"), reply=said("a2"))
    play.ask(*other, b1, user("2"), reply=said("b2"))
    play.ask(*START, a1, user("2"), a2, user("3"), reply=said("a3"))
    ids = [turn.id for turn in turns(play)]
    assert parents(play) == [None, None, ids[0], ids[1], ids[2]]


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        (1, 1.0, True),
        (True, 1, False),
        (0, False, False),
        (None, False, False),
        ({"a": 1, "b": [1.0]}, {"b": [1], "a": 1}, True),
        ([1, 2], [2, 1], False),
        ({"a": None}, {}, False),
        ("1", 1, False),
    ],
)
def test_json_is_compared_by_value_and_booleans_are_no_numbers(left: object, right: object, same: bool) -> None:
    assert same_json(left, right) is same


def test_arguments_nested_as_deep_as_json_goes_are_compared_all_the_same() -> None:
    deep = '{"a":' + "[" * 1000 + "]" * 1000 + "}"
    assert same_arguments(deep, deep.replace(":", ": "))
    assert not same_arguments(deep, deep.replace('"a"', '"b"'))


def test_arguments_that_do_not_parse_compare_as_text() -> None:
    assert same_arguments('{"a', ' {"a ')
    assert same_arguments("", "{}")
    assert not same_arguments('{"a', '{"b')


def test_an_error_flag_and_a_call_id_tell_tool_results_apart() -> None:
    shown = Message("tool", "x", tool_call_id="c1")
    assert same_message(shown, replace(shown, name="bash"))
    assert same_message(shown, replace(shown, tool_call_id=""))
    assert not same_message(shown, replace(shown, tool_call_id="c2"))
    assert not same_message(shown, replace(shown, is_error=True))
