"""How calls are read out of sampled text: every case is a line in `data/rendering/calls.json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harbor_env.gateway.rendering.grammars import Grammar
from harbor_env.gateway.rendering.grammars.known import known_grammars
from harbor_env.gateway.rendering.guard import MARK
from harbor_env.gateway.types import Tool, ToolCall

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parent / "data/rendering/calls.json").read_text())
PLAIN: dict[str, Grammar] = {grammar.name: grammar for grammar in known_grammars(lambda text: text)}
MARKED: dict[str, Grammar] = {grammar.name: grammar for grammar in known_grammars(lambda text: MARK + text)}
PIECES = ('{"name": "f", "arguments": ', "{", "}", '"', "'", "\\", "\n", "[", "]", "f(", "a=", ")", ",", "x", "1")
XML = ("<function=f>", "</function>", "<parameter=a>", "</parameter>")
TAGS = (
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
    "<tool_call>",
    "</tool_call>",
    "<|tool_call_start|>",
    "<|tool_call_end|>",
)


@pytest.mark.parametrize("marked", [False, True], ids=["tags as text", "tags as tokens"])
@pytest.mark.parametrize("case", CASES, ids=[f"{case['grammar']}: {case['name']}" for case in CASES])
def test_calls_are_read(case: dict[str, Any], marked: bool) -> None:
    text = case["text"]
    for tag in TAGS if marked else ():
        text = text.replace(tag, MARK + tag)
    tools = [Tool(tool["name"], parameters=tool["parameters"]) for tool in case.get("tools", ())]
    reading = (MARKED if marked else PLAIN)[case["grammar"]].read(text, tools)
    assert [[call.name, call.arguments] for call in reading.calls] == case["calls"]
    assert reading.content == case["content"]
    assert [finding.code for finding in reading.findings] == case["findings"]


@pytest.mark.parametrize("name", PLAIN)
@settings(max_examples=150, deadline=None)
@given(pieces=st.lists(st.sampled_from([*TAGS, *PIECES]), max_size=12))
def test_reading_never_raises_and_never_loses_text(name: str, pieces: list[str]) -> None:
    text = "".join(pieces)
    reading = PLAIN[name].read(text, ())
    if not reading.calls:
        assert reading.content == text


@pytest.mark.parametrize("opening", ["[", '{"a":'])
@pytest.mark.parametrize("name", PLAIN)
def test_bottomless_arguments_raise_nothing(name: str, opening: str) -> None:
    deep = opening * 100_000
    for text in (
        f'<tool_call>{{"name": "f", "arguments": {deep}</tool_call>',
        f"<tool_call><function=f><parameter=a>{deep}</parameter></function></tool_call>",
        f"<|tool_call_start|>[f(a={deep})]<|tool_call_end|>",
    ):
        PLAIN[name].read(text, ())


@pytest.mark.parametrize("name", PLAIN)
def test_a_free_text_tool_gets_the_text_itself(name: str) -> None:
    patch = Tool("patch", kind="custom")
    call = ToolCall("", "patch", '*** Begin Patch\n-it\'s "old"\n+new\n')
    reading = PLAIN[name].read(PLAIN[name].write([call], [patch]), [patch])
    assert reading.calls == [call]


@pytest.mark.parametrize("name", PLAIN)
def test_arguments_that_are_no_object_are_written_and_read_without_raising(name: str) -> None:
    for arguments in ("[1, 2]", "not json", "", '"text"', "null"):
        written = PLAIN[name].write([ToolCall("", "f", arguments)], ())
        PLAIN[name].read(written, ())


@pytest.mark.parametrize("kind", ["function", "custom"])
@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize(
    "call",
    [
        '{"name": "\\ud800", "arguments": {}}',
        '{"name": "f", "arguments": "\\ud800"}',
        '{"name": "f", "arguments": {"input": "a\\ud83d\\ude42 \\udc00"}}',
        '{"name": "f", "arguments": "' + "[" * 9000 + '"}',
        'f(input="\\ud800")',
    ],
)
def test_every_call_that_is_read_can_be_stored_and_shown(name: str, call: str, kind: Any) -> None:
    for text in (f"<tool_call>{call}</tool_call>", f"<|tool_call_start|>[{call}]<|tool_call_end|>"):
        reading = PLAIN[name].read(text, [Tool("f", kind=kind)])
        assert len(orjson.dumps(reading.calls)) > 0
        replaced = any("\ufffd" in made.name + made.arguments for made in reading.calls)
        assert replaced == any(finding.code == "call_not_unicode" for finding in reading.findings)
