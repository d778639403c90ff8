"""`openenv-harbor export`: sessions of a gateway, running or not, as files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option


def export(
    data: Annotated[Path | None, Option(help="Folder of a batch (its --out) or of a gateway (its --data).")] = None,
    url: Annotated[str, Option(help="URL of a running gateway; give --session with it.")] = "",
    session: Annotated[
        list[str] | None, Option(help="Session, or rollout of a batch, by name; repeat. Default: see below.")
    ] = None,
    min_reward: Annotated[float | None, Option(help="Only rollouts of a batch with this reward or more.")] = None,
    everything: Annotated[
        bool, Option("--all", help="Sessions of failed rollouts and of repeated tries as well.")
    ] = False,
    format: Annotated[str, Option(help="trace, rows, safetensors, messages, sft, or module:Name.")] = "rows",
    out: Annotated[Path | None, Option(help="File to write; FILE.parquet for rows as Parquet.")] = None,
    admin_key: Annotated[str, Option(help="Key for control routes.", envvar="OPENENV_HARBOR_ADMIN_KEY")] = "",
) -> None:
    """Write what was captured: of a batch the rollouts that scored, with their reward; of a gateway every session.

    $ openenv-harbor export --data my-rollouts --format sft --min-reward 1 --out sft.jsonl

    $ openenv-harbor export --data gateway-data --format rows --out rows.parquet

    $ openenv-harbor export --url http://127.0.0.1:8200 --session ID --format trace --out trace.json
    """
    from harbor_env.errors import UsageError
    from harbor_env.exporting import Wanted, export_folder, export_running

    sessions = tuple(session or ())
    if (data is None) == (not url):
        raise UsageError("Give --data FOLDER of a batch or a gateway, or --url of a running one.")
    if data is None:
        print(export_running(url, sessions, format, out, admin_key))
    else:
        print(export_folder(data, Wanted(sessions, min_reward, everything), format, out))
