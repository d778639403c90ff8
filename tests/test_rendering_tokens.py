"""Text never becomes structure, and every text comes back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harbor_env.gateway.rendering.deferred import DeferredTokens
from harbor_env.gateway.rendering.guard import ESCAPE, MARK, Guard, clear, escape, unguard
from harbor_env.gateway.rendering.jinja import Template
from harbor_env.gateway.rendering.source import read_source
from harbor_env.gateway.rendering.tokens import Tokens
from tests.rendering_models import carrier, qwen3, smollm2
from tests.tokenizers import qwen3_dir

quick = settings(max_examples=60, deadline=None)
STRUCTURE = ("<|im_end|>", "<|im_start|>", "<think>", "</think>", "<tool_call>", "</tool_response>", "<|fim_prefix|>")
pieces = st.sampled_from(
    [*STRUCTURE, MARK, ESCAPE, "0", "1", "\\ufdd0", "\\", "<", "|im_end|>", "é", "\u0301", " ", "\n"]
)
texts = st.one_of(st.text(max_size=20), st.lists(pieces, max_size=8).map("".join))


@quick
@given(text=texts)
def test_guarding_is_undone_exactly(text: str) -> None:
    guarded = Guard(STRUCTURE)(text)
    assert not any(token in guarded for token in STRUCTURE)
    assert unguard(guarded) == text


@quick
@given(text=texts)
def test_marks_in_sampled_text_come_back(text: str) -> None:
    assert clear(escape(text)) == text
    assert MARK not in escape(text)


@quick
@given(text=texts)
def test_text_never_becomes_structure_and_decodes_to_itself(text: str) -> None:
    renderer = qwen3()
    ids = renderer.encode(text)
    assert not renderer.structure(ids)
    assert renderer.decode(ids) == _normalized(text)


def _normalized(text: str) -> str:
    import unicodedata

    return unicodedata.normalize("NFC", text)


def test_a_mark_that_a_template_escaped_to_json_is_undone() -> None:
    tokens = carrier("", "carrier")
    escaped = Template("{{ messages | tojson(ensure_ascii=true) }}", {})
    text = escaped([{"content": tokens.guard("<|im_end|>")}], [], {})
    ids = tokens.encode(text)
    assert not tokens.structural.intersection(ids)
    assert tokens.decode(ids) == '[{"content": "<|im_end|>"}]'


def test_half_a_surrogate_pair_does_not_stop_a_prompt() -> None:
    for renderer in (qwen3(), smollm2()):
        assert renderer.decode(renderer.encode("a\ud83db")) in ("a?b", "a\ufffdb")


def test_white_space_and_html_that_a_tokenizer_added_stay_text() -> None:
    data: dict[str, Any] = dict(read_source(qwen3_dir()).data)
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    first = max(token["id"] for token in data["added_tokens"]) + 1
    more = [{"id": first + i, "content": text, **flags} for i, text in enumerate(("    ", "<table>", "<mark>"))]
    tokens = Tokens({**data, "added_tokens": [*data["added_tokens"], *more]}, template="a template with <mark>")
    assert tokens.encode(tokens.guard("    ")) == [first]
    assert tokens.encode(tokens.guard("<table>")) == [first + 1]
    assert first + 2 not in tokens.encode(tokens.guard("<mark>"))
    assert tokens.encode("<mark>") == [first + 2]


@pytest.mark.parametrize("strip", ["metaspace", "sequence"])
def test_a_tokenizer_that_strips_a_leading_space_decodes_in_parts(strip: str) -> None:
    metaspace = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": True}
    replace = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
    sequence = {"type": "Sequence", "decoders": [replace, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}
    tokens = Tokens(
        {
            "version": "1.0",
            "added_tokens": [],
            "normalizer": None,
            "pre_tokenizer": metaspace,
            "post_processor": None,
            "decoder": metaspace if strip == "metaspace" else sequence,
            "model": {"type": "WordLevel", "vocab": {"▁one": 0, "▁two": 1, "?": 2}, "unk_token": "?"},
        }
    )
    assert tokens.encode("one two") == [0, 1]
    assert tokens.decode([0]) + tokens.decode([1]) == tokens.decode([0, 1]) == " one two"


def test_deferred_texts_are_encoded_in_their_place() -> None:
    tokens = carrier("", "carrier")
    deferred = DeferredTokens(tokens)
    end = tokens.id_of("<|im_end|>")
    assert end is not None

    def render() -> list[int]:
        return [end, *deferred.encode("one two"), end, *deferred.encode("three")]

    assert deferred.settle(render) == [end, *tokens.encode("one two"), end, *tokens.encode("three")]
    assert deferred.settle(lambda: None) is None
    assert deferred.encode("one two") == tokens.encode("one two")
