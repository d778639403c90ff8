"""Puts a running engine into the state that a job expects to find it in.

    python -m trl_integration.engine_state renew URL             not paused, without adapters an earlier trainer left
    python -m trl_integration.engine_state load URL NAME FOLDER  with the adapter in FOLDER served as NAME

Invariant: an engine already in that state is left as it is.
"""

from __future__ import annotations

import argparse
import json
import sys
import urllib.error
import urllib.request
from typing import Any

TRAINERS_ADAPTERS = "trl-policy-v"
SECONDS = 300
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def ask(url: str, body: dict[str, Any] | None = None) -> Any:
    """The JSON answer of a GET, or of a POST where there is a body; None where there is none or no such route."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    try:
        with _OPENER.open(request, timeout=SECONDS) as response:
            text = response.read()
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return None
        raise RuntimeError(f"{url} answered {error.code}: {error.read().decode(errors='replace')[:400]}") from error
    return json.loads(text) if text.startswith(b"{") else None


def served(url: str) -> list[str]:
    listed = ask(f"{url}/v1/models") or {}
    return [str(model["id"]) for model in listed.get("data", [])]


def renew(url: str) -> None:
    if (ask(f"{url}/is_paused") or {}).get("is_paused"):
        ask(f"{url}/resume", {})
    for name in served(url):
        if name.startswith(TRAINERS_ADAPTERS):
            ask(f"{url}/v1/unload_lora_adapter", {"lora_name": name})


def load(url: str, name: str, folder: str) -> None:
    """RuntimeError: the engine serves no adapters, or not this one."""
    if name not in served(url):
        ask(f"{url}/v1/load_lora_adapter", {"lora_name": name, "lora_path": folder})
    if name not in served(url):
        raise RuntimeError(f"{url} serves no adapters: start the engine with LORA_RANK.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    states = parser.add_subparsers(required=True)
    renews = states.add_parser("renew")
    renews.add_argument("url")
    renews.set_defaults(do=lambda args: renew(args.url))
    loads = states.add_parser("load")
    for word in ("url", "name", "folder"):
        loads.add_argument(word)
    loads.set_defaults(do=lambda args: load(args.url, args.name, args.folder))
    args = parser.parse_args()
    try:
        args.do(args)
    except (OSError, RuntimeError) as error:
        sys.exit(f"engine_state: {error}")


if __name__ == "__main__":
    main()
