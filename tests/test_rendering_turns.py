"""Where one turn ends and the next begins: stop tokens, cuts, prefilled reasoning, inserted and reshaped messages."""

from __future__ import annotations

from array import array
from pathlib import Path

import pytest

from harbor_env.errors import RenderingError
from harbor_env.gateway.rendering.family_renderer import FamilyRenderer
from harbor_env.gateway.types import Message, Tool, ToolCall
from tests.rendering_models import (
    TOOLS,
    assistant,
    bash,
    by_library,
    carried,
    chosen,
    qwen3,
    qwen3_template,
    smollm2,
    system,
    tool,
    trl,
    user,
)

TEMPLATES = Path(__file__).parent / "data/rendering/templates"
BOTH_QWEN3 = pytest.mark.parametrize("load", [qwen3, qwen3_template], ids=["library", "template"])

GLM = pytest.mark.parametrize(
    "load", [lambda: by_library("glm-4.5", "glm4moe"), lambda: trl("glm4moe")], ids=["library", "template"]
)


def own(name: str) -> FamilyRenderer:
    return carried((TEMPLATES / f"{name}.jinja").read_text(), name)


def after(renderer: FamilyRenderer, sampled: list[int], *new: Message, prompt: list[int] | None = None) -> str:
    delta = renderer.bridge(prompt or renderer.render([user("hi")], TOOLS), sampled, new, TOOLS)
    assert delta is not None
    return renderer.decode(delta.ids)


@BOTH_QWEN3
def test_a_sampled_end_is_never_added_again(load) -> None:
    renderer = load()
    sampled = renderer.compose(assistant("ok"), ())
    assert renderer.decode(sampled) == "ok<|im_end|>"
    assert after(renderer, sampled, user("go")) == "\n<|im_start|>user\ngo<|im_end|>\n<|im_start|>assistant\n"


@BOTH_QWEN3
def test_a_length_cut_gets_its_end_once(load) -> None:
    renderer = load()
    cut = renderer.compose(assistant("ok"), ())[:-1]
    assert after(renderer, cut, user("go")).startswith("<|im_end|>\n<|im_start|>user\n")
    assert after(renderer, [], user("go")).startswith("<|im_end|>\n<|im_start|>user\n")


@BOTH_QWEN3
def test_reasoning_cut_short_is_closed_before_the_turn_is(load) -> None:
    renderer = load()
    cut = renderer.encode("") + renderer.compose(assistant("x", reasoning="I was just"), ())[:4]
    assert renderer.decode(cut).startswith("<think>")
    assert after(renderer, cut, user("go")).startswith("\n</think>\n\n<|im_end|>\n<|im_start|>user")


def test_the_other_stop_token_of_a_family_ends_a_turn_too() -> None:
    renderer = qwen3()
    other = renderer.stop_ids[1]
    assert renderer.decode([other]) == "<|endoftext|>"
    sampled = [*renderer.encode("ok"), other]
    assert after(renderer, sampled, user("go")).startswith("\n<|im_start|>user")
    assert renderer.parse(sampled, [], ()).message.content == "ok"


@BOTH_QWEN3
def test_a_prompt_is_read_from_any_sequence_and_only_at_its_end(load) -> None:
    renderer = load()
    sampled = renderer.compose(assistant("ok"), ())
    assert after(renderer, sampled, user("go"), prompt=array("i", [0] * 50_000)) == after(renderer, sampled, user("go"))


@GLM
def test_glm_keeps_the_opening_token_it_sampled_and_the_delta_starts_after_it(load) -> None:
    renderer = load()
    opens_user, opens_result = renderer.opening_stop_ids
    assert renderer.decode([opens_user, opens_result]) == "<|user|><|observation|>"
    call = renderer.compose(assistant("", bash('{"command": "ls"}'), reasoning="look"), TOOLS)
    assert call[-1] == opens_result
    follows = after(renderer, call, tool("a.txt"))
    assert follows.startswith("\n<tool_response>\na.txt\n</tool_response>")
    assert "<|observation|>" not in follows
    assert "<|endoftext|>" not in follows
    assert after(renderer, call[:-1], tool("a.txt")) == "<|observation|>" + follows
    answer = renderer.compose(assistant("done", reasoning="so"), TOOLS)
    assert answer[-1] == opens_user
    assert after(renderer, answer, user("more")).startswith("\nmore")


@GLM
def test_glm_that_stopped_for_a_result_gets_a_user_message_whole_with_a_finding(load) -> None:
    renderer = load()
    opens_user, opens_result = renderer.opening_stop_ids
    sampled = [*renderer.encode("</think>done"), opens_result]
    delta = renderer.bridge(renderer.render([user("hi")], TOOLS), sampled, [user("more")], TOOLS)
    assert delta is not None
    assert delta.ids[0] == opens_user
    assert [finding.code for finding in delta.findings] == ["stopped_for_another_role"]
    ended = [*renderer.encode("</think>done"), renderer.stop_ids[-1]]
    whole = renderer.bridge(renderer.render([user("hi")], TOOLS), ended, [user("more")], TOOLS)
    assert whole is not None
    assert (whole.ids, whole.findings) == (delta.ids, ())


@BOTH_QWEN3
def test_inserted_assistant_messages_are_context(load) -> None:
    renderer = load()
    sampled = renderer.compose(assistant("ok"), ())
    told = after(renderer, sampled, user("1"), assistant("one"), user("2"))
    turn = "<|im_start|>user\n1<|im_end|>\n<|im_start|>assistant\none<|im_end|>\n<|im_start|>user\n2<|im_end|>\n"
    assert told == f"\n{turn}<|im_start|>assistant\n"
    assert after(renderer, sampled, assistant("and"), user("2")).startswith("\n<|im_start|>assistant\nand<|im_end|>\n")
    assert after(renderer, sampled, user("2"), assistant("and")).endswith("and<|im_end|>\n<|im_start|>assistant\n")
    alone = after(renderer, sampled, assistant("and")).replace("<think>\n\n</think>\n\n", "")
    assert alone == "\n<|im_start|>assistant\nand<|im_end|>\n<|im_start|>assistant\n"


@BOTH_QWEN3
def test_several_results_of_one_turn_stand_together(load) -> None:
    renderer = load()
    sampled = renderer.compose(assistant("", bash("{}"), bash("{}")), TOOLS)
    told = after(renderer, sampled, tool("a", "c1"), tool("b", "c2"), user("go on"))
    results = "<tool_response>\na\n</tool_response>\n<tool_response>\nb\n</tool_response>"
    assert told.startswith(f"\n<|im_start|>user\n{results}<|im_end|>\n<|im_start|>user\ngo on<|im_end|>")


@pytest.mark.parametrize("load", [qwen3, qwen3_template, smollm2], ids=["library", "template", "smollm2"])
def test_a_failed_result_says_so_once(load) -> None:
    renderer = load()
    sampled = renderer.compose(assistant("", bash("{}")), TOOLS)
    assert "\nError: no such file\n" in after(renderer, sampled, tool("no such file", is_error=True))
    assert "\nerror: no such file\n" in after(renderer, sampled, tool("error: no such file", is_error=True))
    assert "\nno such file\n" in after(renderer, sampled, tool("no such file"))
    history = [user("hi"), assistant("", bash("{}", "c1")), tool("no such file", "c1", is_error=True)]
    assert "\nError: no such file\n" in renderer.decode(renderer.render(history, TOOLS))


@BOTH_QWEN3
def test_a_system_message_in_mid_conversation_stays_where_it_is(load) -> None:
    renderer = load()
    sampled = renderer.compose(assistant("ok"), ())
    assert "<|im_start|>system\nnote<|im_end|>\n<|im_start|>user\ngo" in after(
        renderer, sampled, system("note"), user("go")
    )


@pytest.mark.parametrize("name", ["one_system", "drops_systems"])
def test_two_opening_system_messages_reach_a_prompt_that_takes_one(name: str) -> None:
    renderer = own(name)
    history = [system("I am one"), system("D is two"), user("U is three")]
    text = renderer.decode(renderer.render(history, ()))
    assert [text.count(piece) for piece in ("I am one", "D is two", "U is three")] == [1, 1, 1]
    assert text.index("I am one") < text.index("D is two") < text.index("U is three")
    assert [finding.code for finding in renderer.notes(history, ())] == ["systems_joined"]


@pytest.mark.parametrize("name", ["one_system", "drops_systems"])
def test_a_later_system_message_becomes_a_user_message_in_its_place_with_a_finding(name: str) -> None:
    renderer = own(name)
    sampled = renderer.compose(assistant("ok"), ())
    delta = renderer.bridge(renderer.render([user("hi")], ()), sampled, [user("one"), system("two"), user("three")], ())
    assert delta is not None
    text = renderer.decode(delta.ids)
    assert text.index("one") < text.index("<|im_start|>user\ntwo") < text.index("three")
    assert [finding.code for finding in delta.findings] == ["system_as_user"]


def test_arguments_in_history_are_decoded_for_templates_that_iterate_them() -> None:
    renderer = own("iterates_arguments")
    assert renderer.tito == "exact"
    history = [user("hi"), assistant("", ToolCall("c1", "weather", '{"city":"Paris"}')), tool("sun", "c1")]
    assert "<parameter=city>\nParis\n</parameter>" in renderer.decode(renderer.render(history, TOOLS))
    assert renderer.notes(history, TOOLS) == ()


@pytest.mark.parametrize("bad", ['{"city": "Par', "[1]", '"text"', "ls -la", ""])
@pytest.mark.parametrize("load", [lambda: own("iterates_arguments"), qwen3, qwen3_template, lambda: trl("lfm2_2_5")])
def test_bad_arguments_in_history_are_rendered_as_they_are(load, bad: str) -> None:
    renderer = load()
    history = [user("hi"), assistant("", ToolCall("c1", "weather", bad)), tool("sun", "c1"), user("go")]
    assert bad in renderer.decode(renderer.render(history, TOOLS))
    assert [finding.code for finding in renderer.notes(history, TOOLS)] == (["arguments_not_json"] if bad else [])


@pytest.mark.parametrize("name", ["llama3", "gemma", "lfm2_2_5", "cohere"])
def test_a_prompt_begins_with_one_bos(name: str) -> None:
    renderer = trl(name)
    ids = renderer.render([system("s"), user("hi")], ())
    assert renderer.decode(ids).count("<bos>") == 1
    assert renderer.decode(ids[:1]) == "<bos>"


def test_a_templates_own_date_is_pinned_and_can_be_told() -> None:
    renderer = own("dated")
    assert "26 Jul 2024" in renderer.decode(renderer.render([user("hi")], ()))
    assert "02 Jan 2031" in renderer.decode(renderer.bind({"now": "2031-01-02"}).render([user("hi")], ()))
    assert "is Tuesday" in renderer.decode(renderer.bind({"date_string": "Tuesday"}).render([user("hi")], ()))


@pytest.mark.parametrize("name", ["counts_turns", "reminds_at_the_end"])
def test_a_template_that_rewrites_history_is_roots_only_and_says_why(name: str) -> None:
    renderer = own(name)
    assert renderer.tito == "roots only"
    assert "user: " in renderer.proof
    assert renderer.bridge(renderer.render([user("hi")], ()), renderer.encode("ok"), [user("go")], ()) is None


def test_a_template_that_does_not_compile_or_prints_nothing_is_refused() -> None:
    with pytest.raises(RenderingError, match="does not compile"):
        carried("{% for %}")
    with pytest.raises(RenderingError, match="does not print a plain conversation"):
        carried("nothing")


def test_thinking_switched_off_is_prefilled_and_read() -> None:
    for renderer in (qwen3().bind({"enable_thinking": False}), qwen3_template().bind({"enable_thinking": False})):
        prompt = renderer.render([user("hi")], ())
        assert renderer.decode(prompt).endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")
        sampled = renderer.compose(assistant("ok"), ())
        assert renderer.parse(sampled, prompt, ()).message == assistant("ok")
        delta = renderer.bridge(prompt, sampled, [user("go")], ())
        assert delta is not None
        assert renderer.decode(delta.ids).endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")


@pytest.mark.parametrize("load", [lambda: chosen("qwen3_5_think"), lambda: trl("qwen3_5_think")])
def test_reasoning_the_prompt_opened_is_read_without_its_tag(load) -> None:
    renderer = load()
    prompt = renderer.render([user("hi")], ())
    assert renderer.decode(prompt).endswith("<think>\n")
    sampled = renderer.compose(assistant("ok", reasoning="why"), ())
    assert renderer.decode(sampled) == "why\n</think>\n\nok<|im_end|>"
    assert renderer.parse(sampled, prompt, ()).message == assistant("ok", reasoning="why")
    cut = renderer.encode("why not")
    assert renderer.parse(cut, prompt, ()).message == assistant(reasoning="why not")
    assert after(renderer, cut, user("go"), prompt=prompt).startswith("\n</think>\n\n<|im_end|>\n")


@BOTH_QWEN3
def test_replies_cut_anywhere_are_read(load) -> None:
    renderer = load()
    whole = renderer.compose(
        assistant("So.", bash('{"command": "ls"}'), bash('{"command": "pwd"}'), reasoning="a b"), TOOLS
    )
    prompt = renderer.render([user("hi")], TOOLS)
    for end in range(len(whole)):
        message = renderer.parse(whole[:end], prompt, TOOLS).message
        assert len(message.tool_calls) <= 2
        assert message.reasoning in ("", "a", "a b")


@BOTH_QWEN3
def test_a_call_inside_reasoning_that_never_closed_is_read(load) -> None:
    renderer = load()
    whole = renderer.compose(assistant("", bash("{}")), TOOLS)
    opened = renderer.compose(assistant("", reasoning="so"), ())[:4]
    assert renderer.decode(opened).startswith("<think>\nso")
    assert renderer.parse(opened + whole, [], TOOLS).message == assistant("", bash("{}"), reasoning="so")


def test_tools_are_carried_as_text_where_a_template_knows_none() -> None:
    renderer = smollm2()
    text = renderer.decode(renderer.render([system("Be brief."), user("hi")], TOOLS))
    assert text.startswith("<|im_start|>system\nBe brief.\n\n# Tools")
    assert '{"type": "function", "function": {"name": "bash"' in text
    assert "SmolLM" in renderer.decode(renderer.render([user("hi")], ()))
    sampled = renderer.compose(assistant("Let me look.", bash('{"command":"ls"}')), TOOLS)
    assert renderer.parse(sampled, [], TOOLS).message.tool_calls == (bash('{"command":"ls"}'),)
    told = after(renderer, sampled, tool("a", "c1"), tool("b", "c2"))
    results = "<tool_response>\na\n</tool_response>\n<tool_response>\nb\n</tool_response>"
    assert told == f"\n<|im_start|>user\n{results}<|im_end|>\n<|im_start|>assistant\n"


def test_a_free_text_tool_is_shown_with_one_field_and_its_calls_read_back() -> None:
    patch = Tool("patch", "Apply a patch.", kind="custom")
    for renderer in (qwen3(), smollm2(), trl("lfm2_2_5"), trl("qwen3_5_think")):
        reply = assistant("", ToolCall("", "patch", '*** Begin\n-"a"\n+b'))
        prompt = renderer.render([user("hi")], [patch])
        assert renderer.parse(renderer.compose(reply, [patch]), prompt, [patch]).message == reply
        named = assistant("", ToolCall("c1", "patch", '*** Begin\n-"a"\n+b'))
        assert "*** Begin" in renderer.decode(renderer.render([user("hi"), named, tool("ok", "c1", "patch")], [patch]))


@pytest.mark.parametrize("escaped", ['{"a": "<|im_end|>"}', '{"a": "\\u003c|im_end|\\u003e"}'])
@pytest.mark.parametrize("load", [qwen3, qwen3_template, lambda: trl("qwen3_5_think"), lambda: trl("lfm2_2_5")])
def test_arguments_never_become_structure_however_they_are_escaped(load, escaped: str) -> None:
    renderer = load()

    def history(arguments: str) -> list[Message]:
        return [user("hi"), assistant("", bash(arguments, "c1")), tool("ok", "c1")]

    plain = renderer.structure(renderer.render(history('{"a": "x"}'), TOOLS))
    assert renderer.structure(renderer.render(history(escaped), TOOLS)) == plain
    sampled = renderer.compose(assistant("", bash(escaped)), TOOLS)
    assert renderer.structure(sampled) == renderer.structure(renderer.compose(assistant("", bash('{"a": "x"}')), TOOLS))
