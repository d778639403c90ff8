"""The scripted engine: real tokens of two real tokenizers, awkward on purpose, a function of the request."""

from __future__ import annotations

import asyncio
import json
import random
from array import array
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harbor_env.errors import EngineError, UsageError
from harbor_env.gateway.engines import EngineRequest, open_engine
from harbor_env.gateway.engines.scripted_tokens import Splitter, odd_json, synthetic_logprob, synthetic_logprobs
from harbor_env.gateway.rendering import Renderer
from harbor_env.gateway.rendering.load import load_renderer
from harbor_env.gateway.types import Generation, Message, Tool
from tests.engine_requests import engine_request
from tests.policies import COMMAND
from tests.tokenizers import qwen3_dir, smollm2_gguf

BASH = Tool("bash", "Run a command.", {"type": "object", "properties": {"command": {"type": "string"}}})
ASK = (Message("user", "Fix the failing tests."),)


@cache
def renderer(family: str) -> Renderer:
    return load_renderer({"qwen3": qwen3_dir, "smollm2": smollm2_gguf}[family]())


def request(family: str = "qwen3", messages: tuple[Message, ...] = ASK, **options: Any) -> EngineRequest:
    prompt_ids = renderer(family).render(messages, (BASH,))
    return engine_request(prompt_ids, messages=messages, tools=(BASH,), **{"max_tokens": 500, **options})


async def generate(policy: str, asked: EngineRequest, options: str = "", family: str = "qwen3") -> Generation:
    engine = open_engine(f"scripted:tests.policies:{policy}?{options}", renderer=renderer(family))
    return await engine.generate(asked)


@pytest.mark.parametrize("family", ["qwen3", "smollm2"])
@pytest.mark.parametrize("options", ["", "noncanonical=0.5&seed=1", "odd_json=1", "noncanonical=1&odd_json=1"])
async def test_what_the_policy_said_is_what_the_ids_parse_to(family: str, options: str) -> None:
    asked = request(family)
    generation = await generate("look_then_finish", asked, options, family)
    parsed = renderer(family).parse(generation.ids, asked.prompt_ids, (BASH,)).message
    assert (parsed.content, parsed.reasoning) == ("Let me look.", "look at the parser first")
    assert [call.name for call in parsed.tool_calls] == ["bash"]
    assert json.loads(parsed.tool_calls[0].arguments) == json.loads(COMMAND)
    assert generation.ids[-1] in renderer(family).stop_ids
    assert generation.finish == "stop"
    assert list(generation.logprobs) == synthetic_logprobs(generation.ids)


async def test_a_noncanonical_reply_reads_the_same_and_encodes_to_other_ids() -> None:
    plain = await generate("look_then_finish", request())
    awkward = await generate("look_then_finish", request(), "noncanonical=0.2&seed=3")
    speaker = renderer("qwen3")
    assert speaker.decode(awkward.ids) == speaker.decode(plain.ids)
    assert len(awkward.ids) > len(plain.ids)


async def test_odd_spacing_shows_in_the_text_and_not_in_the_value() -> None:
    plain = await generate("look_then_finish", request())
    odd = await generate("look_then_finish", request(), "odd_json=1&seed=3")
    assert renderer("qwen3").decode(odd.ids) != renderer("qwen3").decode(plain.ids)


async def test_one_request_has_one_answer_and_another_seed_another() -> None:
    options = "noncanonical=0.3&odd_json=0.5&seed={}"
    first, again, other = [
        list((await generate("look_then_finish", request(), options.format(seed))).ids) for seed in (1, 1, 2)
    ]
    assert first == again != other
    later = await generate("look_then_finish", request(seed=99), options.format(1))
    assert list(later.ids) != first


async def test_a_prompt_as_an_array_and_as_a_list_is_one_prompt() -> None:
    asked = request()
    array_asked = engine_request(
        array("i", asked.prompt_ids), messages=ASK, tools=(BASH,), max_tokens=asked.sampling.max_tokens
    )
    options = "noncanonical=0.3"
    assert (await generate("look_then_finish", asked, options)).ids == (
        await generate("look_then_finish", array_asked, options)
    ).ids


async def test_max_tokens_cuts_a_reply() -> None:
    whole = await generate("look_then_finish", request())
    cut = await generate("look_then_finish", request(max_tokens=5))
    assert (cut.finish, list(cut.ids)) == ("length", list(whole.ids)[:5])
    assert len(cut.logprobs) == 5


async def test_a_script_can_cut_wait_stay_empty_and_speak_ids() -> None:
    cut = await generate("is_cut", request())
    assert (cut.finish, len(cut.ids)) == ("length", 3)
    assert (await generate("waits", request())).finish == "stop"
    empty = await generate("is_empty", request())
    assert renderer("qwen3").parse(empty.ids, request().prompt_ids, ()).message == Message("assistant")
    assert list((await generate("says_ids", request())).ids) == [7, 8, 9]


async def test_malformed_arguments_are_sampled_as_they_are() -> None:
    generation = await generate("calls_malformed", request(), "odd_json=1")
    assert '"arguments": {"command": "ls' in renderer("qwen3").decode(generation.ids)


async def test_raw_text_never_becomes_a_special_token() -> None:
    generation = await generate("babbles", request())
    speaker = renderer("qwen3")
    assert speaker.decode(generation.ids).startswith("<tool_call> is only text here")
    assert speaker.encode("<tool_call> is only text here") == list(generation.ids)[:-1]


async def test_an_engine_can_be_busy_then_broken_then_well() -> None:
    engine = open_engine("scripted:tests.policies:FailsTwice", renderer=renderer("qwen3"))
    kinds = []
    for _ in range(2):
        with pytest.raises(EngineError) as caught:
            await engine.generate(request())
        kinds.append((caught.value.kind, caught.value.retry_after))
    assert kinds == [("rate_limited", 1.0), ("engine_error", None)]
    assert (await engine.generate(request())).finish == "stop"


@pytest.mark.parametrize(("policy", "said"), [("breaks", "LookupError: no such fact"), ("forgets", "NoneType")])
async def test_a_policy_that_fails_is_an_engine_that_fails(policy: str, said: str) -> None:
    with pytest.raises(EngineError, match=said) as caught:
        await generate(policy, request())
    assert caught.value.kind == "engine_error"


async def test_a_prompt_beyond_the_window_is_an_overflow_with_its_counts() -> None:
    asked = request()
    with pytest.raises(EngineError) as caught:
        await generate("look_then_finish", asked, "window=10")
    assert (caught.value.kind, caught.value.window) == ("overflow", 10)
    assert caught.value.prompt_tokens == len(asked.prompt_ids)


async def test_a_scripted_engine_is_graded_tokens_with_its_window() -> None:
    engine = open_engine("scripted:tests.policies:is_empty?window=999", model="m", renderer=renderer("qwen3"))
    info = await engine.probe()
    assert (info.level, info.model, info.max_model_len) == ("tokens", "m", 999)


async def test_cancelling_a_slow_policy_ends_it() -> None:
    task = asyncio.create_task(generate("is_empty", request(), "delay=600"))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_policy_in_a_file_is_found_by_its_path(tmp_path: Path) -> None:
    file = tmp_path / "my_policy.py"
    file.write_text(
        "from harbor_env.gateway.types import Message\n"
        "def greet(messages, tools):\n"
        "    return Message('assistant', 'hi')\n"
    )
    engine = open_engine(f"scripted:{file}:greet", renderer=renderer("qwen3"))
    generation = await engine.generate(request())
    assert renderer("qwen3").decode(generation.ids).startswith("hi")


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("scripted:tests.policies", "scripted:MODULE:POLICY"),
        ("scripted:tests.nothing:solve", "no policy module tests.nothing"),
        ("scripted:tests.policies:nothing", "no policy 'nothing'"),
        ("scripted:nothing.py:solve", "no policy file nothing.py"),
        ("scripted:tests.policies:is_empty?sed=1", "no option sed; it has noncanonical, odd_json, seed, delay, window"),
        ("scripted:tests.policies:is_empty?seed=x", "seed=x is not a number"),
    ],
)
def test_a_wrong_spec_says_what_to_type(spec: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        open_engine(spec, renderer=renderer("qwen3"))


def test_a_scripted_engine_without_a_tokenizer_says_so() -> None:
    with pytest.raises(UsageError, match="--tokenizer"):
        open_engine("scripted:tests.policies:is_empty")


@given(token=st.integers(0, 2**31 - 1))
def test_a_synthetic_logprob_is_negative_and_survives_float32(token: int) -> None:
    value = synthetic_logprob(token)
    assert -4 <= value < 0
    assert array("f", [value])[0] == value == synthetic_logprob(token)


@settings(deadline=None, max_examples=60)
@given(text=st.text(max_size=80), rate=st.floats(0, 1), seed=st.integers(0, 2**16))
@pytest.mark.parametrize("family", ["qwen3", "smollm2"])
def test_splitting_never_changes_the_text(family: str, text: str, rate: float, seed: int) -> None:
    speaker = renderer(family)
    ids = [*speaker.encode(text), *speaker.stop_ids]
    split = Splitter(speaker).split(ids, rate, random.Random(seed))
    assert speaker.decode(split) == speaker.decode(ids)
    assert [token for token in split if token in speaker.stop_ids] == list(speaker.stop_ids)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(value=JSON, compact=st.booleans(), ascii_only=st.booleans(), seed=st.integers(0, 2**16))
def test_odd_spacing_never_changes_the_value(value: Any, compact: bool, ascii_only: bool, seed: int) -> None:
    separators = (",", ":") if compact else None
    text = json.dumps(value, separators=separators, ensure_ascii=ascii_only)
    odd = odd_json(text, random.Random(seed))
    assert json.loads(odd) == value


@given(text=st.text(max_size=30))
def test_text_that_is_no_json_is_left_alone(text: str) -> None:
    broken = "{" + text
    try:
        json.loads(broken)
    except ValueError:
        assert odd_json(broken, random.Random(0)) == broken
