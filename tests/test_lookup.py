"""Whatever name a user gives for something to import, the answer is the thing or one sentence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from harbor_env import harnesses
from harbor_env.errors import UsageError
from harbor_env.gateway.dialects import find_dialect
from harbor_env.gateway.engines import open_engine
from harbor_env.gateway.export import find_format
from harbor_env.gateway.rendering.families import _named as find_renderer
from harbor_env.lookup import import_object

LOOKUPS: dict[str, Callable[[str], Any]] = {
    "dialect": find_dialect,
    "engine": open_engine,
    "format": find_format,
    "harness": harnesses.find,
    "renderer": find_renderer,
}
NO_NAMES = [
    "",
    ":",
    ":Name",
    "..up:Name",
    ".:Name",
    "a b:Name",
    "json:",
    "json:Nope",
    "no_such_module:Name",
    "\0:x",
    "x/y:z",
]


@pytest.mark.parametrize("name", NO_NAMES)
@pytest.mark.parametrize("table", LOOKUPS)
def test_a_name_of_nothing_is_one_sentence_to_the_user(table: str, name: str) -> None:
    with pytest.raises(UsageError):
        LOOKUPS[table](name)


def test_what_exists_is_found() -> None:
    assert import_object("harbor_env.lookup:import_object") is import_object
