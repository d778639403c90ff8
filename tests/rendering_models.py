"""Renderers of real models for tests, each loaded once.

A carrier is SmolLM2's tokenizer with another family's special tokens added: enough to try that family's template.
"""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

from harbor_env.gateway.rendering.families import choose
from harbor_env.gateway.rendering.family_renderer import FamilyRenderer
from harbor_env.gateway.rendering.jinja import Template
from harbor_env.gateway.rendering.library import LibraryRenderer
from harbor_env.gateway.rendering.load import load_renderer
from harbor_env.gateway.rendering.source import Source, read_source
from harbor_env.gateway.rendering.template import TemplateRenderer
from harbor_env.gateway.rendering.tokens import Tokens
from harbor_env.gateway.types import Message, Tool, ToolCall
from tests.tokenizers import qwen3_dir, smollm2_gguf, trl_templates

BASH = Tool(
    "bash",
    "Run a command.",
    {"type": "object", "properties": {"command": {"type": "string"}, "timeout": {"type": "integer"}}},
)
EDIT = Tool("edit", "Edit a file.", {"type": "object", "properties": {"path": {"type": "string"}, "rows": {}}})
TOOLS = (BASH, EDIT)

_SPECIAL = re.compile(
    r"<end_of_utterance>|<\|[A-Za-z_0-9/]+\|>|<\|[^\s'\"{}|<>]+>|<[^\s'\"{}|<>]+\|>|<｜[^<>｜]+｜>|\[gMASK\]|\[/?INST\]"
    r"|</?(?:think|tool_call|tool_response|arg_key|arg_value|start_of_turn|end_of_turn|sop|bos|eos|image)>"
)
_ALWAYS = ("<bos>", "<eos>", "<|begin_of_text|>", "<|end_of_text|>", "<|eom_id|>", "<|image>", "<image|>", "<|audio>")
_NOT_SPECIAL = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
_FLAGS = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}


@cache
def qwen3() -> FamilyRenderer:
    """Qwen3 as it is chosen for a local folder: the library's renderer."""
    renderer = load_renderer(qwen3_dir())
    assert isinstance(renderer, FamilyRenderer)
    return renderer


@cache
def qwen3_template() -> FamilyRenderer:
    """The same model through the generic renderer."""
    renderer = load_renderer(qwen3_dir(), renderer="template")
    assert isinstance(renderer, FamilyRenderer)
    return renderer


@cache
def smollm2() -> FamilyRenderer:
    """SmolLM2 from its GGUF: plain ChatML, knows no tools."""
    renderer = load_renderer(smollm2_gguf())
    assert isinstance(renderer, FamilyRenderer)
    return renderer


@cache
def trl(name: str) -> FamilyRenderer:
    """One of TRL's templates on a carrier, through the generic renderer."""
    text = (trl_templates() / f"{name}.jinja").read_text()
    return carried(text, name)


def carried(template: str, name: str = "carrier") -> FamilyRenderer:
    return TemplateRenderer(carrier(template, name), Template(template, special_of(name)), {}, ("<eos>",))


def special_of(name: str) -> dict[str, str]:
    """The names a template prints. Llama's renderer in the library wants its own first token."""
    return {"bos_token": "<|begin_of_text|>" if name.startswith("llama3_") else "<bos>", "eos_token": "<eos>"}


@cache
def chosen(name: str) -> FamilyRenderer:
    """One of TRL's templates on a carrier, with the renderer that is chosen for it."""
    text = (trl_templates() / f"{name}.jinja").read_text()
    source = Source({}, text, special_of(name), ("<eos>",), name)
    renderer = choose(carrier(text, name), source, text, None, {})
    assert isinstance(renderer, FamilyRenderer)
    return renderer


@cache
def by_library(family: str, template: str) -> FamilyRenderer:
    """A family of the `renderers` library on a carrier for one of TRL's templates."""
    return LibraryRenderer(carrier((trl_templates() / f"{template}.jinja").read_text(), template), family, {})


def carrier(template: str, name: str) -> Tokens:
    data: dict[str, Any] = json.loads(json.dumps(_smollm2_data()))
    known = {token["content"] for token in data["added_tokens"]}
    wanted = dict.fromkeys((*_ALWAYS, *_SPECIAL.findall(template)))
    first = len(data["model"]["vocab"])
    extra = [text for text in wanted if text not in known]
    data["added_tokens"] += [
        {"id": first + i, "content": text, "special": text not in _NOT_SPECIAL, **_FLAGS}
        for i, text in enumerate(extra)
    ]
    return Tokens(data, template=template, name=name, eos="<eos>")


@cache
def _smollm2_data() -> Any:
    return read_source(smollm2_gguf()).data


def system(text: str) -> Message:
    return Message("system", text)


def user(text: str) -> Message:
    return Message("user", text)


def assistant(text: str = "", *calls: ToolCall, reasoning: str = "") -> Message:
    return Message("assistant", text, reasoning=reasoning, tool_calls=calls)


def tool(text: str, call_id: str = "call00001", name: str = "bash", *, is_error: bool = False) -> Message:
    return Message("tool", text, tool_call_id=call_id, name=name, is_error=is_error)


def bash(arguments: str, call_id: str = "") -> ToolCall:
    return ToolCall(call_id, "bash", arguments)
