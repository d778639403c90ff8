"""What a merge could not put right afterwards is refused before it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from scripts.merge_adapter import main


@pytest.mark.parametrize(
    ("out", "adapter", "said"),
    [("base", True, "is what is merged"), ("adapter", True, "is what is merged"), ("new", False, "holds no adapter")],
)
def test_nothing_is_written_over_what_is_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, out: str, adapter: bool, said: str
) -> None:
    for name in ("base", "adapter"):
        (tmp_path / name).mkdir()
    if adapter:
        (tmp_path / "adapter/adapter_config.json").write_text('{"peft_type": "LORA"}')
    given = [str(tmp_path / "adapter"), "--base", str(tmp_path / "base"), "--out", str(tmp_path / out)]
    monkeypatch.setattr(sys, "argv", ["merge_adapter.py", *given])
    with pytest.raises(SystemExit, match=said):
        main()
    assert not list((tmp_path / "base").iterdir())
