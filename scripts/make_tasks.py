"""Write Harbor tasks from templates and a seed: the bundled ones, or any number of fresh ones.

    python scripts/make_tasks.py                                            # the bundled tasks, again
    python scripts/make_tasks.py --count 240 --seed 7 --out DIR             # fresh training tasks, all families in turn
    python scripts/make_tasks.py --count 40 --seed 1 --out DIR --split heldout --levels 1,2
    python scripts/make_tasks.py --count 40 --seed 2 --out DIR --families count-lines,nth-line

One seed gives the same bytes on every machine. Held-out tasks use themes, people and phrasings that training
tasks never use. Within one run no two tasks share a data file.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import cycle
from pathlib import Path
from typing import get_args

from task_families import FAMILIES, Draw, Family, Redraw, Split
from task_families.draft import CLOSINGS
from task_families.folder import Named, write

BUNDLED = Path(__file__).resolve().parents[1] / "envs" / "harbor_env" / "bundled_tasks"
BUNDLED_SEED = 20
BUNDLED_FAMILIES: dict[Split, tuple[str, ...]] = {
    "train": (
        *("count-lines", "count-words", "count-matching", "count-different-lines", "sum-numbers", "largest-number"),
        *("value-of-key", "nth-line", "count-files", "sort-lines", "replace-word", "remove-blank-lines"),
        *("column-total", "column-mean", "filter-count", "group-top", "distinct-values", "top-three", "json-total"),
        *("share-percent", "rename-key", "set-value", "dedupe-lines"),
        *("join-total", "mean-days", "busiest-weekday", "quantile", "untidy-amounts", "nested-total", "best-month"),
        *("merge-configs", "eight-step-trail"),
    ),
    "heldout": (
        *("count-lines", "count-matching", "sum-numbers", "smallest-number", "value-of-key", "sort-lines"),
        *("column-total", "filter-count", "most-common", "json-lookup", "days-between-count", "drop-column"),
        *("join-top", "highest-median", "first-shortfall", "nested-top", "table-to-json", "eight-step-trail"),
    ),
}
MAX_DRAWS = 200


def draw_task(family: Family, split: Split, name: str, seed: str) -> Named:
    """The first unambiguous draw of `family` from `seed`."""
    for attempt in range(MAX_DRAWS):
        draw = Draw(random.Random(f"{seed}/{attempt}"), split)
        try:
            draft = family.draw(draw)
        except Redraw:
            continue
        closing = draw.phrase(*CLOSINGS[draft.answer])
        return Named(name, family, split, draft, "\n\n".join(part for part in (draft.question, closing) if part) + "\n")
    raise RuntimeError(f"{family.name} gave {MAX_DRAWS} ambiguous draws from seed {seed!r}")


def fresh_tasks(names: Iterable[str], split: Split, seed: int) -> Iterator[Named]:
    """One task for each family name, in turn; a task that repeats a data file is drawn again."""
    seen: set[str] = set()
    numbers: Counter[str] = Counter()
    for family_name in names:
        family = FAMILIES[family_name]
        numbers[family_name] += 1
        suffix = f"-{numbers[family_name]:04d}" if numbers[family_name] > 1 else ""
        for attempt in range(MAX_DRAWS):
            task = draw_task(
                family,
                split,
                f"l{family.level}-{family_name}{suffix}",
                f"{seed}/{split}/{family_name}/{numbers[family_name]}/{attempt}",
            )
            if seen.isdisjoint(task.draft.files.values()):
                break
        else:
            raise RuntimeError(f"{family_name} has no more fresh tasks after {numbers[family_name] - 1}")
        seen.update(task.draft.files.values())
        yield task


def write_bundled(out: Path) -> int:
    """Both bundled splits below `out`, replacing what is there; returns the number of tasks."""
    count = 0
    for split, names in BUNDLED_FAMILIES.items():
        shutil.rmtree(out / split, ignore_errors=True)
        for task in fresh_tasks(names, split, BUNDLED_SEED):
            write(task, out / split / task.name)
            count += 1
    return count


def chosen_families(levels: str, families: str) -> list[str]:
    """Family names of the given levels, or exactly the given ones; SystemExit names what exists."""
    unknown = [name for name in families.split(",") if name and name not in FAMILIES]
    if unknown:
        raise SystemExit(f"no family {', '.join(unknown)}; there are: {', '.join(FAMILIES)}")
    if families:
        return families.split(",")
    return [name for name, family in FAMILIES.items() if str(family.level) in levels.split(",")]


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Write Harbor tasks from templates and a seed.")
    parser.add_argument("--count", type=int, help="how many fresh tasks (default: rewrite the bundled ones)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="a folder that is new or empty")
    parser.add_argument("--split", choices=get_args(Split), default="train")
    parser.add_argument("--levels", default="1,2,3", help="of these levels, families in turn")
    parser.add_argument("--families", default="", help="exactly these families, in turn")
    return parser.parse_args(argv)


def main(argv: Sequence[str]) -> None:
    args = arguments(argv)
    if args.count is None:
        out = args.out or BUNDLED
        print(f"{write_bundled(out)} bundled tasks in {out}")
        return
    if args.out is None or (args.out.exists() and any(args.out.iterdir())):
        raise SystemExit("--count needs --out DIR, a folder that is new or empty")
    families = cycle(chosen_families(args.levels, args.families))
    for task in fresh_tasks((next(families) for _ in range(args.count)), args.split, args.seed):
        write(task, args.out / task.name)
    print(f"{args.count} {args.split} tasks in {args.out}")


if __name__ == "__main__":
    main(sys.argv[1:])
