"""Calls of a gateway under test, and how they are sent."""

from __future__ import annotations

from typing import Any

from tests.serving import Served

ASK = {"model": "m", "messages": [{"role": "user", "content": "Hi."}]}
ASK_MESSAGES = {**ASK, "max_tokens": 100}


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


async def post(served: Served, path: str, key: str, body: Any, **kwargs: Any) -> tuple[int, Any]:
    headers = {**bearer(key), **kwargs.pop("headers", {})}
    async with served.client.post(path, json=body, headers=headers, **kwargs) as response:
        return response.status, await response.json()
