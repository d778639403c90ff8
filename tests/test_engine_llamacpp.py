"""llama.cpp: its answers as data, then the real thing, embedded, with SmolLM2."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from harbor_env.errors import EngineError
from harbor_env.gateway.engines import open_engine
from harbor_env.gateway.engines.llamacpp import LlamaCppEngine
from harbor_env.gateway.engines.llamacpp_wire import aligned, body, cut, missing, read, read_lookup
from tests.engine_requests import STOP, engine_request
from tests.tokenizers import smollm2_gguf

PROMPT = [1, 4093, 198, 1780, 314, 260, 3575, 282, 4649, 47, 2, 198, 1, 520, 9531, 198]
"""A user asks SmolLM2 for the capital of France."""


def answer(tokens: list[int], entries: list[dict[str, Any]], stop_type: str = "limit") -> dict[str, Any]:
    return {"tokens": tokens, "completion_probabilities": entries, "stop_type": stop_type, "timings": {"cache_n": 4}}


def entry(token: int, logprob: float = -1.0) -> dict[str, Any]:
    return {"id": token, "logprob": logprob, "top_logprobs": []}


@pytest.mark.parametrize(
    ("ids", "entries", "places"),
    [
        ([5, 6, 7], [5, 6, 7], [0, 1, 2]),
        ([5, 6, 7], [5, 7], [0, None, 1]),
        ([5, 6, 7], [7], [None, None, 0]),
        ([5, 6, 7], [5, 6], [0, 1, None]),
        ([9, 9], [9], [None, None]),
        ([5, 9, 9, 7], [5, 9, 7], [0, None, None, 2]),
        ([], [], []),
    ],
)
def test_an_entry_is_given_to_a_token_only_where_it_can_be_no_others(
    ids: list[int], entries: list[int], places: list[int | None]
) -> None:
    assert aligned(ids, entries) == places


@pytest.mark.parametrize(("ids", "entries"), [([5, 6], [7]), ([5], [5, 6]), ([5, 6], [6, 5])])
def test_entries_of_tokens_that_were_not_sampled_are_refused(ids: list[int], entries: list[int]) -> None:
    with pytest.raises(EngineError, match="did not sample"):
        aligned(ids, entries)


def test_a_token_without_an_entry_is_looked_up() -> None:
    sample = read(answer([5, 6, 7], [entry(5, -0.5), entry(7, -0.7)]))
    assert missing(sample) == [1]
    assert (sample.logprobs[0], sample.logprobs[2], sample.cached_tokens) == (-0.5, -0.7, 4)


def test_a_looked_up_logprob_is_of_the_temperature_asked_for() -> None:
    whole = [{"id": 0, "logprob": math.log(0.8)}, {"id": 1, "logprob": math.log(0.2)}]
    found = answer([0], [{**entry(0), "top_logprobs": whole}])
    assert read_lookup(found, 1, 1.0) == pytest.approx(math.log(0.2))
    assert read_lookup(found, 1, 0.5) == pytest.approx(math.log(0.04 / 0.68))
    with pytest.raises(EngineError):
        read_lookup(found, 2, 1.0)


def test_a_stop_token_llama_cpp_does_not_know_ends_the_sample() -> None:
    sample = cut(read(answer([5, 6, 7], [entry(5), entry(6), entry(7)])), (6,))
    assert (sample.ids, len(sample.logprobs), sample.finish) == ([5, 6], 2, "stop")


def test_probabilities_after_sampling_are_asked_for_where_raw_ones_would_be_wrong() -> None:
    assert not body(engine_request())["post_sampling_probs"]
    assert body(engine_request(temperature=0.6))["post_sampling_probs"]
    assert body(engine_request())["samplers"] == ["temperature"]
    sample = read(answer([5], [{"id": 5, "prob": 0.25, "top_probs": [{"id": 5, "prob": 0.25}]}]))
    assert (sample.logprobs, sample.top) == ([math.log(0.25)], {5: math.log(0.25)})


@pytest.mark.parametrize("entries", [[{"id": 5}], ["x"], [{"logprob": -1.0}], [{"id": 5, "prob": None}]])
def test_entries_of_another_shape_are_refused(entries: list[Any]) -> None:
    with pytest.raises(EngineError):
        read(answer([5], entries))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def embedded() -> AsyncIterator[LlamaCppEngine]:
    engine = open_engine(f"llamacpp:{smollm2_gguf()}?context=256&slots=2")
    assert isinstance(engine, LlamaCppEngine)
    await engine.probe()
    yield engine
    await engine.close()


@pytest.mark.asyncio(loop_scope="module")
async def test_the_embedded_engine_is_graded_tokens_with_its_window(embedded: LlamaCppEngine) -> None:
    info = await embedded.probe()
    assert (info.level, info.max_model_len, info.findings) == ("tokens", 256, ())
    assert info.model.startswith("SmolLM2")


@pytest.mark.asyncio(loop_scope="module")
async def test_the_embedded_engine_samples_to_the_stop_token_with_one_logprob_each(embedded: LlamaCppEngine) -> None:
    asked = engine_request(PROMPT, max_tokens=60, temperature=0.3, seed=3)
    first, again = await embedded.generate(asked), await embedded.generate(asked)
    assert (first.finish, first.ids[-1]) == ("stop", STOP)
    assert list(first.ids) == list(again.ids)
    assert len(first.logprobs) == len(first.ids) > 5
    assert list(first.logprobs) == pytest.approx(list(again.logprobs), abs=1e-3)
    assert again.cached_tokens > 0
    assert first.trainable


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("temperature", [1.0, 0.7])
async def test_embedded_logprobs_are_those_of_the_whole_distribution(
    embedded: LlamaCppEngine, temperature: float
) -> None:
    generation = await embedded.generate(engine_request(PROMPT, max_tokens=2, temperature=temperature))
    for position in range(len(generation.ids)):
        looked_up = await embedded.lookup([*PROMPT, *generation.ids[:position]], generation.ids[position], temperature)
        assert generation.logprobs[position] == pytest.approx(looked_up, abs=2e-3)


@pytest.mark.asyncio(loop_scope="module")
async def test_a_token_inside_a_character_keeps_its_logprob(embedded: LlamaCppEngine) -> None:
    generations = [
        await embedded.generate(engine_request(PROMPT, max_tokens=12, temperature=2.0, seed=seed)) for seed in range(3)
    ]
    assert all(generation.trainable for generation in generations)


@pytest.mark.asyncio(loop_scope="module")
async def test_a_long_reply_ends_at_the_limit_or_the_window(embedded: LlamaCppEngine) -> None:
    limited = await embedded.generate(engine_request(PROMPT, max_tokens=3, stop_ids=()))
    assert (limited.finish, len(limited.ids)) == ("length", 3)
    full = await embedded.generate(engine_request([1000 + n for n in range(252)], max_tokens=50, stop_ids=()))
    assert full.finish in ("length", "stop")
    assert len(full.ids) <= 4


@pytest.mark.asyncio(loop_scope="module")
async def test_a_prompt_beyond_the_window_is_an_overflow(embedded: LlamaCppEngine) -> None:
    with pytest.raises(EngineError) as caught:
        await embedded.generate(engine_request([1000] * 300))
    assert (caught.value.kind, caught.value.prompt_tokens, caught.value.window) == ("overflow", 300, 256)


@pytest.mark.asyncio(loop_scope="module")
async def test_cancelling_leaves_at_most_one_piece_to_sample(embedded: LlamaCppEngine) -> None:
    tasks = [asyncio.create_task(embedded.generate(engine_request([n], max_tokens=200))) for n in (500, 600, 700)]
    await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    assert all(isinstance(end, asyncio.CancelledError) for end in await asyncio.gather(*tasks, return_exceptions=True))
    after = await asyncio.wait_for(embedded.generate(engine_request(PROMPT, max_tokens=2)), 60)
    assert len(after.ids) == 2
