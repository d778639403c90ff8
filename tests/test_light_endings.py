"""What ends a batch, an interrupted one too, waits for no library that it does not need."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_the_table_of_results_is_written_without_pandas(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from harbor_env.outcome import Reason;"
        "from harbor_env.results_table import write_table; from harbor_env.outcome import RolloutResult;"
        "ended = RolloutResult('r', 't', 'h', 'local', ok=False, reward=None, reason=Reason('cancelled', 'Again.'));"
        f"print(write_table(Path({str(tmp_path)!r}), [ended]), 'pandas' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=True)
    assert done.stdout.strip() == "1 False"
