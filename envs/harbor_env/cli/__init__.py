"""`openenv-harbor`: one file per command, importing what it needs only when it runs.

Invariant: an error a user can mend is one sentence on standard error, exit 2; nobody is shown a traceback for it.
"""

from __future__ import annotations

import sys

import typer

from harbor_env.cli import bake, doctor, export, gateway, harnesses, info, push, rollout, serve
from harbor_env.errors import HarborEnvError, TaskError, UsageError
from harbor_env.keys import hide_keys

app = typer.Typer(
    name="openenv-harbor",
    help="Reinforcement learning inside unmodified coding agents.",
    epilog="Start with: openenv-harbor doctor; then: openenv-harbor rollout -n 2",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="rich",
)
for command in (
    rollout.rollout,
    serve.serve,
    push.push,
    gateway.gateway,
    info.info,
    export.export,
    bake.bake,
    harnesses.harnesses,
    doctor.doctor,
):
    app.command()(command)


def main() -> None:
    """The console script."""
    hide_keys()
    try:
        app()
    except (UsageError, TaskError) as error:
        sys.exit(_say(error, 2))
    except HarborEnvError as error:
        sys.exit(_say(error, 1))
    except OSError as error:  # a folder that cannot be written, an address that cannot be had
        sys.exit(_say(error, 1))
    except KeyboardInterrupt:
        sys.exit(130)


def _say(error: Exception, status: int) -> int:
    print(f"Error: {error}", file=sys.stderr)
    return status
