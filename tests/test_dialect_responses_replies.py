"""How replies are written as Responses items, whole and as a stream."""

from __future__ import annotations

import openai
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harbor_env.errors import GatewayError
from harbor_env.gateway.dialects.opaque import seal, unseal
from harbor_env.gateway.dialects.responses import RESPONSES
from harbor_env.gateway.types import Message, Reply
from tests.conversations import replies
from tests.responses_items import (
    ASK,
    CALLED,
    decode,
    items_of,
    output_item,
    reply,
    user,
)
from tests.sdks import SSE, Wire, openai_client, sent_only
from tests.strict_clients import events, read_responses

FULL = Message("assistant", "Part 1", "why", CALLED.tool_calls)


@settings(max_examples=40, deadline=None)
@given(answer=replies(), piece=st.integers(0, 4), chunk=st.integers(0, 40))
def test_the_sdk_reads_the_same_response_from_the_stream_and_from_the_body(
    answer: Reply, piece: int, chunk: int
) -> None:
    whole = openai_client(Wire(RESPONSES.encode(answer, ASK), chunk=chunk)).responses.create(model="m", input="go")
    wire = Wire(b"".join(RESPONSES.stream(answer, ASK, piece)), kind=SSE, chunk=chunk)
    with openai_client(wire).responses.stream(model="m", input="go") as stream:
        final = [event for event in stream if event.type in ("response.completed", "response.incomplete")]
    assert len(final) == 1
    assert sent_only(final[0].response.to_dict()) == sent_only(whole.to_dict())
    assert whole.output_text == answer.message.content
    calls = [item.call_id for item in whole.output if item.type == "function_call"]
    assert calls == [call.id for call in answer.message.tool_calls]


def test_a_stream_of_text_and_call_is_the_whole_life_cycle() -> None:
    found = [data for _, data in events(b"".join(RESPONSES.stream(reply(FULL), ASK)))]
    assert [event["type"].removeprefix("response.") for event in found] == [
        "created",
        "in_progress",
        "output_item.added",
        "reasoning_summary_part.added",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
        "output_item.done",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]
    final = found[-1]["response"]
    assert (final["id"], final["object"], final["model"], final["status"]) == ("r1", "response", "policy", "completed")
    assert final["output"] == orjson.loads(RESPONSES.encode(reply(FULL), ASK))["output"]
    assert final["usage"]["input_tokens_details"]["cached_tokens"] == 4


def test_any_event_left_out_fails_a_strict_client() -> None:
    chunks = list(RESPONSES.stream(reply(FULL), ASK))
    read_responses(b"".join(chunks))
    for left_out in range(len(chunks)):
        with pytest.raises((AssertionError, KeyError, IndexError, UnboundLocalError)):
            read_responses(b"".join(chunks[:left_out] + chunks[left_out + 1 :]))


def test_a_reply_comes_back_from_its_items_as_one_message() -> None:
    items = items_of(reply(FULL), ASK)
    assert [item["type"] for item in items] == ["reasoning", "message", "function_call"]
    assert unseal(items[0]["encrypted_content"]) == "why"
    back = decode([user("go"), *items, output_item("c1", "sunny")])
    assert back.messages[1] == FULL
    shown = {"type": "reasoning", "id": "rs", "summary": items[0]["summary"], "encrypted_content": None}
    assert decode([user("go"), shown, *items[1:], output_item("c1", "sunny")]).messages[1] == FULL


@pytest.mark.parametrize("message", [Message("assistant", "x"), CALLED], ids=["text", "call"])
def test_a_reply_cut_at_the_limit_is_incomplete(message: Message) -> None:
    body = read_responses(b"".join(RESPONSES.stream(reply(message, "length"), ASK)))
    assert body["status"] == "incomplete"
    assert body["incomplete_details"] == {"reason": "max_output_tokens"}
    assert body["output"][-1]["status"] == "incomplete"


def test_an_empty_reply_is_an_empty_message_that_a_history_can_hold() -> None:
    items = items_of(reply(Message("assistant")), ASK)
    assert decode([user("go"), *items]).messages[1] == Message("assistant")


def test_an_overflow_has_the_code_codex_knows_before_and_after_the_headers() -> None:
    error = GatewayError("overflow", "Too long.", prompt_tokens=9000, window=8192)
    status, body = RESPONSES.error(error)
    with pytest.raises(openai.BadRequestError) as caught:
        openai_client(Wire(body, status=status)).responses.create(model="m", input="go")
    assert caught.value.code == "context_length_exceeded"
    last = events(RESPONSES.stream_error(error))[-1][1]
    assert (last["type"], last["response"]["error"]["code"]) == ("response.failed", "context_length_exceeded")


def test_a_failure_after_the_headers_is_raised_by_the_sdk_and_looks_like_no_end() -> None:
    stream = RESPONSES.keepalive + RESPONSES.stream_error(GatewayError("engine_down", "The engine went away."))
    assert b"completed" not in stream
    with pytest.raises(openai.APIError, match="went away"):
        list(openai_client(Wire(stream, kind=SSE)).responses.create(model="m", input="go", stream=True))


def test_a_keepalive_between_any_two_events_changes_nothing() -> None:
    chunks = list(RESPONSES.stream(reply(FULL), ASK))
    kept = b"".join(RESPONSES.keepalive + chunk for chunk in chunks)
    with openai_client(Wire(kept, kind=SSE)).responses.stream(model="m", input="go") as stream:
        assert stream.get_final_response().id == "r1"
    assert read_responses(kept) == read_responses(b"".join(chunks))


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_what_is_sealed_opens_in_both_alphabets(text: str) -> None:
    assert unseal(seal(text)) == text
    assert unseal(seal(text).replace("+", "-").replace("/", "_")) == text
