"""Hold a tunnel of gradio's to a port of this machine: `python -m harbor_env.exposing.gradio_share HOST PORT`.

Prints its address on a line of its own, and ends, with the tunnel's program, on SIGTERM.
"""

from __future__ import annotations

import secrets
import signal
import sys


def main() -> None:
    host, port = sys.argv[1], int(sys.argv[2])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # leaving in order lets gradio end its program
    try:
        from gradio.networking import setup_tunnel

        address = setup_tunnel(host, port, secrets.token_urlsafe(32), None, None)
    except ImportError as error:
        sys.exit(f"gradio cannot be imported ({error}): pip install gradio.")
    except Exception as error:  # noqa: BLE001 - whatever keeps gradio from its relay is told to whoever asked
        cause = f" ({error.__cause__})" if error.__cause__ else ""
        sys.exit(f"{error}{cause} It needs api.gradio.app and cdn-media.huggingface.co.")
    print(address.rstrip("/"), flush=True)
    while True:
        signal.pause()


if __name__ == "__main__":
    main()
