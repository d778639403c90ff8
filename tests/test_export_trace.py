import math
from typing import Any

import orjson
import pytest
from hypothesis import given
from openenv.core.harness import TrainingTrace

from harbor_env.gateway.export import FORMATS, SessionExport
from harbor_env.gateway.export.rows import rows
from harbor_env.gateway.export.trace import expand
from harbor_env.gateway.types import Finding, Message, ToolCall, Turn
from tests.turns import make_turn, sessions


def trace_of(session: SessionExport) -> TrainingTrace:
    return expand(orjson.loads(FORMATS["trace"].encode(session)))


def rows_as_a_trainer_merges_them(trace: TrainingTrace) -> list[tuple[list[int], list[int], list[float]]]:
    """TRL's documented rule without any tolerance: a turn whose prompt starts with all held tokens is appended to the
    row, any other starts a new row; rows without a trained token are dropped."""
    found: list[tuple[list[int], list[int], list[float]]] = []
    for turn in trace.turns:
        prompt = turn.prompt_token_ids
        if not found or prompt[: len(found[-1][0])] != found[-1][0]:
            found.append(([], [], []))
        ids, mask, logprobs = found[-1]
        context = prompt[len(ids) :]
        ids.extend([*context, *turn.completion_token_ids])
        mask.extend([0] * len(context) + turn.loss_mask[len(prompt) :])
        logprobs.extend([0.0] * len(context) + turn.per_token_logps)
    return [row for row in found if any(row[1])]


@given(sessions(distinct_ids=True))
def test_a_trainer_that_merges_by_prefix_gets_exactly_our_rows(turns: list[Turn]) -> None:
    session = SessionExport("s", turns)
    wanted = [row for row in rows(session) if row.trained_tokens]
    found = rows_as_a_trainer_merges_them(trace_of(session))
    assert [ids for ids, _, _ in found] == [list(row.input_ids) for row in wanted]
    assert [mask for _, mask, _ in found] == [list(row.loss_mask) for row in wanted]
    for (_, mask, logprobs), row in zip(found, wanted, strict=True):
        assert [value for value, keep in zip(logprobs, mask, strict=True) if keep] == [
            value for value, keep in zip(row.logprobs, row.loss_mask, strict=True) if keep
        ]


@given(sessions())
def test_law_3_a_trace_trains_each_sampled_token_once_and_passes_openenvs_own_validation(turns: list[Turn]) -> None:
    session = SessionExport("s", turns)
    trace = trace_of(session)
    assert TrainingTrace.model_validate(trace.model_dump()) == trace
    assert sorted(turn.node_id for turn in trace.turns) == sorted(turn.id for turn in turns)
    by_id = {turn.id: turn for turn in turns}
    for turn in trace.turns:
        source = by_id[turn.node_id]
        assert turn.completion_token_ids == list(source.sampled)
        assert turn.loss_mask == [0] * len(turn.prompt_token_ids) + [int(session.trains(source))] * len(source.sampled)
        assert not session.trains(source) or turn.per_token_logps == list(source.logprobs)


def test_law_2_every_prompt_is_the_parents_prompt_its_sampled_ids_and_the_delta() -> None:
    turns = [make_turn("t1", None, [1, 2], [3]), make_turn("t2", "t1", [4], [5, 6]), make_turn("t3", "t2", [7], [8])]
    assert [turn.prompt_token_ids for turn in trace_of(SessionExport("s", turns)).turns] == [
        [1, 2],
        [1, 2, 3, 4],
        [1, 2, 3, 4, 5, 6, 7],
    ]


def test_entries_carry_the_conversation_the_way_reward_functions_read_it() -> None:
    call = ToolCall("call_1", "bash", '{"command": "ls"}')
    turns = [
        make_turn(
            "t1",
            delta=(Message("system", "be brief"), Message("user", "list")),
            reply=Message("assistant", "", "let me see", (call,)),
        ),
        make_turn(
            "t2", "t1", [5], [6], delta=(Message("tool", "error: no such file", tool_call_id="call_1", name="bash"),)
        ),
    ]
    tools = [{"name": "bash", "description": "Run.", "parameters": {"type": "object"}}]
    first, second = trace_of(SessionExport("s", turns, {"c0": {"tools": tools}})).to_trace_entries()
    assert first["response"]["choices"][0]["finish_reason"] == "tool_calls"
    assert first["response"]["choices"][0]["message"] == {
        "role": "assistant",
        "content": "",
        "reasoning_content": "let me see",
        "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "bash", "arguments": '{"command": "ls"}'}}
        ],
    }
    assert [message["role"] for message in second["request"]["messages"]] == ["system", "user", "assistant", "tool"]
    assert second["request"]["messages"][3]["tool_call_id"] == "call_1"
    assert second["request"]["tools"] == [{"type": "function", "function": tools[0]}]
    assert second["response"]["usage"] == {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6}
    assert second["metadata"]["node_id"] == "t2"


def test_a_turn_without_ids_never_reaches_a_trainer() -> None:
    text_only = make_turn("t1", None, [], [], trainable=False, findings=(Finding("text_only"),))
    session = SessionExport("s", [text_only])
    assert orjson.loads(FORMATS["trace"].encode(session))["turns"][0]["findings"][0]["code"] == "text_only"
    assert trace_of(session).turns == []


def test_values_that_are_no_log_probabilities_are_kept_as_null_and_masked() -> None:
    session = SessionExport("s", [make_turn("t1", None, [1], [2, 3], [math.nan, -1.0], trainable=False)])
    assert orjson.loads(FORMATS["trace"].encode(session))["turns"][0]["logprobs"] == [None, -1.0]
    (turn,) = trace_of(session).turns
    assert (turn.per_token_logps, turn.loss_mask) == ([0.0, -1.0], [0, 0, 0])


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"delta_ids": [1, -2]}, "not a token id"),
        ({"sampled_ids": [3, True]}, "not a token id"),
        ({"logprobs": [-1.0]}, "1 log probabilities for 2 ids"),
        ({"logprobs": [-1.0, None]}, "not a log probability"),
        ({"logprobs": [-1.0, 1.0]}, "not a log probability"),
        ({"parent": "nowhere"}, "before its parent"),
    ],
)
def test_a_damaged_document_is_refused(change: dict[str, Any], complaint: str) -> None:
    document = orjson.loads(FORMATS["trace"].encode(SessionExport("s", [make_turn("t1")])))
    document["turns"][0].update(change)
    with pytest.raises(ValueError, match=complaint):
        expand(document)


def test_another_document_is_refused() -> None:
    with pytest.raises(ValueError, match="expected a harbor-trace-1 document"):
        expand({"turns": []})
