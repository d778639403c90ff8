"""`openenv-harbor harnesses`: which coding agents there are, and what was proved of each."""

from __future__ import annotations

from typing import Annotated

from typer import Option


def harnesses(
    as_json: Annotated[bool, Option("--json", help="One JSON object per harness.")] = False,
) -> None:
    """List the harnesses that have facts of their own: dialects, pinned version, baked or not, what was proved.

    Any other agent Harbor knows runs by its name, and one of your own by module:Name. NAME@DIALECT picks a dialect.

    $ openenv-harbor harnesses
    """
    from dataclasses import asdict

    import orjson
    from rich.console import Console
    from rich.table import Table

    from harbor_env.harnesses.listing import list_harnesses

    listed = list_harnesses()
    if as_json:
        for entry in listed:
            print(orjson.dumps(asdict(entry)).decode())
        return
    table = Table(box=None, pad_edge=False)
    for name in ("harness", "dialects", "version", "baked", "proved live"):
        table.add_column(name, overflow="fold")
    for entry in listed:
        table.add_row(
            entry.name,
            ", ".join(entry.dialects),
            entry.version or "Harbor's own",
            "yes" if entry.baked else "no",
            ", ".join(entry.proved) or "-",
        )
    Console(highlight=False).print(table)
