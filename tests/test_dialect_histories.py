"""What real harnesses do to a history between two requests does not change what it says.

Each file in `data/dialects` has a request, the reply it got, and the next request as that harness sends it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from harbor_env.gateway.dialects import DIALECTS
from harbor_env.gateway.meaning import same_assistant, same_delta
from harbor_env.gateway.types import Message, ToolCall

CASES = sorted((Path(__file__).parent / "data" / "dialects").glob("*.json"))


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_the_next_request_continues_the_one_before(path: Path) -> None:
    case: dict[str, Any] = orjson.loads(path.read_bytes())
    dialect = DIALECTS[case["dialect"]]
    before = dialect.decode(case["before"], {"model": "m"}).messages
    after = dialect.decode(case["after"], {"model": "m"}).messages
    calls = tuple(ToolCall(**call) for call in case["reply"].pop("tool_calls"))
    reply = Message("assistant", tool_calls=calls, **case["reply"])
    assert same_delta(before, after, 0)
    said = after[len(before)]
    minted = {call.id for call in reply.tool_calls} & {call.id for call in said.tool_calls}
    assert minted == {call.id for call in calls} if minted else same_assistant(reply, said)
    assert after[len(before) + 1].role != "assistant"
    assert [m.tool_call_id for m in after[len(before) + 1 :] if m.role == "tool"] == [c.id for c in said.tool_calls]
