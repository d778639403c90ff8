"""`openenv-harbor export`: sessions of a gateway, running or not, as files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option


def export(
    data: Annotated[Path | None, Option(help="Data folder of a gateway (its --data).")] = None,
    url: Annotated[str, Option(help="URL of a running gateway; give --session with it.")] = "",
    session: Annotated[list[str] | None, Option(help="Session id; repeat. Default with --data: every session.")] = None,
    format: Annotated[str, Option(help="trace, rows, safetensors, messages, sft, or module:Name.")] = "rows",
    out: Annotated[Path | None, Option(help="File to write; FILE.parquet for rows as Parquet.")] = None,
    admin_key: Annotated[str, Option(help="Key for control routes.", envvar="OPENENV_HARBOR_ADMIN_KEY")] = "",
) -> None:
    """Write what a gateway captured.

    $ openenv-harbor export --data gateway-data --format rows --out rows.parquet

    $ openenv-harbor export --url http://127.0.0.1:8200 --session ID --format trace --out trace.json
    """
    from harbor_env.exporting import export_to_file

    written = export_to_file(
        data=data, url=url, sessions=tuple(session or ()), export_format=format, out=out, admin_key=admin_key
    )
    print(written)
