"""A tokenizer that gives the `renderers` library one stand-in a text, and encodes when the library is done.

The library keeps four lists with an entry for every token; with stand-ins it keeps one entry for every text.
This costs nothing in exactness: texts are encoded one by one either way.
Invariant: stand-ins are negative, so no token id is mistaken for one, and none leaves `settle`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from harbor_env.gateway.rendering.tokens import Tokens
from harbor_env.gateway.types import Ids


class DeferredTokens:
    """Satisfies the library's `Tokenizer` protocol. Outside of `settle` it encodes at once."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._texts: list[str] | None = None
        self.name_or_path = tokens.name_or_path
        self.unk_token_id = tokens.unk_token_id
        self.eos_token_id = tokens.eos_token_id

    def settle(self, render: Callable[[], Iterable[int] | None]) -> list[int] | None:
        """The ids `render` gives, with every text it had encoded in its place; None where it gives none."""
        texts = self._texts = []
        try:
            found = render()
        finally:
            self._texts = None
        if found is None:
            return None
        ids: list[int] = []
        for token in found:
            if token < 0:
                ids += self._tokens.encode(texts[-1 - token])
            else:
                ids.append(token)
        return ids

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        if self._texts is None:
            return self._tokens.encode(text)
        self._texts.append(text)
        return [-len(self._texts)]

    def decode(self, token_ids: Ids | int, skip_special_tokens: bool = False, **_: object) -> str:
        return self._tokens.decode(token_ids, skip_special_tokens)

    def convert_tokens_to_ids(self, tokens: str | Iterable[str]) -> Any:
        return self._tokens.convert_tokens_to_ids(tokens)
