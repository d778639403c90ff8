import math
from dataclasses import replace

import orjson
import pytest
from hypothesis import given

from harbor_env.gateway.export import FORMATS, SessionExport
from harbor_env.gateway.export.rows import Row, rows
from harbor_env.gateway.paths import leaves, paths, roots
from harbor_env.gateway.types import Turn
from tests.turns import long_session, make_turn, sessions


def path_ids(turns: tuple[Turn, ...]) -> list[int]:
    return [token for turn in turns for token in (*turn.delta_ids, *turn.sampled)]


def trained(row: Row) -> list[tuple[str, int, float]]:
    """(turn, index in its sampled ids, log probability) of every token with mask 1."""
    where = {span.start + offset: (span.turn, offset) for span in row.spans for offset in range(span.end - span.start)}
    return [(*where[place], row.logprobs[place]) for place, mask in enumerate(row.loss_mask) if mask]


@given(sessions())
def test_law_3_each_sampled_token_is_trained_in_exactly_one_place_with_the_engines_log_probability(
    turns: list[Turn],
) -> None:
    session = SessionExport("s", turns)
    found = sorted(token for row in rows(session) for token in trained(row))
    wanted = sorted(
        (turn.id, index, logprob)
        for turn in turns
        if turn.trainable and turn.role in ("main", "subagent")
        for index, logprob in enumerate(turn.logprobs)
    )
    assert found == wanted


@given(sessions())
def test_law_3_lengths_agree_and_what_is_not_trained_has_log_probability_zero(turns: list[Turn]) -> None:
    for path, row in zip(paths(turns), rows(SessionExport("s", turns)), strict=True):
        assert list(row.input_ids) == path_ids(path.turns)
        assert len(row.input_ids) == len(row.loss_mask) == len(row.logprobs)
        assert all(logprob == 0.0 for logprob, mask in zip(row.logprobs, row.loss_mask, strict=True) if not mask)
        assert row.trained_tokens == len(trained(row))


@given(sessions())
def test_the_count_of_trained_rows_is_that_of_rows_with_a_trained_token(turns: list[Turn]) -> None:
    session = SessionExport("s", turns)
    assert session.trained_rows() == sum(row.trained_tokens > 0 for row in rows(session))


@given(sessions())
def test_paths_hold_every_leaf_once_and_every_turn_is_owned_once(turns: list[Turn]) -> None:
    found = paths(turns)
    assert sorted(path.turns[-1].id for path in found) == sorted(turn.id for turn in leaves(turns))
    assert sorted(turn.id for path in found for turn in path.owned) == sorted(turn.id for turn in turns)
    assert [path.turns[0] for path in found if path.owned_from == 0] == roots(turns)
    for path in found:
        assert all(child.parent == parent.id for parent, child in zip(path.turns, path.turns[1:], strict=False))


def test_interleaved_conversations_are_listed_one_after_the_other() -> None:
    turns = [make_turn("a1"), make_turn("b1"), make_turn("a2", "a1"), make_turn("b2", "b1"), make_turn("a3", "a1")]
    assert [[turn.id for turn in path.turns] for path in paths(turns)] == [["a1", "a2"], ["a1", "a3"], ["b1", "b2"]]


def test_a_turn_before_its_parent_is_refused() -> None:
    with pytest.raises(ValueError, match="t2 continues t1"):
        paths([make_turn("t2", "t1"), make_turn("t1")])


def test_two_conversations_with_equal_first_ids_give_two_rows() -> None:
    turns = [
        make_turn("t1", None, [1, 2], [3, 4]),
        make_turn("t2", "t1", [5], [6]),
        make_turn("t3", None, [1, 2], [3, 4, 5, 6, 7]),
        make_turn("t4", "t3", [8], [9]),
    ]
    first, second = rows(SessionExport("s", turns))
    assert (list(first.input_ids), list(first.loss_mask)) == ([1, 2, 3, 4, 5, 6], [0, 0, 1, 1, 0, 1])
    assert (list(second.input_ids), list(second.loss_mask)) == (
        [1, 2, 3, 4, 5, 6, 7, 8, 9],
        [0, 0, 1, 1, 1, 1, 1, 0, 1],
    )


def test_a_branch_repeats_its_prefix_as_context() -> None:
    turns = [make_turn("t1", None, [1], [2]), make_turn("t2", "t1", [3], [4]), make_turn("t3", "t1", [5], [6])]
    first, second = rows(SessionExport("s", turns))
    assert list(first.loss_mask) == [0, 1, 0, 1]
    assert list(second.input_ids) == [1, 2, 5, 6]
    assert list(second.loss_mask) == [0, 0, 0, 1]
    assert list(second.logprobs) == [0.0, 0.0, 0.0, -0.5]


@pytest.mark.parametrize("bad", [math.nan, -math.inf, math.inf, 0.25])
def test_a_turn_with_something_that_is_no_log_probability_is_context(bad: float) -> None:
    turns = [make_turn("t1", None, [1], [2, 3], [-1.0, bad]), make_turn("t2", "t1", [4], [5])]
    (row,) = rows(SessionExport("s", turns))
    assert list(row.loss_mask) == [0, 0, 0, 0, 1]
    assert list(row.logprobs) == [0.0, 0.0, 0.0, 0.0, -0.5]


def test_which_roles_are_trained_is_an_option() -> None:
    turns = [make_turn("t1", role="main"), make_turn("t2", role="compaction"), make_turn("t3", role="auxiliary")]
    assert [row.trained_tokens for row in rows(SessionExport("s", turns))] == [2, 0, 0]
    everything = SessionExport("s", turns, trained_roles=("main", "compaction", "auxiliary"))
    assert [row.trained_tokens for row in rows(everything)] == [2, 2, 2]


def test_rows_are_json_lines_with_the_sessions_metadata() -> None:
    turns = [make_turn("t1", None, [1], [2], [-0.1]), make_turn("t2", None, [3], [])]
    lines = FORMATS["rows"].encode(SessionExport("s", turns, metadata={"task": "sum"})).splitlines()
    first, second = (orjson.loads(line) for line in lines)
    assert first["input_ids"] == [1, 2]
    assert first["logprobs"] == [0.0, -0.1]
    assert first["turns"] == [{"turn": "t1", "start": 1, "end": 2, "trained": True}]
    assert (first["session_id"], first["row"], first["metadata"]) == ("s", 0, {"task": "sum"})
    assert (second["input_ids"], second["trained_tokens"]) == ([3], 0)


def test_a_session_without_turns_has_no_rows() -> None:
    assert FORMATS["rows"].encode(SessionExport("s", [])) == b""


@pytest.mark.parametrize("name", ["rows", "trace", "safetensors"])
def test_a_session_of_200_turns_and_60k_tokens_exports_in_under_2_mb(name: str) -> None:
    turns = long_session()
    assert sum(len(turn.delta_ids) + len(turn.sampled) for turn in turns) == 59_920
    assert len(FORMATS[name].encode(SessionExport("s", turns))) < 2_000_000


def asked(turn: Turn, began: float, seconds: float = 1.0) -> Turn:
    return replace(turn, facts={"began": began, "engine_s": seconds})


def test_a_reply_thrown_away_for_another_sample_is_kept_marked_and_not_trained() -> None:
    turns = [asked(make_turn("t1"), 0), asked(make_turn("t2"), 5), asked(make_turn("t3", "t2"), 9)]
    session = SessionExport("s", turns)
    assert session.discarded == {"t1"}
    assert [row.trained_tokens for row in rows(session)] == [0, 4]
    assert [finding.code for finding in session.findings_of(turns[0])] == ["discarded"]
    assert [row.trained_tokens for row in rows(SessionExport("s", turns, train_discarded=True))] == [2, 4]


def test_a_reply_thrown_away_in_mid_conversation_takes_nothing_from_the_row_that_goes_on() -> None:
    turns = [
        asked(make_turn("t1"), 0),
        asked(make_turn("again1", "t1"), 5),
        asked(make_turn("again2", "t1"), 10),
        asked(make_turn("t2", "t1"), 15),
        asked(make_turn("t3", "t2", delta_ids=(9,)), 20),
    ]
    session = SessionExport("s", turns)
    assert session.discarded == {"again1", "again2"}
    assert [row.trained_tokens for row in rows(session)] == [6, 0, 0]
    assert session.trained_rows() == 1
    assert [row.trained_tokens for row in rows(SessionExport("s", turns, train_discarded=True))] == [6, 2, 2]


def test_samples_in_flight_side_by_side_or_continued_or_of_other_prompts_are_not_discarded() -> None:
    side_by_side = [asked(make_turn("t1"), 0, 3.0), asked(make_turn("t2"), 2)]
    continued = [asked(make_turn("t1"), 0), asked(make_turn("t2"), 5), asked(make_turn("t3", "t1"), 9)]
    other = [asked(make_turn("t1"), 0), asked(make_turn("t2", delta_ids=(9,)), 5)]
    untimed = [make_turn("t1"), make_turn("t2")]
    for turns in (side_by_side, continued, other, untimed):
        assert SessionExport("s", turns).discarded == frozenset()
