"""Laws every renderer keeps, on random conversations: prompts only grow, deltas stand alone, replies read back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from harbor_env.gateway.rendering.family_renderer import FamilyRenderer
from harbor_env.gateway.types import Message, ToolCall
from tests.rendering_models import TOOLS, assistant, chosen, qwen3, qwen3_template, smollm2, trl

RENDERERS: dict[str, Callable[[], FamilyRenderer]] = {
    "qwen3 by the library": qwen3,
    "qwen3 by its template": qwen3_template,
    "smollm2": smollm2,
    "qwen2.5": lambda: trl("qwen2_5"),
    "qwen3.5 by the library": lambda: chosen("qwen3_5_think"),
    "qwen3.5 by its template": lambda: trl("qwen3_5_think"),
    "qwen3.8 by the library": lambda: chosen("qwen3_8"),
    "glm 4.5": lambda: trl("glm4moe"),
    "nemotron 3 by its template": lambda: trl("nemotron_3_nano"),
    "lfm2.5": lambda: trl("lfm2_2_5"),
    "llama3": lambda: trl("llama3"),
    "gemma": lambda: trl("gemma"),
    "phi3": lambda: trl("phi3"),
    "cohere": lambda: trl("cohere"),
    "deepseek v3": lambda: trl("deepseekv3"),
}
REAL = ("qwen3 by the library", "qwen3 by its template", "smollm2")
"""Renderers of models with their own tokenizer; a carrier may split white space where a prompt ends otherwise."""
every_renderer = pytest.mark.parametrize("name", RENDERERS)
quick = settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))

WORDS = (
    "ls -la",
    "it's",
    'say "hi"',
    "a\nb",
    "naïve 😀",
    "<b>",
    "</tool_call>",
    "<|im_end|>",
    "<think>",
    "</think>",
    "{}",
    "x",
)
spoken = st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(" ".join)
said = spoken.map(str.strip)
value = st.one_of(st.integers(-5, 99), st.booleans(), st.none(), st.lists(st.integers(0, 9), max_size=3))
arguments = st.fixed_dictionaries({"command": spoken}, optional={"timeout": st.integers(0, 99), "extra": value})


def calls(dumps: Callable[[object], str]) -> st.SearchStrategy[tuple[ToolCall, ...]]:
    one = arguments.map(lambda given: ToolCall("", "bash", dumps(given)))
    return st.lists(one, max_size=2).map(tuple)


def canonical(given: object) -> str:
    import json

    return json.dumps(given, ensure_ascii=False)


@st.composite
def replies(draw: st.DrawFn) -> Message:
    """An assistant's turn, in the family's own spelling of arguments."""
    made = draw(calls(canonical))
    return assistant(draw(said) if not made or draw(st.booleans()) else "", *made, reasoning=draw(st.just("") | said))


@st.composite
def conversations(draw: st.DrawFn, *, reasoning: bool = True) -> list[list[Message]]:
    """What is new in each turn, then the reply to it, alternating: [new, [reply], new, [reply], ..., new]."""
    opening = [Message("system", draw(spoken))] if draw(st.booleans()) else []
    turns = [[*opening, Message("user", draw(spoken))]]
    for turn in range(draw(st.integers(1, 3))):
        reply = draw(replies())
        if not reasoning:
            reply = Message("assistant", reply.content, tool_calls=reply.tool_calls)
        named = tuple(ToolCall(f"call{turn}000{i}", c.name, c.arguments) for i, c in enumerate(reply.tool_calls))
        turns.append([Message("assistant", reply.content, reply.reasoning, named)])
        results = [Message("tool", draw(spoken), tool_call_id=c.id, name=c.name) for c in named]
        more = [Message("user", draw(spoken))] if not results or draw(st.booleans()) else []
        turns.append([*results, *more])
    return turns


def can_be_told_apart(renderer: FamilyRenderer, reply: Message) -> bool:
    """Where a family's tags are plain text, no reader can tell the tag from its mention."""
    return "<think>" in renderer.structural_texts or "think>" not in reply.reasoning + reply.content


def prints_what_models_write(name: str, turns: list[list[Message]]) -> bool:
    """Liquid's template prints strings between single quotes whatever is in them; a model escapes."""
    written = [call.arguments for turn in turns for message in turn for call in message.tool_calls]
    return not name.startswith("lfm") or not any("'" in text or "\\" in text for text in written)


@every_renderer
@quick
@given(reply=replies())
def test_a_composed_reply_reads_back(name: str, reply: Message) -> None:
    renderer = RENDERERS[name]()
    assume(can_be_told_apart(renderer, reply))
    prompt = renderer.render([Message("user", "hi")], TOOLS)
    ids = renderer.compose(reply, TOOLS)
    parsed = renderer.parse(ids, prompt, TOOLS)
    assert parsed.message == reply
    assert parsed.findings == ()
    assert ids[-1] in renderer.stop_ids
    assert [token for token in ids[:-1] if token in renderer.stop_ids] == []


@every_renderer
@quick
@given(turns=conversations(reasoning=False))
def test_prompts_only_grow_and_equal_the_full_render(name: str, turns: list[list[Message]]) -> None:
    renderer = RENDERERS[name]()
    assume(prints_what_models_write(name, turns))
    ids = renderer.render(turns[0], TOOLS)
    history = list(turns[0])
    for reply, new in zip(turns[1::2], turns[2::2], strict=True):
        sampled = renderer.compose(reply[0], TOOLS)
        delta = renderer.bridge(ids, sampled, new, TOOLS)
        assert delta is not None
        ids = [*ids, *sampled, *delta.ids]
        history += [*reply, *new]
    if renderer.thinking_prefilled:
        return  # the prompt opens reasoning, which history without reasoning does not print
    assert renderer.decode(ids) == renderer.decode(renderer.render(history, TOOLS))
    if name in REAL:
        assert ids == renderer.render(history, TOOLS)


@every_renderer
@quick
@given(turns=conversations(), other=replies())
def test_a_delta_depends_on_the_new_messages_alone(name: str, turns: list[list[Message]], other: Message) -> None:
    renderer = RENDERERS[name]()
    if renderer.opening_stop_ids:
        assume(bool(other.tool_calls) == bool(turns[1][0].tool_calls))
    prompt = renderer.render(turns[0], TOOLS)
    elsewhere = renderer.render([Message("user", "another place")], TOOLS)
    new = turns[2]
    first = renderer.bridge(prompt, renderer.compose(turns[1][0], TOOLS), new, TOOLS)
    second = renderer.bridge(elsewhere, renderer.compose(other, TOOLS), new, TOOLS)
    assert first is not None
    assert first == second


@every_renderer
@quick
@given(turns=conversations())
def test_structure_in_a_delta_is_what_roles_demand(name: str, turns: list[list[Message]]) -> None:
    renderer = RENDERERS[name]()
    prompt = renderer.render(turns[0], TOOLS)
    new = turns[-1]
    plain = [Message(m.role, "plain", tool_call_id=m.tool_call_id, name=m.name) for m in new]
    sampled = renderer.compose(assistant("ok"), TOOLS)
    told, bare = renderer.bridge(prompt, sampled, new, TOOLS), renderer.bridge(prompt, sampled, plain, TOOLS)
    assert told is not None
    assert bare is not None
    assert renderer.structure(told.ids) == renderer.structure(bare.ids)


@every_renderer
@quick
@given(texts=st.lists(spoken, min_size=3, max_size=3), reply=replies())
def test_structure_in_a_prompt_is_what_roles_demand(name: str, texts: list[str], reply: Message) -> None:
    renderer = RENDERERS[name]()

    def prompt(words: list[str], said: str) -> Counter[int]:
        messages = [Message("system", words[0]), Message("user", words[1]), assistant(said), Message("user", words[2])]
        return renderer.structure(renderer.render(messages, TOOLS))

    assert prompt(texts, reply.content) == prompt(["a", "b", "c"], "d" if reply.content else "")


@every_renderer
def test_binding_is_cached_and_the_same_variables_give_the_same_renderer(name: str) -> None:
    renderer = RENDERERS[name]()
    assert renderer.bind({}) is renderer.bind({})
