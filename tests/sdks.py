"""The official SDKs over a transport that ends in a function: what they send is kept, what they get is given."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anthropic
import httpx2
import openai
import orjson
from google import genai
from google.genai import types as google

SSE = "text/event-stream"


class Wire:
    """Answers every request with one body, in chunks of `chunk` bytes (0: whole), and keeps the last request."""

    def __init__(
        self, answer: bytes = b"{}", *, status: int = 200, kind: str = "application/json", chunk: int = 0
    ) -> None:
        self._answer, self._status, self._kind, self._chunk = answer, status, kind, chunk
        self.path = ""
        self.body: dict[str, Any] = {}
        self.client = httpx2.Client(transport=httpx2.MockTransport(self._serve))

    def _serve(self, request: httpx2.Request) -> httpx2.Response:
        self.path = request.url.path
        self.body = orjson.loads(request.content)
        return httpx2.Response(self._status, headers={"content-type": self._kind}, content=self._chunks())

    def _chunks(self) -> Iterator[bytes]:
        size = self._chunk or len(self._answer)
        for start in range(0, len(self._answer), size):
            yield self._answer[start : start + size]


def openai_client(wire: Wire) -> openai.OpenAI:
    return openai.OpenAI(api_key="k", base_url="http://gateway/v1", http_client=wire.client, max_retries=0)


def anthropic_client(wire: Wire) -> anthropic.Anthropic:
    return anthropic.Anthropic(api_key="k", base_url="http://gateway", http_client=wire.client, max_retries=0)


def google_client(wire: Wire) -> genai.Client:
    options = google.HttpOptions(
        base_url="http://gateway", httpx_client=wire.client, retry_options=google.HttpRetryOptions(attempts=1)
    )
    return genai.Client(api_key="k", http_options=options)


_SDK_ONLY = ("parsed", "parsed_arguments", "index", "system_fingerprint")


def sent_only(value: Any) -> Any:
    """What came over the wire, without the nulls and the fields an SDK adds of its own."""
    if isinstance(value, dict):
        return {key: sent_only(part) for key, part in value.items() if key not in _SDK_ONLY and part is not None}
    return [sent_only(part) for part in value] if isinstance(value, list) else value
