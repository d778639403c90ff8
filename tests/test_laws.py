"""The laws of DESIGN.md, each as a property over drawn conversations."""

from __future__ import annotations

from random import Random

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harbor_env.gateway.dialects import DIALECTS
from harbor_env.gateway.types import Call, Message, Reply
from tests.conversations import SPELLINGS, conversations, replies
from tests.strict_clients import READERS

each_dialect = pytest.mark.parametrize("name", sorted(DIALECTS))


@each_dialect
@given(reply=replies(), piece=st.integers(0, 5), usage=st.booleans())
def test_law_4_the_stream_equals_the_reply(name: str, reply: Reply, piece: int, usage: bool) -> None:
    dialect, call = DIALECTS[name], Call((Message("user", "go"),), stream=True, include_usage=usage)
    rebuilt = READERS[name](b"".join(dialect.stream(reply, call, piece)))
    body = orjson.loads(dialect.encode(reply, call))
    if name == "chat" and not usage:
        del body["usage"]
    assert rebuilt == body


@each_dialect
@settings(max_examples=150)
@given(call=conversations(), vary=st.randoms(use_true_random=False))
def test_law_5_one_meaning_in_every_dialect(name: str, call: Call, vary: Random) -> None:
    spell, meaning = SPELLINGS[name]
    body = orjson.loads(orjson.dumps(spell(call, vary)))
    assert DIALECTS[name].decode(body, {"model": call.model}) == meaning(call)
