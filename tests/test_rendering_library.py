"""Families whose calls only the `renderers` library reads, through Llama 3.2's on a carrier."""

from __future__ import annotations

import pytest

from harbor_env.errors import RenderingError
from harbor_env.gateway.rendering.conversation import outside_call
from harbor_env.gateway.rendering.guard import Guard
from harbor_env.gateway.rendering.library_reading import read_reply
from harbor_env.gateway.types import Message
from tests.rendering_models import TOOLS, assistant, bash, by_library, tool, user


def llama():
    return by_library("llama-3", "llama3_2")


def test_a_call_is_composed_and_read_with_its_own_spacing() -> None:
    renderer = llama()
    prompt = renderer.render([user("hi")], TOOLS)
    sampled = [*renderer.encode('{"name": "bash", "parameters": {"command":  "ls"}}'), renderer.stop_ids[0]]
    assert renderer.parse(sampled, prompt, TOOLS).message == assistant("", bash('{"command":  "ls"}'))
    reply = assistant("", bash('{"command": "ls"}'))
    assert renderer.parse(renderer.compose(reply, TOOLS), prompt, TOOLS).message == reply
    delta = renderer.bridge(prompt, sampled, [tool("a.txt")], TOOLS)
    assert delta is not None
    assert "a.txt" in renderer.decode(delta.ids)


def test_a_reply_the_family_cannot_write_is_refused() -> None:
    with pytest.raises(RenderingError, match="writes no such reply"):
        llama().compose(assistant("Let me look.", bash("{}")), TOOLS)


def test_text_beside_calls_and_parallel_calls_in_history_are_turns_of_their_own() -> None:
    renderer = llama()
    both = assistant("Let me look.", bash('{"command": "one"}', "c1"), bash('{"command": "two"}', "c2"))
    history = [user("hi"), both, tool("first", "c1"), tool("second", "c2")]
    text = renderer.decode(renderer.render(history, TOOLS))
    places = [text.index(piece) for piece in ("Let me look.", '"one"', "first", '"two"', "second")]
    assert places == sorted(places)
    codes = [finding.code for finding in renderer.notes(history, TOOLS)]
    assert codes == ["parallel_calls_split", "text_split_from_calls"]


class _Unreading:
    """A family of the library that cannot read a reply."""

    def parse_response(self, ids: list[int], **_: object) -> None:
        raise ValueError("a header without a channel")


def test_a_reply_the_library_cannot_read_is_kept_as_text_with_a_finding() -> None:
    parsed = read_reply(_Unreading(), [1, 2], [], TOOLS, "as sampled")
    assert parsed.message == Message("assistant", "as sampled")
    assert [finding.code for finding in parsed.findings] == ["reply_unreadable"]


def test_a_guarded_call_keeps_its_spacing_unless_escapes_hide_a_token() -> None:
    guard = Guard(["<|end|>"])
    assert outside_call(bash('{"a":  "\\u00e9"}'), guard).arguments == '{"a":  "\\u00e9"}'
    assert "<|end|>" not in outside_call(bash('{"a":  "\\u003c|end|>"}'), guard).arguments
    assert outside_call(bash('{"a": \\u003c'), guard).arguments == '{"a": \\u003c'
