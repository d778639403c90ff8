import subprocess
import sys
from pathlib import Path

import pytest

from harbor_env.gateway.types import Message, ToolCall, Turn
from scripts.bench.loss import Loss, Shown, look_for_loss
from tests.tokenizers import qwen3_dir
from tests.turns import make_turn

ROOT = Path(__file__).resolve().parent.parent
CALL = Message("assistant", "look", tool_calls=(ToolCall("call_1", "bash", "{}"),))
DONE = Message("assistant", "done")
SHOWN = [Shown("look", ("call_1",), (3, 4)), Shown("done", (), (3, 4))]
STORED = [make_turn("t1", reply=CALL), make_turn("t2", "t1", reply=DONE)]


def test_a_session_whose_replies_are_all_stored_has_no_fault() -> None:
    loss = Loss()
    retried = make_turn("t0", reply=Message("assistant", "look", tool_calls=(ToolCall("call_0", "bash", "{}"),)))
    look_for_loss("s", SHOWN, [retried, *STORED], loss)
    assert (loss.faults, loss.shown, loss.stored, loss.unshown) == ([], 2, 3, 1)


@pytest.mark.parametrize(
    ("stored", "fault"),
    [
        ([], "reply 0 was shown and is not stored"),
        (STORED[:1], "reply 1 was shown and is not stored"),
        ([STORED[0], make_turn("t2", None, reply=DONE)], "reply 1 was shown and is not stored after t1"),
        ([make_turn("t1", sampled=(3, 5), reply=CALL), STORED[1]], "other ids"),
        ([*STORED, STORED[1]], "stored twice"),
    ],
)
def test_a_missing_different_or_unlinked_turn_is_a_fault(stored: list[Turn], fault: str) -> None:
    loss = Loss()
    look_for_loss("s", SHOWN, stored, loss)
    assert len(loss.faults) == 1
    assert fault in loss.faults[0]


@pytest.mark.live
@pytest.mark.timeout(600)
@pytest.mark.parametrize("workers", [1, 2])
def test_law_6_kill_9_of_a_loaded_gateway_loses_no_turn_a_harness_was_shown(workers: int) -> None:
    flags = ["--tokenizer", str(qwen3_dir()), "--kills", "4", "--workers", str(workers)]
    done = subprocess.run([sys.executable, "scripts/kill_gateway.py", *flags], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
