"""Grade the files an agent left behind: reward 1.0 when every check of expected.json holds, else 0.0.

This file is copied into the `tests/` folder of every generated task and runs in its sandbox on Python 3.10 or later,
standard library only. Formatting never decides, values always do: an answer is one value on one line, and a file that
holds a right value among others is wrong.
"""

from __future__ import annotations

import csv
import json
import re
import stat
import sys
import unicodedata
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

Check = dict[str, Any]

MAX_BYTES = 1_000_000
MAX_NUMBER_CHARS = 64
FLOAT_NOISE = Decimal("1e-9")  # what sums of binary floats may add to an exact decimal
QUOTES = ('""', "''", "``", "“”", "‘’")

NUMBER = re.compile(
    r"(?P<sign>[+-]?)(?:[$€£] ?)?"
    r"(?P<whole>[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+(?:_[0-9]+)*)?(?:\.(?P<fraction>[0-9]*))?"
    r"(?:[eE](?P<exponent>[+-]?[0-9]{1,2}))?(?P<unit> ?[%€£])?"
)
PLAIN_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?")
DATE = re.compile(r"([0-9]{4})([-/.])([0-9]{1,2})\2([0-9]{1,2})(?:[T ]00:00(?::00(?:\.0+)?)?)?")


def unquoted(text: str) -> str:
    """`text` without outer whitespace and one pair of matching quotes."""
    text = text.strip()
    if len(text) >= 2 and text[0] + text[-1] in QUOTES:
        text = text[1:-1].strip()
    return text


def parse_number(text: str, percent: bool = False) -> tuple[Decimal, int] | None:
    """The value and how many decimals it was written with (trailing zeros not counted); None: not one number."""
    text = unquoted(text).replace("−", "-")
    match = NUMBER.fullmatch(text) if len(text) <= MAX_NUMBER_CHARS else None
    if match is None or not (match["whole"] or match["fraction"]):
        return None
    if "%" in (match["unit"] or "") and not percent:
        return None
    whole = re.sub("[,_]", "", match["whole"] or "0")
    fraction = (match["fraction"] or "").rstrip("0")
    exponent = int(match["exponent"] or 0)
    return Decimal(f"{match['sign']}{whole}.{fraction or 0}e{exponent}"), max(0, len(fraction) - exponent)


def accepts_number(check: Check, text: str) -> bool:
    """Right to the decimals asked for; an answer written with more decimals must be right in all of them."""
    parsed = parse_number(text, percent=check.get("percent", False))
    if parsed is None:
        return False
    value, written = parsed
    decimals = max(check.get("decimals", 0), written)
    return abs(value - Decimal(check["value"])) <= Decimal(5).scaleb(-decimals - 1) + FLOAT_NOISE


def fold(text: str) -> str:
    """What counts of a text answer: its words, without case, quotes or spacing."""
    return " ".join(unicodedata.normalize("NFC", unquoted(text)).casefold().split())


def accepts_text(check: Check, text: str) -> bool:
    return fold(text) == fold(check["value"])


def accepts_date(check: Check, text: str) -> bool:
    """Year first, separated by one of - / . and with or without a midnight time."""
    match = DATE.fullmatch(unquoted(text))
    if match is None:
        return False
    try:
        return date(int(match[1]), int(match[3]), int(match[4])).isoformat() == str(check["value"])
    except ValueError:
        return False


VALUES = {"number": accepts_number, "text": accepts_text, "date": accepts_date}


def accepts_value(check: Check, text: str) -> bool:
    """One value on the only line that is not blank."""
    lines = [line for line in text.splitlines() if line.strip()]
    return len(lines) == 1 and VALUES[check["kind"]](check, lines[0])


def accepts_list(check: Check, text: str) -> bool:
    """The items in order, one a line, or all on one line between commas; a JSON array counts too."""
    items = [line for line in text.splitlines() if line.strip()]
    if len(items) == 1 and len(check["items"]) > 1:
        line = items[0].strip()
        items = (line[1:-1] if line[0] + line[-1] == "[]" else line).split(",")
    wanted = check["items"]
    return len(items) == len(wanted) and all(VALUES[w["kind"]](w, item) for w, item in zip(wanted, items, strict=True))


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object, refused when a key occurs twice: readers disagree on which one counts."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key occurs twice")
    return found


def same_json(left: object, right: object) -> bool:
    """Equal as JSON: 5 and 5.0 are one number, true is not 1, keys have no order."""
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same_json(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(same_json(a, b) for a, b in zip(left, right, strict=True))
    return isinstance(left, bool) == isinstance(right, bool) and left == right


def accepts_json(check: Check, text: str) -> bool:
    try:
        return same_json(json.loads(text, object_pairs_hook=unique_keys), check["value"])
    except (ValueError, RecursionError):
        return False


def accepts_lines(check: Check, text: str) -> bool:
    """The same lines in the same order; whitespace at line ends and blank lines at the end do not count."""
    lines = [line.rstrip() for line in text.splitlines()]
    while lines and not lines[-1]:
        lines.pop()
    wanted: list[str] = check["lines"]
    return lines == wanted


def same_cell(cell: str, wanted: str) -> bool:
    """Equal text, or two plain numbers of one value; `007` is text."""
    cell = cell.strip()
    if PLAIN_NUMBER.fullmatch(cell) and PLAIN_NUMBER.fullmatch(wanted):
        return Decimal(cell) == Decimal(wanted)
    return cell == wanted


def accepts_csv(check: Check, text: str) -> bool:
    """The same rows and columns in the same order, whatever is quoted."""
    try:
        rows = [row for row in csv.reader(text.splitlines(), strict=True) if row]
    except csv.Error:
        return False
    wanted = check["rows"]
    return [len(row) for row in rows] == [len(row) for row in wanted] and all(
        same_cell(cell, want)
        for row, want_row in zip(rows, wanted, strict=True)
        for cell, want in zip(row, want_row, strict=True)
    )


KINDS = {
    "number": accepts_value,
    "text": accepts_value,
    "date": accepts_value,
    "list": accepts_list,
    "json": accepts_json,
    "lines": accepts_lines,
    "csv": accepts_csv,
}


def read_text(path: Path) -> str | None:
    """The text of a regular file of moderate size; None for anything else (a pipe would block for ever)."""
    try:
        facts = path.stat()
        if not stat.S_ISREG(facts.st_mode) or facts.st_size > MAX_BYTES:
            return None
        return path.read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError):
        return None


def main(app: str, expected: str, reward: str) -> None:
    passed = True
    for check in json.loads(Path(expected).read_text(encoding="utf-8")):
        text = read_text(Path(app, check["file"]))
        right = text is not None and KINDS[check["kind"]](check, text)
        print(f"{check['file']}: {'right' if right else 'missing or unreadable' if text is None else 'wrong'}")
        passed = passed and right
    Path(reward).write_text(json.dumps({"reward": 1.0 if passed else 0.0}) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
