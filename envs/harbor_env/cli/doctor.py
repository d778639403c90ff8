"""`openenv-harbor doctor`: what this machine can do, and what to do about the rest."""

from __future__ import annotations

from typing import Annotated

import typer
from typer import Option


def doctor(
    llm_url: Annotated[str, Option(help="Check this engine too.")] = "",
    tokenizer: Annotated[str, Option(help="Check that this tokenizer loads.")] = "",
    as_json: Annotated[bool, Option("--json", help="One JSON object per check.")] = False,
) -> None:
    """Check Python, the local sandbox, engines, harnesses and disk, and say what to do about each.

    $ openenv-harbor doctor --llm-url http://127.0.0.1:8000
    """
    from dataclasses import asdict

    import orjson
    from rich.console import Console

    from harbor_env.doctor import diagnose

    console = Console(highlight=False)
    worst = 0
    for check in diagnose(llm_url=llm_url, tokenizer=tokenizer):
        worst = max(worst, check.status == "fail")
        if as_json:
            print(orjson.dumps(asdict(check)).decode())
            continue
        color = {"ok": "green", "warn": "yellow", "fail": "red"}[check.status]
        console.print(f"[{color}]{check.status:<4}[/] {check.name:<18} ", end="")
        console.print(check.found, markup=False, soft_wrap=True)
        if check.advice:
            console.print(f"{'':24}-> {check.advice}", markup=False, soft_wrap=True)
    raise typer.Exit(worst)
