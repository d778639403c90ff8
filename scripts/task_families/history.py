"""Level 3: joins, dates, quantiles and untidy values."""

from __future__ import annotations

import statistics
from collections import defaultdict
from datetime import date, timedelta
from fractions import Fraction

from task_families.draft import Draft, Draw, Redraw, day, family, number, python, text, top
from task_families.tables import csv_text, reading, table

WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


@family(level=3)
def join_total(draw: Draw) -> Draft:
    (first, second), theme = draw.sample(draw.theme.files, 2), draw.theme
    orders, prices = f"{first}.csv", f"{second}.csv"
    cents = {thing: draw.between(100, 2_000) for thing in theme.things}
    rows = draw.rows(draw.between(15, 30))
    person = draw.pick(sorted({r.person for r in rows}))
    return Draft(
        draw.phrase(
            "/app/{o} says who took how many ({c}) of what; /app/{p} has the {m} of each {t}. What is the total {m} of"
            " everything {v} took?",
            "Join /app/{o} and /app/{p} on {t}. What does {v} owe in all, if each row costs {c} times {m}?",
            "Each row of /app/{o} costs its {c} times the {m} that /app/{p} gives for its {t}. Add up the rows of {v}.",
            "Using the {m} list in /app/{p}, what do the rows of {v} in /app/{o} cost together ({c} times {m})?",
            o=orders,
            p=prices,
            c=theme.count,
            m=theme.price,
            t=theme.thing,
            v=person,
        ),
        "number",
        {
            orders: csv_text(
                [theme.number, theme.person, theme.thing, theme.count],
                [(r.number, r.person, r.thing, r.count) for r in rows],
            ),
            prices: csv_text([theme.thing, theme.price], [(t, f"{c // 100}.{c % 100:02d}") for t, c in cents.items()]),
        },
        [number(Fraction(sum(r.count * cents[r.thing] for r in rows if r.person == person), 100), 2)],
        [
            python(
                f"{reading(orders)}"
                f'price = {{r["{theme.thing}"]: float(r["{theme.price}"]) for r in csv.DictReader(open("{prices}"))}}\n'
                f'mine = [r for r in rows if r["{theme.person}"] == "{person}"]\n'
                f'print(round(sum(int(r["{theme.count}"]) * price[r["{theme.thing}"]] for r in mine), 2))'
            )
        ],
    )


@family(level=3)
def join_top(draw: Draw) -> Draft:
    (first, second), theme = draw.sample(draw.theme.files, 2), draw.theme
    facts, teams = f"{first}.csv", f"{second}.csv"
    team = {person: draw.pick(("red", "blue", "green", "amber")) for person in theme.people}
    rows = draw.rows(draw.between(20, 40))
    totals: dict[str, int] = defaultdict(int)
    for row in rows:
        totals[team[row.person]] += row.count
    return Draft(
        draw.phrase(
            "/app/{s} gives the team of every {p}. Which team has the highest total {c} in /app/{f}?",
            "Join /app/{f} with the teams in /app/{s} on {p}. Which team's {c} adds up to the most?",
            "Sum {c} in /app/{f} by team, where /app/{s} says which team each {p} is in. Which team leads?",
            "Each {p} belongs to a team (see /app/{s}). By total {c} in /app/{f}, which team comes first?",
            s=teams,
            f=facts,
            p=theme.person,
            c=theme.count,
        ),
        "text",
        {facts: table(theme, rows), teams: csv_text([theme.person, "team"], draw.shuffled(list(team.items())))},
        [text(top(totals))],
        [
            python(
                f'{reading(facts)}team = {{r["{theme.person}"]: r["team"] for r in csv.DictReader(open("{teams}"))}}\n'
                "totals = {}\nfor r in rows:\n"
                f'    key = team[r["{theme.person}"]]\n    totals[key] = totals.get(key, 0) + int(r["{theme.count}"])\n'
                "print(max(totals, key=totals.get))"
            )
        ],
    )


@family(level=3)
def mean_days(draw: Draw) -> Draft:
    name, theme, rows = draw.file("csv"), draw.theme, draw.rows(draw.between(12, 25))
    done = [(r, r.day + timedelta(days=draw.between(1, 30)) if draw.between(1, 5) > 1 else None) for r in rows]
    gaps = [(end - r.day).days for r, end in done if end]
    if len(gaps) in (0, len(rows)):
        raise Redraw("all or none are finished")
    return Draft(
        draw.phrase(
            "In /app/{f}, how many days pass on average from {d} to finished_on? Skip rows that are not finished."
            " Round to two decimals.",
            "What is the mean number of days between {d} and finished_on in /app/{f}, leaving out rows where"
            " finished_on is empty? Two decimals.",
            "For the finished rows of /app/{f}, compute the average of finished_on minus {d} in days, rounded to 2"
            " decimal places.",
            "Rows of /app/{f} with an empty finished_on are still open. For the others, give the average days from {d}"
            " to finished_on, to two decimal places.",
            f=name,
            d=theme.day,
        ),
        "number",
        {
            name: csv_text(
                [theme.number, theme.thing, theme.day, "finished_on"],
                [(r.number, r.thing, r.day, end or "") for r, end in done],
            )
        },
        [number(Fraction(sum(gaps), len(gaps)), 2)],
        [
            python(
                f"from datetime import date\n{reading(name)}"
                f'gaps = [(date.fromisoformat(r["finished_on"]) - date.fromisoformat(r["{theme.day}"])).days\n'
                '        for r in rows if r["finished_on"]]\nprint(round(sum(gaps) / len(gaps), 2))'
            )
        ],
    )


@family(level=3)
def busiest_weekday(draw: Draw) -> Draft:
    name, theme, rows = draw.file("csv"), draw.theme, draw.rows(draw.between(25, 50))
    totals: dict[str, int] = defaultdict(int)
    for row in rows:
        totals[WEEKDAYS[row.day.weekday()]] += row.count
    return Draft(
        draw.phrase(
            "On which day of the week is the total {c} in /app/{f} highest? Answer with the English name.",
            "Add up {c} in /app/{f} by weekday of {d}. Which weekday (in English) has the most?",
            "Which weekday, as an English name, sees the largest total {c} in /app/{f}, going by {d}?",
            "Going by {d} in /app/{f}, name the weekday (English, in full) with the greatest summed {c}.",
            f=name,
            c=theme.count,
            d=theme.day,
        ),
        "text",
        {name: table(theme, rows)},
        [text(top(totals))],
        [
            python(
                f"from datetime import date\n{reading(name)}totals = {{}}\nfor r in rows:\n"
                f'    weekday = date.fromisoformat(r["{theme.day}"]).strftime("%A")\n'
                f'    totals[weekday] = totals.get(weekday, 0) + int(r["{theme.count}"])\n'
                "print(max(totals, key=totals.get))"
            )
        ],
    )


@family(level=3)
def quantile(draw: Draw) -> Draft:
    name, theme, rows = draw.file("csv"), draw.theme, draw.rows(draw.between(20, 40))
    percent = draw.pick((60, 75, 80, 90, 95))
    ranked = sorted(r.cents for r in rows)
    rank = -(-percent * len(ranked) // 100)
    return Draft(
        draw.phrase(
            "What is the {n}th percentile of {c} in /app/{f} by the nearest-rank method: the smallest value that at"
            " least {n} % of the rows do not exceed?",
            "Sort {c} in /app/{f} in ascending order; with N rows, give the value at position ceil({n} / 100 * N),"
            " counting from 1.",
            "Give the nearest-rank {n}th percentile of the column {c} in /app/{f}: position ceil({n} * N / 100) of the"
            " N sorted values, counting from 1.",
            "Find the least {c} in /app/{f} such that {n} percent of the rows or more have that {c} or less.",
            n=percent,
            c=theme.price,
            f=name,
        ),
        "number",
        {name: table(theme, rows)},
        [number(Fraction(ranked[rank - 1], 100), 2)],
        [
            python(
                f'{reading(name)}values = sorted(float(r["{theme.price}"]) for r in rows)\n'
                f"print(values[-(-{percent} * len(values) // 100) - 1])"
            )
        ],
    )


@family(level=3)
def highest_median(draw: Draw) -> Draft:
    name, theme, rows = draw.file("csv"), draw.theme, draw.rows(draw.between(30, 55))
    groups: dict[str, list[int]] = defaultdict(list)
    for row in rows:
        groups[row.group].append(row.cents)
    return Draft(
        draw.phrase(
            "Which {g} has the highest median {c} in /app/{f}?",
            "Compute the median {c} of each {g} in /app/{f} and name the {g} where it is largest.",
            "By median {c}, which {g} is first in /app/{f}? With an even number of rows the median is the mean of the"
            " middle two.",
            "Compare each {g} in /app/{f} by its median {c}. Which one is on top?",
            f=name,
            g=theme.group,
            c=theme.price,
        ),
        "text",
        {name: table(theme, rows)},
        [text(top({group: Fraction(statistics.median(map(Fraction, values))) for group, values in groups.items()}))],
        [
            python(
                f"import statistics\n{reading(name)}groups = {{}}\nfor r in rows:\n"
                f'    groups.setdefault(r["{theme.group}"], []).append(float(r["{theme.price}"]))\n'
                "print(max(groups, key=lambda g: statistics.median(groups[g])))"
            )
        ],
    )


@family(level=3)
def untidy_amounts(draw: Draw) -> Draft:
    name, theme, rows = draw.file("csv"), draw.theme, draw.rows(draw.between(14, 26))
    cells, total = [], 0
    for row in rows:
        cents = row.cents * draw.pick((1, 1, 100))
        plain = f"{cents / 100:.2f}"
        missing = draw.between(1, 6) == 1
        cells.append("n/a" if missing else draw.pick((plain, f"${plain}", f" {plain} ", f"${cents / 100:,.2f}")))
        total += 0 if missing else cents
    return Draft(
        draw.phrase(
            "The column {c} of /app/{f} was typed by hand: some values have a $ or thousands separators, some are n/a."
            " What is the total of the known values?",
            "Add up {c} in /app/{f}. Ignore dollar signs and commas inside the amounts, and skip n/a.",
            "Clean the amounts in the {c} column of /app/{f} (currency signs, separators, spaces; n/a is missing) and"
            " give their sum.",
            "What do the {c} amounts in /app/{f} come to? They are written untidily ($, commas, spaces), and n/a stands"
            " for no amount.",
            c=theme.price,
            f=name,
        ),
        "number",
        {
            name: csv_text(
                [theme.number, theme.thing, theme.price],
                [(r.number, r.thing, cell) for r, cell in zip(rows, cells, strict=True)],
            )
        },
        [number(Fraction(total, 100), 2)],
        [
            python(
                f'{reading(name)}cells = [r["{theme.price}"].strip() for r in rows]\n'
                'print(round(sum(float(c.strip("$").replace(",", "")) for c in cells if c != "n/a"), 2))'
            )
        ],
    )


@family(level=3)
def best_month(draw: Draw) -> Draft:
    name, theme, rows = draw.file("csv"), draw.theme, draw.rows(draw.between(30, 50), days=300)
    kept = [(r, draw.pick(("ok", "ok", "ok", "void"))) for r in rows]
    totals: dict[str, int] = defaultdict(int)
    for row, status in kept:
        if status == "ok":
            totals[f"{row.day:%Y-%m}"] += row.count * row.cents
    return Draft(
        draw.phrase(
            "Leaving out rows whose status is void, which month has the highest total of {c} times {p} in /app/{f}?"
            " Answer as YYYY-MM.",
            "In /app/{f}, drop the void rows, multiply {c} by {p} and add up per month of {d}. Which month (YYYY-MM)"
            " is best?",
            "Which month, written YYYY-MM, brings in the most ({c} x {p}) in /app/{f} if void rows do not count?",
            "Void rows aside, in which month of {d} (YYYY-MM) is the sum of {c} times {p} in /app/{f} greatest?",
            f=name,
            c=theme.count,
            p=theme.price,
            d=theme.day,
        ),
        "text",
        {
            name: csv_text(
                [theme.number, theme.day, theme.count, theme.price, "status"],
                [(r.number, r.day, r.count, r.price, status) for r, status in kept],
            )
        },
        [text(top(totals))],
        [
            python(
                f'{reading(name)}totals = {{}}\nfor r in rows:\n    if r["status"] != "void":\n'
                f'        month, amount = r["{theme.day}"][:7], int(r["{theme.count}"]) * float(r["{theme.price}"])\n'
                "        totals[month] = totals.get(month, 0) + amount\nprint(max(totals, key=totals.get))"
            )
        ],
    )


@family(level=3)
def first_shortfall(draw: Draw) -> Draft:
    name, theme = draw.file("csv"), draw.theme
    opening, start = draw.between(60, 140), draw.day()
    moves = [(start + timedelta(days=3 * n), draw.between(-45, 30)) for n in range(draw.between(15, 25))]
    level, below = opening, None
    for when, change in moves:
        level += change
        if level < 0 and below is None:
            below = when
    if below is None or below == moves[-1][0]:
        raise Redraw("the stock never runs out before the end")
    return Draft(
        draw.phrase(
            "The stock of {t} starts at {n}; /app/{f} lists its changes by date, in no order. On which date does the"
            " stock first fall below zero?",
            "Starting with {n} of {t}, apply the changes in /app/{f} in order of date (the file is not sorted). When is"
            " the stock below 0 for the first time?",
            "/app/{f} has dated changes, unsorted. If the stock of {t} was {n} before the first, what is the first date"
            " that ends with a negative stock?",
            "There were {n} of {t} at the outset. Going through the unsorted changes in /app/{f} by date, find the day"
            " the count first drops under zero.",
            t=draw.pick(theme.things),
            n=opening,
            f=name,
        ),
        "date",
        {name: csv_text(["date", "change"], draw.shuffled(moves))},
        [day(_checked(below))],
        [
            python(
                f"{reading(name)}stock = {opening}\n"
                'for r in sorted(rows, key=lambda r: r["date"]):\n    stock += int(r["change"])\n'
                '    if stock < 0:\n        print(r["date"])\n        break'
            )
        ],
    )


def _checked(when: date | None) -> date:
    assert when is not None
    return when


@family(level=3)
def busiest_hour(draw: Draw) -> Draft:
    name, theme = draw.file("log"), draw.theme
    opened = draw.day()
    entries = sorted((opened + timedelta(days=draw.between(0, 3)), draw.between(0, 24 * 60 - 1)) for _ in range(70))
    hours: dict[str, int] = defaultdict(int)
    body = []
    for when, minute in entries:
        status = draw.pick((200, 200, 200, 404, 500, 503))
        hour = f"{6 + minute % 12:02d}"
        hours[hour] += status >= 500
        body.append(f"{when}T{hour}:{minute % 60:02d}:{minute % 59:02d}Z GET /{draw.pick(theme.things)} {status}")
    return Draft(
        draw.phrase(
            "In the request log /app/{f}, which hour of the day (two digits, 00 to 23) has the most answers with status"
            " 500 or above, all days together?",
            "Count the log lines of /app/{f} with a status of at least 500 by hour of the day, over all days. Which"
            " hour (as two digits) has the most?",
            "Over all days in /app/{f}, which hour (00 to 23) shows the largest number of 5xx statuses?",
            "Server errors are statuses from 500 up. In which hour of the day (00 to 23), days taken together, does"
            " /app/{f} have the most of them?",
            f=name,
        ),
        "number",
        {name: "".join(f"{line}\n" for line in body)},
        [number(int(top(hours)))],
        [
            python(
                f'hours = {{}}\nfor line in open("{name}"):\n    stamp, _, _, status = line.split()\n'
                "    if int(status) >= 500:\n        hours[stamp[11:13]] = hours.get(stamp[11:13], 0) + 1\n"
                "print(max(hours, key=hours.get))"
            )
        ],
    )
