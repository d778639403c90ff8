"""OpenEnv's own capture proxy, run as its Harbor server runs it. `python -m bench.peer PORT ENGINE_URL`."""

from __future__ import annotations

import sys
import threading

from openenv.core.harness.capture import CaptureServer

if __name__ == "__main__":
    CaptureServer(llm_url=sys.argv[2], model="fake", port=int(sys.argv[1]), admin_key="admin").start(600)
    print("up", flush=True)
    threading.Event().wait()
