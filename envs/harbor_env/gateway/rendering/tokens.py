"""One tokenizer, as rendering needs it: exact both ways, with structure kept apart from text.

Invariants: `encode` never adds a token of its own (no second BOS); an id in `structural` comes only from text that was
not guarded; `decode` of a concatenation is the concatenation of text, also for tokenizers that strip a leading space.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tokenizers import Tokenizer, normalizers

from harbor_env.gateway.rendering.fast_bpe import fast_bpe
from harbor_env.gateway.rendering.guard import MARK, REPLACEMENTS, Guard, escape, unguard
from harbor_env.gateway.types import Ids

_HTML_TAG = re.compile(r"</?[a-z][a-z0-9]*>")


class Tokens:
    """A tokenizer.json's content as an object; satisfies the `renderers` library's `Tokenizer` protocol.

    A token is structural when it is special, or was added and is neither white space nor an HTML tag, or stands in the
    chat template: `<tool_call>` is, a run of blanks or Gemma's `<table>` is not.
    """

    def __init__(self, data: Mapping[str, Any], *, template: str = "", name: str = "", eos: str = "") -> None:
        added = [dict(token) for token in data.get("added_tokens", ())]
        structure = [token for token in added if _is_structural(token, template)]
        self.texts: dict[int, str] = {token["id"]: token["content"] for token in structure}
        self.structural = frozenset(self.texts)
        self.guard = Guard(self.texts.values())
        self.name_or_path = name
        self.unk_token_id: int | None = None
        for token in structure:
            token["normalized"] = False
        self._tokenizer: Any = Tokenizer.from_str(
            json.dumps({**data, "added_tokens": added, "decoder": _exact(data.get("decoder")), "truncation": None})
        )
        before = [normalizers.Replace(old, new) for old, new in REPLACEMENTS]
        own = self._tokenizer.normalizer
        self._tokenizer.normalizer = normalizers.Sequence([*before, *([own] if own else [])])
        self.eos_token_id: int | None = self.id_of(eos) if eos else None
        fast = fast_bpe({**data, "added_tokens": added}, unguard, self._encode_slowly)
        self._encode: Callable[[str], list[int]] = fast.encode if fast else self._encode_slowly

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        """Ids of text; special tokens in it become structure unless guarded."""
        try:
            return self._encode(text)
        except (UnicodeEncodeError, TypeError):  # half of a surrogate pair: no UTF-8 has it
            return self._encode(text.encode("utf-8", "replace").decode())

    def _encode_slowly(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def decode(self, token_ids: Ids | int, skip_special_tokens: bool = False, **_: object) -> str:
        """Exact text, special tokens included. Takes one id too, as the `renderers` library does."""
        ids = [token_ids] if isinstance(token_ids, int) else list(token_ids)
        text: str = self._tokenizer.decode(ids, skip_special_tokens=skip_special_tokens)
        return text

    def decode_marked(self, ids: Ids) -> str:
        """Text in which each structural token carries a mark in front, and nothing else can look like one."""
        parts: list[str] = []
        run: list[int] = []
        for token in ids:
            if token not in self.structural:
                run.append(token)
                continue
            if run:
                parts.append(escape(self.decode(run)))
                run = []
            parts.append(MARK + self.texts[token])
        if run:
            parts.append(escape(self.decode(run)))
        return "".join(parts)

    def marker(self, text: str) -> str:
        """How `decode_marked` shows this piece of a grammar: marked when it is a token of its own."""
        return MARK + text if text in self.texts.values() else text

    def id_of(self, token: str) -> int | None:
        found: int | None = self._tokenizer.token_to_id(token)
        return found

    def ids_of(self, texts: Iterable[str]) -> tuple[int, ...]:
        """Ids of the texts that are tokens, in order."""
        return tuple(token for text in texts if (token := self.id_of(text)) is not None)

    def convert_tokens_to_ids(self, tokens: str | Iterable[str]) -> Any:
        return self.id_of(tokens) if isinstance(tokens, str) else [self.id_of(token) for token in tokens]


def _is_structural(token: Mapping[str, Any], template: str) -> bool:
    text = token["content"]
    if token.get("special") or (text.strip() and text in template):
        return True
    return bool(text.strip()) and not _HTML_TAG.fullmatch(text)


def _exact(decoder: Any) -> Any:
    """A decoder that strips nothing at the start, so that parts decode as they do in the middle of a text."""
    if not isinstance(decoder, dict):
        return decoder
    if decoder.get("type") == "Metaspace":
        return {**decoder, "prepend_scheme": "never", "add_prefix_space": False}
    if decoder.get("type") == "Sequence":
        kept = [_exact(part) for part in decoder["decoders"] if part.get("type") != "Strip"]
        return {**decoder, "decoders": kept}
    return decoder
