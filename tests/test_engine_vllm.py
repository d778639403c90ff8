"""The vLLM engine against a fake that answers right, late, wrong or not at all."""

from __future__ import annotations

import asyncio
import math
from array import array
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio

from harbor_env.errors import EngineError
from harbor_env.gateway.engines import open_engine
from harbor_env.gateway.engines.vllm import VllmEngine
from harbor_env.gateway.types import WeightSpan
from tests.engine_requests import STOP, engine_request
from tests.fake_vllm import CACHED, FakeVllm, distribution, serving


@pytest_asyncio.fixture
async def fake() -> AsyncIterator[FakeVllm]:
    async with serving() as fake:
        yield fake


@pytest_asyncio.fixture
async def engine(fake: FakeVllm) -> AsyncIterator[VllmEngine]:
    engine = open_engine("vllm?vocab_size=200", url=fake.url)
    assert isinstance(engine, VllmEngine)
    yield engine
    await engine.close()


def first_choice(change: Callable[[dict[str, Any]], None]) -> Callable[[Any], Any]:
    def mangle(answer: Any) -> Any:
        change(answer["choices"][0])
        return answer

    return mangle


async def test_ids_go_in_and_come_out_with_their_logprobs_stop_token_included(engine: VllmEngine) -> None:
    generation = await engine.generate(engine_request(array("i", [5, 6, 7])))
    assert list(generation.ids) == [100, 101, 102, STOP]
    assert list(generation.logprobs)[:3] == [distribution(1.0)[token] for token in (100, 101, 102)]
    assert (generation.finish, generation.trainable, generation.findings) == ("stop", True, ())
    assert generation.weight_versions == (WeightSpan("v1", 0, 4),)
    assert generation.cached_tokens == CACHED


async def test_the_sampling_distribution_is_pinned_by_explicit_values(engine: VllmEngine, fake: FakeVllm) -> None:
    await engine.generate(engine_request(temperature=0.7, seed=11))
    path, body = fake.calls[-1]
    assert path == "/inference/v1/generate"
    assert body["token_ids"] == [5, 6, 7]
    assert body["sampling_params"] == {
        "max_tokens": 16,
        "temperature": 0.7,
        "top_p": 1.0,
        "top_k": -1,
        "min_p": 0.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "repetition_penalty": 1.0,
        "stop_token_ids": [STOP],
        "logprobs": 0,
        "seed": 11,
    }


async def test_a_good_engine_is_graded_tokens_with_its_window_and_route(engine: VllmEngine) -> None:
    info = await engine.probe()
    assert (info.level, info.model, info.max_model_len) == ("tokens", "policy", 2048)
    assert (info.route, info.findings) == ("/inference/v1/generate", ())


async def test_without_scale_out_completions_are_used_and_the_reason_is_given(
    engine: VllmEngine, fake: FakeVllm
) -> None:
    fake.scale_out = False
    info = await engine.probe()
    assert info.level == "tokens"
    assert info.route.startswith("/v1/completions, because")
    assert "403: Scale-out endpoints are disabled" in info.route
    assert "--enable-scale-out" in info.route
    generation = await engine.generate(engine_request())
    assert list(generation.ids) == [100, 101, 102, STOP]
    assert generation.logprobs[0] == distribution(1.0)[100]
    path, body = fake.calls[-1]
    assert path == "/v1/completions"
    assert (body["return_token_ids"], body["return_tokens_as_token_ids"], body["logprobs"]) == (True, True, 0)


async def test_an_engine_without_ids_is_asked_by_chat_and_never_trainable(engine: VllmEngine, fake: FakeVllm) -> None:
    fake.scale_out = fake.token_ids = False
    info = await engine.probe()
    assert info.level == "text"
    assert info.max_model_len == 2048
    assert "/v1/chat/completions, because" in info.route
    generation = await engine.generate(engine_request())
    assert (list(generation.ids), list(generation.logprobs), generation.trainable) == ([], [], False)
    assert generation.message is not None
    assert generation.message.content == "Hello."


async def test_raw_logprobs_are_trainable_at_temperature_one_only(engine: VllmEngine, fake: FakeVllm) -> None:
    fake.processed = False
    info = await engine.probe()
    assert (info.level, [finding.code for finding in info.findings]) == ("tokens", ["logprobs_raw"])
    assert (await engine.generate(engine_request())).trainable
    for other in (engine_request(temperature=0.6), engine_request(top_p=0.9)):
        generation = await engine.generate(other)
        assert (generation.trainable, [finding.code for finding in generation.findings]) == (False, ["logprobs_raw"])


async def test_processed_logprobs_are_trainable_at_any_temperature_but_zero(engine: VllmEngine) -> None:
    assert (await engine.generate(engine_request(temperature=0.6))).trainable
    assert not (await engine.generate(engine_request(temperature=0.0))).trainable


async def test_an_engine_that_shows_no_alternatives_is_trusted_at_temperature_one_only(
    engine: VllmEngine, fake: FakeVllm
) -> None:
    fake.mangle = first_choice(lambda choice: choice["logprobs"]["content"][0].update(top_logprobs=[]))
    info = await engine.probe()
    assert [finding.code for finding in info.findings] == ["logprob_scaling_unknown"]
    assert (await engine.generate(engine_request())).trainable
    assert not (await engine.generate(engine_request(temperature=0.6))).trainable


async def test_a_changed_prompt_is_not_token_in(engine: VllmEngine, fake: FakeVllm) -> None:
    def with_bos(answer: Any) -> Any:
        if "choices" in answer and "prompt_token_ids" in answer["choices"][0]:
            answer["choices"][0]["prompt_token_ids"] = [1, *answer["choices"][0]["prompt_token_ids"]]
        return answer

    fake.scale_out, fake.mangle = False, with_bos
    info = await engine.probe()
    assert info.level == "text"
    assert "changed the prompt" in info.route


async def test_the_logprob_taken_is_that_of_the_sampled_id(engine: VllmEngine, fake: FakeVllm) -> None:
    def other_first(choice: dict[str, Any]) -> None:
        sampled = {"token_id": 100, "logprob": -2.0}
        choice["logprobs"]["content"][0] = {"token_id": 103, "logprob": -0.1, "top_logprobs": [sampled]}

    await engine.probe()
    fake.mangle = first_choice(other_first)
    assert (await engine.generate(engine_request())).logprobs[0] == -2.0


async def test_the_logprob_taken_is_that_of_the_sampled_id_on_completions(engine: VllmEngine, fake: FakeVllm) -> None:
    def other_first(choice: dict[str, Any]) -> None:
        choice["logprobs"]["tokens"][0] = "token_id:103"
        choice["logprobs"]["token_logprobs"][0] = -0.1
        choice["logprobs"]["top_logprobs"][0] = {"token_id:103": -0.1, "token_id:100": -2.0}

    fake.scale_out = False
    await engine.probe()
    fake.mangle = first_choice(other_first)
    assert (await engine.generate(engine_request())).logprobs[0] == -2.0


@pytest.mark.parametrize("value", [math.nan, -math.inf, None, -9999.0])
async def test_a_logprob_that_is_not_finite_makes_the_turn_untrainable_and_is_kept(
    engine: VllmEngine, fake: FakeVllm, value: float | None
) -> None:
    await engine.probe()
    fake.mangle = first_choice(lambda choice: choice["logprobs"]["content"][1].update(logprob=value))
    generation = await engine.generate(engine_request())
    assert list(generation.ids) == [100, 101, 102, STOP]
    assert not generation.trainable
    assert generation.findings[0].code == "logprob_not_finite"
    kept = generation.logprobs[1]
    assert kept == value or math.isnan(kept)


async def test_a_logprob_above_zero_by_rounding_is_zero_and_stays_trainable(engine: VllmEngine, fake: FakeVllm) -> None:
    await engine.probe()
    fake.mangle = first_choice(lambda choice: choice["logprobs"]["content"][1].update(logprob=1e-6))
    generation = await engine.generate(engine_request())
    assert (generation.logprobs[1], generation.trainable) == (0.0, True)
    assert [finding.code for finding in generation.findings] == ["logprob_rounded"]


def set_ids(value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda choice: choice.update(token_ids=value)


NONSENSE: dict[str, Callable[[dict[str, Any]], None]] = {
    "no ids": set_ids([]),
    "ids missing": lambda choice: choice.pop("token_ids"),
    "ids null": set_ids(None),
    "ids as text": set_ids(["100", "101", "102", "2"]),
    "ids as floats": set_ids([100.0, 101, 102, STOP]),
    "an id that is a truth value": set_ids([True, 101, 102, STOP]),
    "a negative id": set_ids([-1, 101, 102, STOP]),
    "an id beyond the vocabulary": set_ids([200, 101, 102, STOP]),
    "one id too many": set_ids([100, 101, 102, STOP, STOP]),
    "one id too few": set_ids([100, 101, 102]),
    "another token's logprob": lambda choice: choice["logprobs"]["content"][0].update(token_id=104, top_logprobs=[]),
    "a positive logprob": lambda choice: choice["logprobs"]["content"][0].update(logprob=0.5),
    "a logprob as text": lambda choice: choice["logprobs"]["content"][0].update(logprob="-0.5"),
    "logprobs null": lambda choice: choice.update(logprobs=None),
    "an unknown finish": lambda choice: choice.update(finish_reason="tired"),
}


@pytest.mark.parametrize("what", NONSENSE)
async def test_an_answer_that_cannot_be_what_was_sampled_is_refused(
    engine: VllmEngine, fake: FakeVllm, what: str
) -> None:
    await engine.probe()
    fake.mangle = first_choice(NONSENSE[what])
    with pytest.raises(EngineError) as caught:
        await engine.generate(engine_request())
    assert caught.value.kind == "engine_error"


@pytest.mark.parametrize("answer", [[], {}, {"choices": []}, {"choices": [None]}, {"choices": "x"}, "text", None])
async def test_an_answer_of_another_shape_is_refused(engine: VllmEngine, fake: FakeVllm, answer: Any) -> None:
    await engine.probe()
    fake.mangle = lambda _: answer
    with pytest.raises(EngineError) as caught:
        await engine.generate(engine_request())
    assert caught.value.kind == "engine_error"


async def test_an_aborted_generation_says_so(engine: VllmEngine, fake: FakeVllm) -> None:
    await engine.probe()
    fake.mangle = first_choice(lambda choice: choice.update(finish_reason="abort"))
    assert (await engine.generate(engine_request())).finish == "abort"


async def test_an_engine_that_was_down_is_probed_again_on_the_next_call(engine: VllmEngine, fake: FakeVllm) -> None:
    await fake.stop()
    for attempt in (engine.probe(), engine.generate(engine_request())):
        with pytest.raises(EngineError) as caught:
            await attempt
        assert caught.value.kind == "engine_down"
    await fake.start()
    assert (await engine.generate(engine_request())).trainable


async def test_an_engine_that_came_back_with_other_flags_is_measured_anew(engine: VllmEngine, fake: FakeVllm) -> None:
    await engine.generate(engine_request())
    fake.scale_out = False
    with pytest.raises(EngineError):
        await engine.generate(engine_request())
    assert (await engine.generate(engine_request())).trainable
    assert fake.calls[-1][0] == "/v1/completions"


async def test_calls_that_arrive_together_share_one_probe(engine: VllmEngine, fake: FakeVllm) -> None:
    await asyncio.gather(*(engine.generate(engine_request()) for _ in range(8)))
    assert len(fake.calls) == 2 + 8


async def test_more_calls_than_any_pool_default_are_in_flight_at_once(engine: VllmEngine, fake: FakeVllm) -> None:
    await engine.probe()
    await fake.wait_for_calls(2)
    fake.gate.clear()
    tasks = [asyncio.create_task(engine.generate(engine_request())) for _ in range(150)]
    await fake.wait_for_calls(150)
    fake.gate.set()
    assert all(generation.trainable for generation in await asyncio.gather(*tasks))


async def test_cancelling_a_call_closes_its_connection(engine: VllmEngine, fake: FakeVllm) -> None:
    await engine.probe()
    await fake.wait_for_calls(2)
    fake.gate.clear()
    task = asyncio.create_task(engine.generate(engine_request()))
    await fake.wait_for_calls(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(fake.left.wait(), 5)


async def test_a_model_that_is_not_served_is_named_with_those_that_are(fake: FakeVllm) -> None:
    engine = open_engine("vllm", url=fake.url + "/v1/", model="other")
    with pytest.raises(EngineError, match="serves policy; not other"):
        await engine.probe()
    await engine.close()


async def test_an_adapter_takes_its_window_from_its_base_model(fake: FakeVllm) -> None:
    fake.models.append({"id": "adapter", "parent": "policy", "max_model_len": None})
    engine = open_engine("vllm", url=fake.url, model="adapter")
    info = await engine.probe()
    assert (info.model, info.max_model_len) == ("adapter", 2048)
    assert fake.calls[-1][1]["model"] == "adapter"
    await engine.close()
