"""What is said of groups of which nothing is trained."""

from __future__ import annotations

from trl_integration.groups import NO_ROW, SAME, Dropped


def test_dropped_groups_are_told_now_and_then_with_why() -> None:
    dropped = Dropped(say_every=60.0)
    assert dropped.add("", 0.0) == ""
    assert "1 of 2 groups" in dropped.add(SAME, 1.0)
    assert dropped.add(SAME, 2.0) == ""
    assert dropped.add("", 3.0) == ""
    assert dropped.add(NO_ROW, 60.0) == ""
    assert dropped.add(SAME, 61.0) == (
        "4 of 6 groups had nothing to train, the last 2 in a row: "
        "3 whose rollouts all earned the same, 1 whose rollouts have no row to train."
    )


def test_groups_in_a_row_are_counted_from_the_last_that_was_trained() -> None:
    dropped = Dropped()
    for why in (SAME, "", NO_ROW, NO_ROW):
        dropped.add(why, 0.0)
    assert (dropped.in_a_row, dropped.reasons()) == (2, "2 whose rollouts have no row to train")
