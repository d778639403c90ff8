"""Questions over JSON: level 2 over one list of objects, level 3 over nested ones."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence

from task_families.draft import Draft, Draw, Redraw, Row, family, number, python, text, top
from task_families.themes import Theme


def json_text(value: object) -> str:
    return json.dumps(value, indent=2) + "\n"


def _objects(theme: Theme, rows: Sequence[Row]) -> list[dict[str, object]]:
    return [
        {
            theme.number: r.number,
            theme.thing: r.thing,
            theme.group: r.group,
            theme.person: r.person,
            theme.count: r.count,
        }
        for r in rows
    ]


@family(level=2)
def json_total(draw: Draw) -> Draft:
    name, theme, rows = draw.file("json"), draw.theme, draw.rows(draw.between(10, 20))
    person = draw.pick(sorted({r.person for r in rows}))
    return Draft(
        draw.phrase(
            "/app/{f} is a list of objects. What is the total {c} of those whose {p} is {v}?",
            "Add up {c} over the objects in /app/{f} with {p} {v}.",
            "In the JSON file /app/{f}, sum {c} for every entry where {p} is {v}.",
            "How much {c} do the entries of /app/{f} with {p} equal to {v} have in all?",
            f=name,
            c=theme.count,
            p=theme.person,
            v=person,
        ),
        "number",
        {name: json_text(_objects(theme, rows))},
        [number(sum(r.count for r in rows if r.person == person))],
        [
            python(
                f'import json\nrows = json.load(open("{name}"))\n'
                f'print(sum(r["{theme.count}"] for r in rows if r["{theme.person}"] == "{person}"))'
            )
        ],
    )


@family(level=2)
def json_lookup(draw: Draw) -> Draft:
    name, theme, rows = draw.file("json"), draw.theme, draw.rows(draw.between(10, 20))
    wanted = draw.pick(rows)
    return Draft(
        draw.phrase(
            "In /app/{f}, what is the {t} of the object whose {k} is {n}?",
            "/app/{f} is a list of objects. Find the one with {k} {n} and give its {t}.",
            "Look up {k} {n} in the JSON file /app/{f}. Which {t} does it have?",
            "Which {t} does /app/{f} record under {k} {n}?",
            f=name,
            t=theme.thing,
            k=theme.number,
            n=wanted.number,
        ),
        "text",
        {name: json_text(_objects(theme, rows))},
        [text(wanted.thing)],
        [
            python(
                f'import json\nfor r in json.load(open("{name}")):\n'
                f'    if r["{theme.number}"] == {wanted.number}:\n        print(r["{theme.thing}"])'
            )
        ],
    )


def _orders(draw: Draw, theme: Theme) -> list[dict[str, object]]:
    """Orders of one to four lines each, a third of them cancelled; prices are whole numbers."""
    return [
        {
            theme.number: row.number,
            theme.person: row.person,
            "status": draw.pick(("done", "done", "cancelled")),
            "lines": [
                {
                    theme.thing: draw.pick(theme.things),
                    theme.count: draw.between(1, 9),
                    theme.price: draw.between(2, 80),
                }
                for _ in range(draw.between(1, 4))
            ],
        }
        for row in draw.rows(draw.between(10, 18))
    ]


@family(level=3)
def nested_total(draw: Draw) -> Draft:
    name, theme = draw.file("json"), draw.theme
    orders = _orders(draw, theme)
    total = sum(
        line[theme.count] * line[theme.price]
        for order in orders
        if order["status"] == "done"
        for line in order["lines"]  # type: ignore[attr-defined]
    )
    return Draft(
        draw.phrase(
            "/app/{f} lists orders with their lines. What is the sum of {c} times {p} over all lines of orders that are"
            " not cancelled?",
            "For every order in /app/{f} whose status is not cancelled, multiply {c} by {p} on each of its lines. Give"
            " the grand total.",
            "Leave out cancelled orders in /app/{f}; what do the others come to, counting {c} x {p} for each line?",
            "What is the worth ({c} times {p}, all lines together) of the orders in /app/{f} that were not cancelled?",
            f=name,
            c=theme.count,
            p=theme.price,
        ),
        "number",
        {name: json_text(orders)},
        [number(total)],
        [
            python(
                f'import json\norders = [o for o in json.load(open("{name}")) if o["status"] != "cancelled"]\n'
                f'print(sum(line["{theme.count}"] * line["{theme.price}"] for o in orders for line in o["lines"]))'
            )
        ],
    )


@family(level=3)
def nested_top(draw: Draw) -> Draft:
    name, theme = draw.file("json"), draw.theme
    orders = _orders(draw, theme)
    totals: dict[str, int] = defaultdict(int)
    for order in orders:
        for line in order["lines"]:  # type: ignore[attr-defined]
            if order["status"] == "done":
                totals[line[theme.thing]] += line[theme.count]
    if not totals:
        raise Redraw("every order is cancelled")
    return Draft(
        draw.phrase(
            "/app/{f} lists orders with their lines. Leaving out cancelled orders, which {t} has the largest {c} in"
            " total?",
            "Ignore the cancelled orders in /app/{f}. Over the lines of the others, which {t} reaches the highest {c}"
            " in all?",
            "Sum {c} per {t} over all lines in /app/{f}, except those of cancelled orders. Which {t} is first?",
            "Not counting cancelled orders, name the {t} with the greatest total {c} in the order lines of /app/{f}.",
            f=name,
            t=theme.thing,
            c=theme.count,
        ),
        "text",
        {name: json_text(orders)},
        [text(top(totals))],
        [
            python(
                f'import json\ntotals = {{}}\nfor o in json.load(open("{name}")):\n'
                '    for line in o["lines"] if o["status"] != "cancelled" else []:\n'
                f'        key = line["{theme.thing}"]\n'
                f'        totals[key] = totals.get(key, 0) + line["{theme.count}"]\n'
                "print(max(totals, key=totals.get))"
            )
        ],
    )
