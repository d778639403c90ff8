"""The laws of DESIGN.md, each as a property over drawn conversations.

A broken law is told by the first conversation that shows it: no time is spent on finding a shorter one.
"""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import orjson
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from harbor_env.gateway.dialects import DIALECTS
from harbor_env.gateway.export import TRAINED_ROLES, rows, trace
from harbor_env.gateway.export.session_export import SessionExport
from harbor_env.gateway.types import (
    Call,
    ConversationRole,
    Finding,
    Generation,
    Message,
    Reply,
    Sampling,
    ToolChoice,
)
from tests.conversations import SPELLINGS, asked, conversations, replies
from tests.fake_renderer import END
from tests.faulty_gateway import FATES, FaultyGateway
from tests.play import logprobs, player, said, system, user
from tests.strict_clients import READERS
from tests.turns import ROLES, make_turn
from tests.wild_harness import WildHarness, scripts

Script = list[tuple[str, int, Message, str, str]]

each_dialect = pytest.mark.parametrize("name", sorted(DIALECTS))


law = settings(max_examples=30, phases=(Phase.explicit, Phase.reuse, Phase.generate))


@law
@given(scripts)
def test_law_1_messages_only_no_reply_carries_token_ids(script: Script) -> None:
    harness = WildHarness()
    harness.run(script)
    for reply in harness.play.shown.values():
        for dialect in DIALECTS.values():
            call = Call((user("go"),))
            events = b"".join(dialect.stream(reply, replace(call, stream=True)))
            for body in (dialect.encode(reply, call), *DATA.findall(events)):
                assert tokens_in(orjson.loads(body)) == []


DATA = re.compile(rb"^data: (\{.*)$", re.MULTILINE)


def tokens_in(value: Any, name: str = "") -> list[Any]:
    """Whatever in a body could be token ids or their log probabilities: numbers in a row, or fields named after them.

    A text that lists numbers counts too: in these conversations nobody writes one.
    """
    if isinstance(value, dict):
        return [found for key, inner in value.items() for found in tokens_in(inner, key)]
    if isinstance(value, list):
        numbers = [inner for inner in value if isinstance(inner, int | float) and not isinstance(inner, bool)]
        return [*numbers, *(found for inner in value for found in tokens_in(inner, name))]
    listed = isinstance(value, str) and re.search(r"\d{4,}, ?\d{4,}", value) is not None
    named = value is not None and re.search("token_?ids?$|log_?prob|sampled", name, re.IGNORECASE) is not None
    return [value] if listed or named else []


@law
@given(scripts)
def test_law_2_token_in_token_out_at_every_prefix(script: Script) -> None:
    harness = WildHarness()
    harness.run(script)
    play, tree = harness.play, harness.play.session.tree
    assert [turn.parent for turn in tree.turns()] == harness.expected
    for turn in tree.turns():
        before = [*play.sent[turn.parent], *play.sampled[turn.parent]] if turn.parent else []
        assert play.sent[turn.id] == [*before, *turn.delta_ids]
        assert list(turn.sampled) == play.sampled[turn.id]
        assert turn.prompt_length == len(play.sent[turn.id])
        rendered = play.renderer.render(turn.delta, () if turn.parent else play.tools)
        close = [] if not turn.parent or play.sampled[turn.parent][-1:] == [END] else [END]
        assert list(turn.delta_ids) == [*close, *rendered]


def _step(kind: str, words: str) -> tuple[str, int, Message, str, str]:
    return kind, 0, said(words), "as shown", "go"


@law
@given(scripts, st.lists(st.integers(0, 11), max_size=3), st.lists(st.sampled_from(ROLES), min_size=12, max_size=12))
@example(
    [_step("continue", "a"), _step("continue", "b"), _step("retry", "c"), _step("retry", "d")], [], ["main"] * 12
)  # paths that share a trained turn
def test_law_3_trained_once(script: Script, untrainable: list[int], roles: list[ConversationRole]) -> None:
    harness = WildHarness()
    harness.run(script)
    turns = [
        replace(turn, trainable=index not in untrainable, role=roles[index])
        for index, turn in enumerate(harness.play.session.tree.turns())
    ]
    sampled = harness.play.sampled
    session = SessionExport("s", turns)
    trained: list[tuple[str, int]] = []
    for row in rows.rows(session):
        assert len(row.input_ids) == len(row.loss_mask) == len(row.logprobs)
        masked = [0] * len(row.input_ids)
        for span in row.spans:
            ids = sampled[span.turn]
            assert list(row.input_ids[span.start : span.end]) == ids
            if span.trained:
                trained += [(span.turn, offset) for offset in range(len(ids))]
                masked[span.start : span.end] = [1] * len(ids)
                assert list(row.logprobs[span.start : span.end]) == logprobs(ids)
        assert list(row.loss_mask) == masked
        assert not any(value for value, mask in zip(row.logprobs, masked, strict=True) if not mask)
    wanted = {turn.id for turn in turns if turn.trainable and turn.role in TRAINED_ROLES}
    assert sorted(trained) == sorted((turn, offset) for turn in wanted for offset in range(len(sampled[turn])))
    traced = trace.document(session)["turns"]
    assert sorted(turn["id"] for turn in traced) == sorted(turn.id for turn in turns)
    for turn in traced:
        ids = sampled[turn["id"]]
        assert (list(turn["sampled_ids"]), list(turn["logprobs"])) == (ids, logprobs(ids))
        assert turn["trained"] == (turn["id"] in wanted)


@each_dialect
@given(reply=replies(), call=asked(), piece=st.integers(0, 5))
def test_law_4_the_stream_equals_the_reply(name: str, reply: Reply, call: Call, piece: int) -> None:
    dialect = DIALECTS[name]
    rebuilt = READERS[name](b"".join(dialect.stream(reply, call, piece)))
    body = orjson.loads(dialect.encode(reply, call))
    if name == "chat" and not call.include_usage:
        del body["usage"]
    assert rebuilt == body


@each_dialect
@settings(max_examples=60)
@given(call=conversations(), vary=st.randoms(use_true_random=False))
def test_law_5_one_meaning_in_every_dialect(name: str, call: Call, vary: Random) -> None:
    spell, meaning = SPELLINGS[name]
    spelled = spell(call, vary)
    body = orjson.loads(orjson.dumps(spelled) if vary.random() < 0.5 else json.dumps(spelled))
    params = {"model": call.model} | ({"stream": "yes"} if call.stream else {})
    decoded = DIALECTS[name].decode(body, params)
    assert {finding.code for finding in decoded.findings} <= {"effort_ignored"}
    assert replace(decoded, findings=()) == meaning(call)


@settings(law, max_examples=12)
@example(sorted(FATES))
@given(st.lists(st.sampled_from(sorted(FATES)), min_size=1, max_size=6))
def test_law_6_a_call_that_failed_leaves_no_trace_and_one_that_succeeded_is_durable(fates: list[str]) -> None:
    with TemporaryDirectory() as folder:
        asyncio.run(_law_6(Path(folder), fates))


async def _law_6(folder: Path, fates: list[str]) -> None:
    async with FaultyGateway(folder) as gateway:
        for fate in (*fates, "well"):
            before = gateway.stored()
            reply = await gateway.ask(fate)
            after = gateway.stored()
            if reply is None:
                assert (after, gateway.in_memory()) == (before, before)
                continue
            assert after[:-1] == before
            assert (after[-1].id, after[-1].reply) == (reply.id, reply.message)
            assert gateway.in_memory() == after
            assert after[-1].parent == (before[-1].id if before else None)


@law
@given(scripts)
def test_law_7_nothing_is_silent_every_fork_is_a_finding(script: Script) -> None:
    harness = WildHarness()
    harness.run(script)
    tree = harness.play.session.tree
    for turn in tree.turns():
        first_of_parent = tree.children(turn.parent)[0].id == turn.id
        codes = {finding.code for finding in turn.findings}
        assert first_of_parent == (not codes & {"branch", "root_other_history", "root_other_tools"})


UNHEEDED: dict[str, tuple[str, Any]] = {
    "sampling_ignored": ("sampling", Sampling(temperature=0.0, top_p=0.5)),
    "thinking_ignored": ("thinking", True),
    "tool_choice_ignored": ("tool_choice", ToolChoice("required")),
    "response_schema_ignored": ("response_schema", {"type": "object"}),
    "max_tokens_clamped": ("max_tokens", 10**6),
    "dropped_by_the_dialect": ("findings", (Finding("dropped_by_the_dialect", "an image"),)),
}


@law
@given(st.sets(st.sampled_from(sorted(UNHEEDED))), st.booleans())
def test_law_7_nothing_is_silent_what_a_call_does_not_get_is_a_finding(asked: set[str], exact: bool) -> None:
    play = player(window=500)
    planned = play.plan(system("An agent."), user("go"), **dict(UNHEEDED[code] for code in asked))
    unlike = () if exact else (Finding("logprobs_raw", "of another distribution"),)
    generation = Generation([1001, END], [-1.0, -2.0], "stop", findings=unlike, trainable=exact)
    turn = play.session.record(planned, generation, turn_id="t", mint=str, created=0).turn
    assert turn.trainable == exact
    codes = {finding.code for finding in turn.findings}
    assert codes == asked | {finding.code for finding in unlike}
    play.session.add(turn)
    assert play.session.findings.keys() == codes
    session = SessionExport("s", [turn, replace(turn, id="again", facts={"began": 9.0, "engine_s": 1.0})])
    traced = trace.document(session)["turns"][0]["findings"]
    assert {finding["code"] for finding in traced} == codes


def test_law_7_nothing_is_silent_a_discarded_reply_is_a_finding_and_not_trained() -> None:
    turns = [make_turn(name, facts={"began": began, "engine_s": 1.0}) for name, began in (("t1", 1.0), ("t2", 5.0))]
    first, second = trace.document(SessionExport("s", turns))["turns"]
    shown = {turn["id"]: (turn["trained"], turn["findings"]) for turn in (first, second)}
    assert shown["t2"] == (True, [])
    assert (shown["t1"][0], [finding["code"] for finding in shown["t1"][1]]) == (False, ["discarded"])
