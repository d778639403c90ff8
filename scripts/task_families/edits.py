"""Levels 2 and 3: changes to files, graded by what the files hold afterwards."""

from __future__ import annotations

import copy
import json
from collections import defaultdict
from typing import Any

from task_families.draft import Draft, Draw, Redraw, family, lines, text_of
from task_families.records import json_text
from task_families.tables import reading, table

TAGS = ["file-editing"]


def _edit(source: str) -> str:
    return f"python3 - <<'EOF'\n{source.strip()}\nEOF"


def _config(draw: Draw) -> dict[str, Any]:
    theme = draw.theme
    first, second, third = draw.sample(theme.groups, 3)
    return {
        "name": draw.pick(theme.things),
        "owner": draw.pick(theme.people),
        first: {"limit": draw.between(10, 90), "enabled": draw.pick((True, False))},
        second: {"limit": draw.between(10, 90), "enabled": draw.pick((True, False)), "notes": draw.sentence()},
        third: {"limit": draw.between(10, 90), "tags": draw.sample(theme.things, 3)},
    }


@family(level=2)
def rename_key(draw: Draw) -> Draft:
    name, theme = draw.file("json"), draw.theme
    old, new = theme.count, f"{theme.count}_total"
    records = [{theme.thing: r.thing, old: r.count, theme.person: r.person} for r in draw.rows(draw.between(5, 9))]
    wanted = [{(new if key == old else key): value for key, value in record.items()} for record in records]
    return Draft(
        draw.phrase(
            "In /app/{f}, rename the key {o} to {n} in every object. Keep all values.",
            "Every object in the list /app/{f} has a key {o}; it should be called {n}. Change the file.",
            "Edit the JSON file /app/{f}: {o} becomes {n} in each object, nothing else changes.",
            "Give the key {o} the new name {n} throughout /app/{f}, and leave the rest of the data untouched.",
            f=name,
            o=old,
            n=new,
        ),
        "edit",
        {name: json_text(records)},
        [{"kind": "json", "file": name, "value": wanted}],
        [f"""sed -i 's/"{old}":/"{new}":/' {name}"""],
        TAGS,
    )


@family(level=2)
def set_value(draw: Draw) -> Draft:
    name, before = draw.file("json"), _config(draw)
    section = draw.pick([key for key, value in before.items() if isinstance(value, dict)])
    limit = before[section]["limit"] + draw.between(5, 50)
    after = copy.deepcopy(before)
    after[section]["limit"] = limit
    return Draft(
        draw.phrase(
            "In /app/{f}, set limit under {s} to {n}. Change nothing else.",
            "The limit of {s} in /app/{f} is wrong: it should be {n}. Fix it and leave the rest alone.",
            "Edit /app/{f} so that {s}.limit is {n}; every other value stays.",
            "Correct one value in /app/{f}: the limit in the section {s} must be {n}. Touch nothing more.",
            f=name,
            s=section,
            n=limit,
        ),
        "edit",
        {name: json_text(before)},
        [{"kind": "json", "file": name, "value": after}],
        [
            _edit(
                f'import json\nconfig = json.load(open("{name}"))\nconfig["{section}"]["limit"] = {limit}\n'
                f'json.dump(config, open("{name}", "w"), indent=2)'
            )
        ],
        TAGS,
    )


@family(level=2)
def dedupe_lines(draw: Draw) -> Draft:
    name, theme = draw.file("txt"), draw.theme
    body = [f"{draw.pick(theme.people)} {draw.pick(theme.groups[:3])}" for _ in range(draw.between(14, 24))]
    kept = list(dict.fromkeys(body))
    if len(body) - len(kept) < 2 or kept == sorted(kept):
        raise Redraw("too few duplicates, or in order")
    return Draft(
        draw.phrase(
            "Remove repeated lines from /app/{f}: keep the first of each and the order of the rest.",
            "Edit /app/{f} so that every line occurs once, where it occurred first. Do not sort it.",
            "Deduplicate the lines of /app/{f} in place without changing their order; the first copy stays.",
            "Some lines of /app/{f} are there more than once. Drop the later copies and leave the order as it is.",
            f=name,
        ),
        "edit",
        {name: text_of(body)},
        [lines(name, kept)],
        [f"awk '!seen[$0]++' {name} > /tmp/once && cp /tmp/once {name}"],
        TAGS,
    )


@family(level=2)
def drop_column(draw: Draw) -> Draft:
    name, theme, rows = draw.file("csv"), draw.theme, draw.rows(draw.between(6, 14))
    index = draw.between(1, 6)
    body = [line.split(",") for line in table(theme, rows).splitlines()]
    return Draft(
        draw.phrase(
            "Delete the column {c} from the CSV file /app/{f}. Keep the other columns in order.",
            "Edit /app/{f} so that it has no column {c} any more; the other columns stay.",
            "The column {c} of /app/{f} is not needed. Remove it from the file.",
            "Take {c} out of the table /app/{f}, header and values, and keep everything else.",
            c=theme.header[index],
            f=name,
        ),
        "edit",
        {name: table(theme, rows)},
        [{"kind": "csv", "file": name, "rows": [[*row[:index], *row[index + 1 :]] for row in body]}],
        [f"cut -d, -f{index + 1} --complement {name} > /tmp/less && cp /tmp/less {name}"],
        TAGS,
    )


def _merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """`over` wins; objects are merged key by key, anything else is replaced."""
    result = dict(base)
    for key, value in over.items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = _merged(result[key], value) if both else value
    return result


@family(level=3)
def merge_configs(draw: Draw) -> Draft:
    base, theme = _config(draw), draw.theme
    sections = [key for key, value in base.items() if isinstance(value, dict)]
    changed, listed = sections[0], sections[2]
    over = {
        "owner": draw.pick([person for person in theme.people if person != base["owner"]]),
        changed: {"limit": base[changed]["limit"] + draw.between(1, 9), "colour": draw.pick(("red", "blue"))},
        listed: {"tags": [draw.pick(theme.things)]},
        "added": {"by": draw.pick(theme.people)},
    }
    first, second = (f"{stem}.json" for stem in draw.sample(theme.files, 2))
    return Draft(
        draw.phrase(
            "Merge /app/{b} into /app/{a} and write the result to /app/merged.json. Values of {b} win; objects are"
            " merged key by key at every depth, lists are replaced whole.",
            "Write /app/merged.json: the config /app/{a} with the overrides of /app/{b} on top. Nested objects merge,"
            " other values, lists included, are replaced.",
            "Overlay /app/{b} on /app/{a} (deep merge of objects, {b} wins, lists are not joined) and save it as"
            " /app/merged.json.",
            "Produce /app/merged.json from /app/{a} overridden by /app/{b}: nested objects are combined, everything"
            " else, also a list, is taken from {b} where it has it.",
            a=first,
            b=second,
        ),
        "edit",
        {first: json_text(base), second: json_text(over)},
        [
            {"kind": "json", "file": "merged.json", "value": _merged(base, over)},
            {"kind": "json", "file": first, "value": base},
        ],
        [
            _edit(
                "import json\n\ndef merge(a, b):\n    for key, value in b.items():\n"
                "        both = isinstance(value, dict) and isinstance(a.get(key), dict)\n"
                "        a[key] = merge(a[key], value) if both else value\n    return a\n\n"
                f'merged = merge(json.load(open("{first}")), json.load(open("{second}")))\n'
                'json.dump(merged, open("merged.json", "w"), indent=2)'
            )
        ],
        TAGS,
    )


@family(level=3)
def table_to_json(draw: Draw) -> Draft:
    name, theme, rows = draw.file("csv"), draw.theme, draw.rows(draw.between(15, 30))
    totals: dict[str, int] = defaultdict(int)
    for row in rows:
        totals[row.group] += row.count
    return Draft(
        draw.phrase(
            "From /app/{f}, write /app/totals.json: one JSON object with each {g} as a key and its total {c} as the"
            " value.",
            "Sum {c} per {g} in /app/{f} and save the result as a JSON object in /app/totals.json ({g} to total).",
            "Create /app/totals.json, an object that maps every {g} in /app/{f} to the sum of its {c}.",
            "Turn /app/{f} into /app/totals.json: a JSON object, keys the values of {g}, values their summed {c}.",
            f=name,
            g=theme.group,
            c=theme.count,
        ),
        "edit",
        {name: table(theme, rows)},
        [{"kind": "json", "file": "totals.json", "value": json.loads(json.dumps(totals))}],
        [
            _edit(
                f"import json\n{reading(name)}totals = {{}}\nfor r in rows:\n"
                f'    totals[r["{theme.group}"]] = totals.get(r["{theme.group}"], 0) + int(r["{theme.count}"])\n'
                'json.dump(totals, open("totals.json", "w"))'
            )
        ],
        TAGS,
    )
