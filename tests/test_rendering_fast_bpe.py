"""The fast encoder gives the ids of the tokenizer's own library, or is not used."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from harbor_env.gateway.rendering.fast_bpe import FastBpe, fast_bpe
from harbor_env.gateway.rendering.source import read_source
from tests.tokenizers import qwen3_dir, smollm2_gguf

PIECES = ["<|im_start|>", "<|im_end|>", "<tool_call>", "</think>", " ", "\n", "\r\n", "\t", "  ", "0", "é", "e\u0301"]
texts = st.one_of(
    st.text(max_size=60),
    st.text(st.characters(codec="ascii"), max_size=80),
    st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=8)), max_size=12).map("".join),
)


@cache
def qwen3() -> tuple[dict[str, Any], Tokenizer]:
    text = (qwen3_dir() / "tokenizer.json").read_text()
    return json.loads(text), Tokenizer.from_str(text)


@cache
def smollm2_encoders() -> tuple[FastBpe, Callable[[str], list[int]]]:
    """SmolLM2's: it cuts every digit off, and its vocabulary lacks some bytes."""
    data = dict(read_source(smollm2_gguf()).data)
    tokenizer = Tokenizer.from_str(json.dumps(data))

    def own(text: str) -> list[int]:
        ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    made = fast_bpe(data, str, own)
    assert made is not None
    return made, own


def reference(text: str) -> list[int]:
    ids: list[int] = qwen3()[1].encode(text, add_special_tokens=False).ids
    return ids


@cache
def fast() -> FastBpe:
    made = fast_bpe(qwen3()[0], str, reference)
    assert made is not None
    return made


@settings(max_examples=200, deadline=None)
@given(st.one_of(texts, st.text(st.sampled_from(" \n12٣½²ab's😀\U000f0000\U00050000\ufdd0\x04\x13"), max_size=30)))
def test_single_digits_and_missing_bytes_encode_the_same(text: str) -> None:
    fast_one, own = smollm2_encoders()
    assert fast_one.encode(text) == own(text)


@settings(max_examples=400, deadline=None)
@given(texts)
def test_the_fast_encoder_equals_the_tokenizers_own(text: str) -> None:
    assert fast().encode(text) == reference(text)


def test_long_code_and_prose_encode_the_same() -> None:
    for path in sorted((qwen3_dir().parent).glob("**/*.json"))[:3]:
        text = path.read_text()[:200_000]
        assert fast().encode(text) == reference(text)


@pytest.mark.parametrize(
    "change",
    [
        {"normalizer": {"type": "NFKC"}},
        {"pre_tokenizer": {"type": "Whitespace"}},
        {"pre_tokenizer": None},
        {"added_tokens": [{"id": 151643, "content": "<|endoftext|>", "lstrip": True}]},
    ],
)
def test_a_tokenizer_with_a_part_it_does_not_know_keeps_its_own_library(change: dict[str, Any]) -> None:
    assert fast_bpe({**qwen3()[0], **change}, str, reference) is None


def test_a_vocabulary_whose_ids_do_not_rank_its_merges_keeps_its_own_library() -> None:
    data = qwen3()[0]
    model = {**data["model"], "merges": data["model"]["merges"][::-1]}
    assert fast_bpe({**data, "model": model}, str, reference) is None


def test_an_encoder_that_disagrees_with_the_tokenizer_is_not_used() -> None:
    assert fast_bpe(qwen3()[0], str.upper, reference) is None
