"""The laws of DESIGN.md, each as a property over drawn conversations."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harbor_env.gateway.dialects import DIALECTS
from harbor_env.gateway.export import rows
from harbor_env.gateway.export.session_export import SessionExport
from harbor_env.gateway.paths import paths
from harbor_env.gateway.types import Call, Message, Reply
from tests.conversations import SPELLINGS, conversations, replies
from tests.strict_clients import READERS
from tests.wild_harness import WildHarness, scripts

Script = list[tuple[str, int, Message, str, str]]

each_dialect = pytest.mark.parametrize("name", sorted(DIALECTS))


@given(scripts)
def test_law_1_messages_only_no_reply_carries_token_ids(script: Script) -> None:
    harness = WildHarness()
    harness.run(script)
    for turn in harness.play.session.tree.turns():
        shown = repr(turn.reply)
        assert str(turn.sampled.tolist()) not in shown
        assert "array(" not in shown


@given(scripts)
def test_law_2_token_in_token_out_at_every_prefix(script: Script) -> None:
    harness = WildHarness()
    harness.run(script)
    tree = harness.play.session.tree
    assert [turn.parent for turn in tree.turns()] == harness.expected
    for path in paths(tree.turns()):
        ids: list[int] = []
        for turn in path.turns:
            ids += turn.delta_ids
            assert len(ids) == turn.prompt_length
            ids += turn.sampled
        assert ids == list(tree.ids(path.turns[-1]))
    for turn in tree.turns():
        reread = harness.play.renderer.render(turn.delta, ())
        assert list(turn.delta_ids)[-len(reread) :] == reread


@given(scripts, st.lists(st.integers(0, 11), max_size=3))
def test_law_3_trained_once(script: Script, untrainable: list[int]) -> None:
    harness = WildHarness()
    harness.run(script)
    turns = [
        replace(turn, trainable=index not in untrainable)
        for index, turn in enumerate(harness.play.session.tree.turns())
    ]
    trained: Counter[tuple[str, int]] = Counter()
    by_id = {turn.id: turn for turn in turns}
    for row in rows.rows(SessionExport("s", turns)):
        assert len(row.input_ids) == len(row.loss_mask) == len(row.logprobs)
        for span in row.spans:
            turn = by_id[span.turn]
            for offset in range(span.end - span.start):
                at = span.start + offset
                assert row.input_ids[at] == turn.sampled[offset]
                if row.loss_mask[at]:
                    trained[turn.id, offset] += 1
                    assert row.logprobs[at] == turn.logprobs[offset]
        covered = {at for span in row.spans for at in range(span.start, span.end)}
        assert not any(mask for at, mask in enumerate(row.loss_mask) if at not in covered)
    expected = {(turn.id, i) for turn in turns if turn.trainable for i in range(len(turn.sampled))}
    assert set(trained) == expected
    assert set(trained.values()) <= {1}


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
@settings(max_examples=60)
@given(call=conversations(), vary=st.randoms(use_true_random=False))
def test_law_5_one_meaning_in_every_dialect(name: str, call: Call, vary: Random) -> None:
    spell, meaning = SPELLINGS[name]
    body = orjson.loads(orjson.dumps(spell(call, vary)))
    params = {"model": call.model} | ({"stream": "yes"} if call.stream else {})
    decoded = DIALECTS[name].decode(body, params)
    assert {finding.code for finding in decoded.findings} <= {"effort_ignored"}
    assert replace(decoded, findings=()) == meaning(call)


@given(scripts)
def test_law_7_nothing_is_silent_every_fork_is_a_finding(script: Script) -> None:
    harness = WildHarness()
    harness.run(script)
    tree = harness.play.session.tree
    for turn in tree.turns():
        first_of_parent = tree.children(turn.parent)[0].id == turn.id
        codes = {finding.code for finding in turn.findings}
        assert first_of_parent == (not codes & {"branch", "root_other_history", "root_other_tools"})
