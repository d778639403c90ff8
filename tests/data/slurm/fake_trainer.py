"""A fake trainer: writes down what it was told, and on SIGTERM saves a checkpoint and ends well, as the real one does.

With the setting `training.max_steps=0` it has nothing to do and ends at once.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path


def main(words: list[str]) -> None:
    told = dict(word.partition("=")[::2] for word in words if "=" in word)
    folder = Path(told["output_dir"])
    folder.mkdir(parents=True, exist_ok=True)
    key = os.environ.get(told["admin_key_env"], "")
    facts = {**told, "config": words[0], "resume": "--resume" in words, "key_length": len(key)}
    (folder / "told.new").write_text(json.dumps(facts))
    (folder / "told.new").rename(folder / "told.json")
    if told.get("training.max_steps") == "0":
        return
    signal.sigwait({signal.SIGTERM})
    (folder / "checkpoint-1").mkdir()
    (folder / "checkpoint-1" / "trainer_state.json").write_text("{}")


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    main(sys.argv[1:])
