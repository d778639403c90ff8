"""Level 2: questions over one CSV table."""

from __future__ import annotations

import csv
import io
from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import timedelta
from fractions import Fraction

from task_families.draft import Draft, Draw, Redraw, Row, family, number, ordered, python, text, top
from task_families.themes import Theme


def csv_text(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([header, *rows])
    return out.getvalue()


def table(theme: Theme, rows: Sequence[Row]) -> str:
    """The theme's whole table as CSV: number, thing, group, person, day, count, price."""
    body = [(r.number, r.thing, r.group, r.person, r.day.isoformat(), r.count, r.price) for r in rows]
    return csv_text(theme.header, body)


def reading(name: str) -> str:
    """The first lines of a solution that reads the CSV file `name`."""
    return f'import csv\nrows = list(csv.DictReader(open("{name}")))\n'


def _drawn(draw: Draw, low: int = 15, high: int = 45) -> tuple[str, Theme, list[Row]]:
    return draw.file("csv"), draw.theme, draw.rows(draw.between(low, high))


@family(level=2)
def column_total(draw: Draw) -> Draft:
    name, theme, rows = _drawn(draw)
    return Draft(
        draw.phrase(
            "What is the total of the column {c} in /app/{f}?",
            "Add up the {c} column of the table /app/{f}.",
            "Sum {c} over all rows of /app/{f}.",
            "The table /app/{f} has a column {c}. What do its values add up to?",
            c=theme.count,
            f=name,
        ),
        "number",
        {name: table(theme, rows)},
        [number(sum(r.count for r in rows))],
        [python(f'{reading(name)}print(sum(int(r["{theme.count}"]) for r in rows))')],
    )


@family(level=2)
def column_mean(draw: Draw) -> Draft:
    name, theme, rows = _drawn(draw)
    return Draft(
        draw.phrase(
            "What is the mean {c} in /app/{f}? Round to two decimal places.",
            "Compute the average of the column {c} in /app/{f}, rounded to 2 decimals.",
            "Average {c} over all rows of /app/{f}. Give two decimals.",
            "The table /app/{f} has a column {c}. Find its arithmetic mean to two decimal places.",
            c=theme.price,
            f=name,
        ),
        "number",
        {name: table(theme, rows)},
        [number(Fraction(sum(r.cents for r in rows), 100 * len(rows)), 2)],
        [python(f'{reading(name)}print(round(sum(float(r["{theme.price}"]) for r in rows) / len(rows), 2))')],
    )


@family(level=2)
def filter_count(draw: Draw) -> Draft:
    name, theme, rows = _drawn(draw, 25, 60)
    group, limit = draw.pick(theme.groups), draw.between(10, 25)
    found = sum(r.group == group and r.count > limit for r in rows)
    if not found:
        raise Redraw("no row matches")
    return Draft(
        draw.phrase(
            "How many rows of /app/{f} have {g} equal to {v} and {c} greater than {n}?",
            "Count the rows in /app/{f} where {g} is {v} and {c} is above {n}.",
            "In /app/{f}, how many records with {g} = {v} have more than {n} in {c}?",
            "Of the records in /app/{f} whose {g} is {v}, how many have a {c} over {n}?",
            f=name,
            g=theme.group,
            v=group,
            c=theme.count,
            n=limit,
        ),
        "number",
        {name: table(theme, rows)},
        [number(found)],
        [
            python(
                f"{reading(name)}"
                f'print(sum(r["{theme.group}"] == "{group}" and int(r["{theme.count}"]) > {limit} for r in rows))'
            )
        ],
    )


@family(level=2)
def group_top(draw: Draw) -> Draft:
    name, theme, rows = _drawn(draw)
    totals: dict[str, int] = defaultdict(int)
    for row in rows:
        totals[row.group] += row.count
    return Draft(
        draw.phrase(
            "Which {g} has the highest total {c} in /app/{f}?",
            "Group /app/{f} by {g} and add up {c}. Which {g} comes out on top?",
            "For each {g} in /app/{f} sum the {c}. Name the {g} with the largest sum.",
            "Looking at total {c} per {g} in /app/{f}, which {g} leads?",
            f=name,
            g=theme.group,
            c=theme.count,
        ),
        "text",
        {name: table(theme, rows)},
        [text(top(totals))],
        [
            python(
                f"{reading(name)}totals = {{}}\nfor r in rows:\n"
                f'    totals[r["{theme.group}"]] = totals.get(r["{theme.group}"], 0) + int(r["{theme.count}"])\n'
                "print(max(totals, key=totals.get))"
            )
        ],
    )


@family(level=2)
def distinct_values(draw: Draw) -> Draft:
    name, theme, rows = _drawn(draw, 8, 18)
    return Draft(
        draw.phrase(
            "How many different values does the column {c} have in /app/{f}?",
            "Count the distinct {c} values in /app/{f}.",
            "In /app/{f}, how many unique entries are there under {c}?",
            "Ignoring repeats, how many values occur in the {c} column of /app/{f}?",
            f=name,
            c=theme.thing,
        ),
        "number",
        {name: table(theme, rows)},
        [number(len({r.thing for r in rows}))],
        [python(f'{reading(name)}print(len({{r["{theme.thing}"] for r in rows}}))')],
    )


@family(level=2)
def most_common(draw: Draw) -> Draft:
    name, theme, rows = _drawn(draw)
    return Draft(
        draw.phrase(
            "Which {c} appears most often in /app/{f}?",
            "Find the most frequent {c} in the table /app/{f}.",
            "Name the {c} that occurs on the most rows of /app/{f}.",
            "One {c} turns up in /app/{f} more than any other. Which?",
            f=name,
            c=theme.person,
        ),
        "text",
        {name: table(theme, rows)},
        [text(top(Counter(r.person for r in rows)))],
        [f"cut -d, -f4 {name} | tail -n +2 | sort | uniq -c | sort -n | tail -n 1 | awk '{{print $2}}' > answer.txt"],
    )


@family(level=2)
def top_three(draw: Draw) -> Draft:
    name, theme, rows = _drawn(draw, 20, 40)
    totals: dict[str, int] = defaultdict(int)
    for row in rows:
        totals[row.person] += row.cents
    ranked = sorted(totals, key=lambda person: -totals[person])
    if len(ranked) < 4 or len({totals[person] for person in ranked[:4]}) < 4:
        raise Redraw("the first three are not clear")
    return Draft(
        draw.phrase(
            "Which three {p}s have the highest total {c} in /app/{f}, highest first?",
            "Rank each {p} in /app/{f} by total {c} and name the top three, best first.",
            "Sum {c} per {p} in /app/{f}; list the three largest, from first to third.",
            "By total {c}, who are the leading three of the {p} column in /app/{f}, starting with the highest?",
            f=name,
            p=theme.person,
            c=theme.price,
        ),
        "list",
        {name: table(theme, rows)},
        [ordered(ranked[:3])],
        [
            python(
                f"{reading(name)}totals = {{}}\nfor r in rows:\n"
                f'    totals[r["{theme.person}"]] = totals.get(r["{theme.person}"], 0) + float(r["{theme.price}"])\n'
                'print("\\n".join(sorted(totals, key=totals.get, reverse=True)[:3]))'
            )
        ],
    )


@family(level=2)
def share_percent(draw: Draw) -> Draft:
    name, theme, rows = _drawn(draw)
    group = draw.pick(sorted({r.group for r in rows}))
    part, whole = sum(r.count for r in rows if r.group == group), sum(r.count for r in rows)
    return Draft(
        draw.phrase(
            "What percentage of the total {c} in /app/{f} belongs to rows with {g} = {v}? Round to one decimal place.",
            "In /app/{f}, which share of all {c} comes from {g} {v}? Answer in percent with one decimal.",
            "Of the summed {c} in /app/{f}, how many percent fall to the {g} {v}? Use one decimal.",
            "Take {c} in /app/{f}: what percent of its total is due to {g} {v}, to one decimal place?",
            f=name,
            c=theme.count,
            g=theme.group,
            v=group,
        ),
        "number",
        {name: table(theme, rows)},
        [number(Fraction(100 * part, whole), 1, percent=True)],
        [
            python(
                f'{reading(name)}part = sum(int(r["{theme.count}"]) for r in rows if r["{theme.group}"] == "{group}")\n'
                f'print(round(100 * part / sum(int(r["{theme.count}"]) for r in rows), 1))'
            )
        ],
    )


@family(level=2)
def days_between_count(draw: Draw) -> Draft:
    name, theme, rows = _drawn(draw, 25, 50)
    first = min(r.day for r in rows) + timedelta(days=draw.between(15, 30))
    last = first + timedelta(days=draw.between(20, 50))
    return Draft(
        draw.phrase(
            "How many rows of /app/{f} have a {d} from {a} to {b}, both days included?",
            "Count the rows in /app/{f} whose {d} lies between {a} and {b} (inclusive).",
            "In /app/{f}, how many records are dated {a} to {b} in the column {d}, counting both ends?",
            "Taking {d} in /app/{f}, how many rows are not before {a} and not after {b}?",
            f=name,
            d=theme.day,
            a=first,
            b=last,
        ),
        "number",
        {name: table(theme, rows)},
        [number(sum(first <= r.day <= last for r in rows))],
        [python(f'{reading(name)}print(sum("{first}" <= r["{theme.day}"] <= "{last}" for r in rows))')],
    )


@family(level=2)
def row_of_largest(draw: Draw) -> Draft:
    name, theme, rows = _drawn(draw)
    best = max(rows, key=lambda r: r.cents)
    if sum(r.cents == best.cents for r in rows) > 1:
        raise Redraw("two rows share the largest value")
    return Draft(
        draw.phrase(
            "What is the {k} of the row with the largest {c} in /app/{f}?",
            "Find the row of /app/{f} with the highest {c} and give its {k}.",
            "Which {k} belongs to the record with the maximum {c} in /app/{f}?",
            "Give the {k} of the one record in /app/{f} whose {c} is the greatest.",
            f=name,
            k=theme.number,
            c=theme.price,
        ),
        "number",
        {name: table(theme, rows)},
        [number(best.number)],
        [python(f'{reading(name)}print(max(rows, key=lambda r: float(r["{theme.price}"]))["{theme.number}"])')],
    )
