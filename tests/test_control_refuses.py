"""Control routes answer whatever is sent to them as JSON, and open no session for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.serving import serving

BODIES = {
    "not JSON": (b"{", 400),
    "a list": (b"[]", 400),
    "infinity": (b'{"sampling": {"temperature": Infinity}}', 400),
    "a number beyond every float": (b'{"sampling": {"temperature": 1e999}}', 400),
    "half of a pair": (b'{"metadata": {"a": "\\ud800"}}', 400),
    "an integer beyond 64 bits": (b'{"sampling": {"seed": 99999999999999999999999}}', 400),
    "too deep": (b'{"metadata": {"a": ' + b"[" * 150 + b"1" + b"]" * 150 + b"}}", 400),
    "too long": (b'{"metadata": {"a": "' + b"a" * 5000 + b'"}}', 413),
}


@pytest.mark.parametrize(("body", "status"), BODIES.values(), ids=BODIES)
async def test_a_body_that_opens_no_session_is_refused_as_json(tmp_path: Path, body: bytes, status: int) -> None:
    async with serving(tmp_path, body_limit=4000) as served:
        async with served.client.post("/sessions", data=body) as response:
            assert response.status == status
            assert (await response.json())["error"]["message"]
        assert served.gateway.store.sessions() == []


async def test_a_bug_of_ours_behind_a_control_route_is_json_too(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        key = await served.key()
        served.gateway.store._reader.close()
        async with served.client.get(f"/sessions/{key}") as response:
            assert response.status == 500
            assert (await response.json())["error"]["type"] == "internal"
