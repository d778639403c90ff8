"""Every chat template TRL ships: its grade is the documented one, and it carries tools."""

from __future__ import annotations

import pytest

from tests.template_grades import DOCUMENT, carries_tools, names, renderer_of, row

DOCUMENTED = DOCUMENT.read_text().splitlines()


@pytest.mark.parametrize("name", names())
def test_a_template_is_graded_as_documented_and_carries_tools(name: str) -> None:
    assert row(name) in DOCUMENTED
    assert carries_tools(renderer_of(name))
