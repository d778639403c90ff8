"""`openenv-harbor harnesses`: which coding agents there are, and what was proved of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

if TYPE_CHECKING:
    from rich.table import Table

    from harbor_env.harnesses.listing import Listed


def harnesses(
    names: Annotated[list[str] | None, Argument(help="Say everything about these.", metavar="[NAME]...")] = None,
    verbose: Annotated[bool, Option("--verbose", help="Say everything about all of them.")] = False,
    as_json: Annotated[bool, Option("--json", help="One JSON object per harness.")] = False,
) -> None:
    """List the harnesses that have facts of their own: dialects, pinned version, baked or not, what was proved.

    Proved are the cases that held in live runs of the pinned version, in any dialect; docs/live.md tells of each.
    Any other agent Harbor knows runs by its name, and one of your own by module:Name. NAME@DIALECT picks a dialect.

    $ openenv-harbor harnesses

    $ openenv-harbor harnesses codex
    """
    from dataclasses import asdict

    import orjson
    from rich.console import Console

    from harbor_env.errors import UsageError
    from harbor_env.harnesses.listing import list_harnesses

    listed = {entry.name: entry for entry in list_harnesses()}
    unknown = [name for name in names or () if name not in listed]
    if unknown:
        raise UsageError(f"There are no facts about {', '.join(unknown)}. Choose from: {', '.join(listed)}.")
    chosen = [listed[name] for name in names or listed]
    if as_json:
        for entry in chosen:
            print(orjson.dumps(asdict(entry)).decode())
        return
    console = Console(highlight=False)
    if not (names or verbose):
        console.print(_overview(chosen))
        return
    for entry in chosen:
        baked = "baked" if entry.baked else "not baked"
        console.print(f"{entry.name} {entry.version}, {baked}; speaks {', '.join(entry.dialects)}")
        console.print(_proofs(entry))


def _overview(listed: list[Listed]) -> Table:
    table = _table("harness", "dialects", "version", "baked", "proved")
    for entry in listed:
        proved = f"{len(entry.cases_proved)}/{len(entry.cases)}"
        table.add_row(entry.name, ", ".join(entry.dialects), entry.version, "yes" if entry.baked else "no", proved)
    return table


def _proofs(entry: Listed) -> Table:
    """One line per run, and what no run has shown."""
    table = _table("  case", "dialect", "turns", "rows", "trained", "why")
    for proof in entry.proved:
        numbers = (str(proof.turns), str(proof.rows), f"{proof.trained:.0%}")
        table.add_row(f"  {proof.case}", proof.dialect, *numbers, proof.note)
    for case in entry.cases:
        if case not in entry.cases_proved:
            table.add_row(f"  {case}", "-", "-", "-", "-", "no run of this version")
    return table


def _table(*columns: str) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name in columns:
        table.add_column(name, no_wrap=name != columns[-1], overflow="fold")
    return table
