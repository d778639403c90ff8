"""What may be kept with a session: nothing that one of its writers could not write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from harbor_env.errors import GatewayError
from harbor_env.gateway.export import FORMATS, SessionExport
from harbor_env.gateway.options import DEEPEST, context_digest
from harbor_env.gateway.store import SessionRecord, Store
from harbor_env.gateway.stored_export import stored_export
from harbor_env.gateway.types import Tool
from tests.turns import make_turn


def nested(levels: int) -> dict[str, Any]:
    """An object that holds an object, `levels` times, through lists and objects in turn."""
    inner: Any = {}
    for level in range(levels):
        inner = [inner] if level % 2 else {"a": inner}
    return {"properties": inner}


async def test_the_deepest_schema_taken_is_stored_and_exported_in_every_format(tmp_path: Path) -> None:
    tool = Tool("deep", parameters=nested(DEEPEST - 1))
    turn = make_turn("t", context=context_digest([tool], {}))
    store = Store.open(tmp_path)
    await store.create_session(SessionRecord("s", 0.0), "key")
    await store.commit_turn("s", turn, {"tools": [tool], "template_kwargs": {}})
    session: SessionExport = stored_export(store, SessionRecord("s", 0.0))
    for written in FORMATS.values():
        assert written.encode(session)
    store.close()


@pytest.mark.parametrize("levels", [DEEPEST + 2, 150, 500])
def test_a_schema_that_could_not_be_written_is_the_callers_error(levels: int) -> None:
    deep = orjson.loads("[" * levels + "]" * levels)
    for tools, variables in (([Tool("deep", parameters={"items": deep})], {}), ((), {"deep": deep})):
        with pytest.raises(GatewayError, match=r"^deep: nested") as caught:
            context_digest(tools, variables)
        assert caught.value.kind == "bad_request"
