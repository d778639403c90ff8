"""What the doctor says of this machine, and of what is missing."""

from __future__ import annotations

import asyncio
from pathlib import Path

from harbor_env.doctor import Check, check_engine, check_package, check_python, check_tokenizer, diagnose
from tests.fake_vllm import serving
from tests.tokenizers import qwen3_dir


def test_every_check_has_a_finding_and_what_fails_says_what_to_do() -> None:
    checks = list(diagnose())
    assert {"Python", "harbor", "disk", "embedded engine"} <= {check.name for check in checks}
    assert any(check.name.startswith("sandbox ") for check in checks)
    assert all(check.found for check in checks)
    assert all(check.advice for check in checks if check.status != "ok")


def test_an_old_python_fails_with_the_version_needed() -> None:
    check = check_python((3, 11, 4))
    assert (check.status, "3.12" in check.advice) == ("fail", True)


def test_a_missing_package_says_what_to_install() -> None:
    check = check_package("no-such-package-here", "something", "warn", "pip install it")
    assert check == Check("no-such-package-here", "warn", "not installed (something)", "pip install it")


def test_a_tokenizer_is_loaded_and_its_deltas_proved() -> None:
    check = check_tokenizer(str(qwen3_dir()))
    assert (check.status, "deltas exact" in check.found) == ("ok", True)


def test_a_tokenizer_that_is_not_there_fails_with_advice(tmp_path: Path) -> None:
    check = check_tokenizer(str(tmp_path / "nowhere"))
    assert (check.status, bool(check.advice)) == ("fail", True)


async def test_an_engine_that_answers_is_named_by_its_models() -> None:
    async with serving() as engine:
        check = await check_engine(engine.url)
    assert (check.status, check.found.startswith("serves ")) == ("ok", True)


def test_an_engine_that_does_not_answer_fails_with_advice() -> None:
    check = asyncio.run(check_engine("http://127.0.0.1:9"))
    assert (check.status, bool(check.advice)) == ("fail", True)
