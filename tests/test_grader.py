"""The grader that ships with every generated task: formatting never decides, values always do."""

from __future__ import annotations

import json
import os
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.task_scripts import grade

CASES = json.loads((Path(__file__).parent / "data" / "graded_answers.json").read_text(encoding="utf-8"))
NUMBERS = st.integers(-(10**7), 10**7)


def accepts(check: dict[str, Any], answer: str) -> bool:
    return bool(grade.KINDS[check["kind"]](check, answer))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_right_answers_pass_however_they_are_written(case: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "answer.txt"
    for answer in case["accepted"]:
        file.write_bytes(answer.encode())
        text = grade.read_text(file)
        assert text is not None
        assert accepts(case["check"], text), answer


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_wrong_answers_fail_however_near_they_are(case: dict[str, Any]) -> None:
    for answer in case["rejected"]:
        assert not accepts(case["check"], answer), answer


@given(NUMBERS, st.integers(0, 3), st.sampled_from(["{}", " {}\n", '"{}"', "{}\r\n", "`{}`\n\n"]))
def test_a_number_passes_with_separators_quotes_and_spaces(value: int, decimals: int, frame: str) -> None:
    exact = Decimal(value).scaleb(-decimals)
    check = {"kind": "number", "value": str(exact), "decimals": decimals}
    for written in (f"{exact:f}", f"{exact:,f}", f"{exact:f}{'' if decimals else '.'}00"):
        assert accepts(check, frame.format(written))


@given(NUMBERS, st.integers(1, 10**6), st.integers(0, 4))
def test_a_fraction_passes_rounded_to_the_asked_decimals_or_exactly(top: int, bottom: int, decimals: int) -> None:
    exact = Fraction(top, bottom)
    check = {"kind": "number", "value": f"{Decimal(top) / Decimal(bottom):.15f}", "decimals": decimals}
    assert accepts(check, f"{Decimal(top) / Decimal(bottom):.{decimals}f}")
    assert accepts(check, repr(float(exact)))


@given(NUMBERS, st.integers(0, 3), st.integers(1, 10**5), st.sampled_from([1, -1]))
def test_a_number_off_by_one_unit_or_more_fails(value: int, decimals: int, units: int, sign: int) -> None:
    check = {"kind": "number", "value": str(Decimal(value).scaleb(-decimals)), "decimals": decimals}
    assert not accepts(check, f"{Decimal(value + sign * units).scaleb(-decimals):f}")


@given(NUMBERS, NUMBERS, st.sampled_from(["{} or {}", "{}, {}", "{}\n{}", "{} {}", "{};{}", "between {} and {}"]))
def test_a_right_number_hidden_among_others_fails(right: int, other: int, frame: str) -> None:
    check = {"kind": "number", "value": str(right)}
    assert not accepts(check, frame.format(right, other))
    assert not accepts(check, frame.format(other, right))


@given(st.text(), st.sampled_from(CASES))
def test_no_answer_crashes_the_grader(answer: str, case: dict[str, Any]) -> None:
    accepts(case["check"], answer)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=3)))
def test_json_passes_in_any_layout_and_fails_once_changed(value: object) -> None:
    check = {"kind": "json", "value": {"a": value, "b": 1}}
    assert accepts(check, json.dumps({"b": 1.0, "a": value}, indent=3))
    assert not accepts(check, json.dumps({"b": True, "a": value}))
    assert not accepts(check, json.dumps({"b": 1, "a": [value]}))


def test_what_is_no_readable_file_is_no_answer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "binary").write_bytes(b"\xff\xfe1\x002\x00")
    (tmp_path / "huge").write_bytes(b"1" * (grade.MAX_BYTES + 1))
    (tmp_path / "loop").symlink_to("loop")
    for name in ("pipe", "folder", "binary", "huge", "loop", "missing"):
        assert grade.read_text(tmp_path / name) is None


def test_every_check_must_hold_for_the_reward(tmp_path: Path) -> None:
    expected = tmp_path / "expected.json"
    checks = [{"kind": "number", "file": "a.txt", "value": "1"}, {"kind": "text", "file": "b.txt", "value": "yes"}]
    expected.write_text(json.dumps(checks))
    rewards = []
    for first, second in (("1", "yes"), ("1", "no"), ("2", "yes"), ("2", "no")):
        (tmp_path / "a.txt").write_text(first)
        (tmp_path / "b.txt").write_text(second)
        grade.main(str(tmp_path), str(expected), str(tmp_path / "reward.json"))
        rewards.append(json.loads((tmp_path / "reward.json").read_text()))
    assert rewards == [{"reward": 1.0}, {"reward": 0.0}, {"reward": 0.0}, {"reward": 0.0}]
