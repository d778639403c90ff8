"""Conversations as hypothesis draws them, and the bodies each dialect's clients would send for them.

A `Call` is drawn; `*_body(call, vary)` spells it for the wire in one of the many ways clients do; `*_meaning(call)` is
what that dialect can carry of it: the documented loss, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import orjson
from hypothesis import strategies as st

from harbor_env.gateway.dialects.opaque import seal
from harbor_env.gateway.types import Call, Message, Reply, Sampling, Tool, ToolCall, ToolChoice, Usage

Body = dict[str, Any]

ODD_TEXTS = (
    "",
    " ",
    "\n",
    "\n\n",
    "a\nb",
    "žluť 🐎",
    "e\u0301",
    "a\u2028b\u0085c\u2029",
    "\x00\x1f",
    '"q" \\ /',
    "<|im_end|>",
)
TEXTS = st.sampled_from(ODD_TEXTS) | st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
SAID = TEXTS.filter(bool)
NAMES = ("bash", "read_file", "edit")
CALLED = (*NAMES, "local_shell", "apply_patch", "files__edit", "")
"""What a model may call: a cut-off call has no name."""
SCHEMAS: tuple[dict[str, Any], ...] = (
    {},
    {"type": "object", "properties": {"cmd": {"type": "string"}}, "required": ["cmd"]},
    {
        "type": "object",
        "properties": {"n": {"anyOf": [{"type": "integer"}, {"type": "null"}]}},
        "additionalProperties": False,
    },
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)
OBJECTS = st.dictionaries(TEXTS, VALUES, max_size=3)
NOT_OBJECTS = ("", " ", "{", '{"a": "b', "[1]", '"x"', "null", "NaN", '{"a": 1}}', "plain text", '{"a": "\n"}')
ODD_OBJECTS = (
    "{}",
    ' {"a" :\n1}',
    '{"n": 20000.0, "n": 123456789012345678901234567890}',
    '{"s":"\\u00e9\\ud83d\\udc0e"}',
)


@st.composite
def tools(draw: st.DrawFn) -> tuple[Tool, ...]:
    names = draw(st.lists(st.sampled_from(NAMES), unique=True))
    return tuple(Tool(name, draw(TEXTS), draw(st.sampled_from(SCHEMAS))) for name in names)


@st.composite
def exchange(draw: st.DrawFn, turn: int) -> list[Message]:
    """An assistant message, the results of its calls, and what the harness adds."""
    calls = tuple(
        ToolCall(f"call_{turn}_{i}", draw(st.sampled_from(CALLED)), orjson.dumps(draw(OBJECTS)).decode())
        for i in range(draw(st.integers(0, 3)))
    )
    said = [Message("assistant", draw(TEXTS), draw(TEXTS), calls)]
    said += [
        Message("tool", draw(TEXTS), tool_call_id=call.id, name=call.name, is_error=draw(st.booleans()))
        for call in calls
    ]
    if not calls or draw(st.booleans()):
        said.append(Message("user", draw(TEXTS)))
    if draw(st.integers(0, 3)) == 0:
        said.append(Message("system", draw(SAID)))
    return said


@st.composite
def conversations(draw: st.DrawFn) -> Call:
    messages = [Message("system", draw(SAID))] if draw(st.booleans()) else []
    messages += [Message("user", text) for text in draw(st.lists(TEXTS, min_size=1, max_size=2))]
    for turn in range(draw(st.integers(0, 3))):
        messages += draw(exchange(turn))
    return Call(
        messages=tuple(messages),
        tools=draw(tools()),
        model="policy",
        stream=draw(st.booleans()),
        max_tokens=draw(st.none() | st.integers(1, 100_000)),
        sampling=Sampling(
            draw(st.none() | st.floats(0, 2)),
            draw(st.none() | st.floats(0, 1)),
            draw(st.none() | st.integers(0, 100)),
            tuple(draw(st.lists(SAID, max_size=2))),
            draw(st.none() | st.integers(0, 2**31)),
        ),
        tool_choice=draw(
            st.sampled_from([ToolChoice(), ToolChoice("none"), ToolChoice("required"), ToolChoice("named", "bash")])
        ),
        thinking=draw(st.sampled_from([None, True, False])),
        response_schema=draw(st.sampled_from([None, SCHEMAS[1]])),
    )


OFFERED = (
    Tool("local_shell", kind="builtin"),
    Tool("apply_patch", kind="builtin"),
    Tool("edit", kind="custom"),
    Tool("read_file", namespace="files"),
    Tool("files__edit", kind="custom", namespace="files"),
)
"""Tools whose calls a dialect may have an item of their own for."""


@st.composite
def asked(draw: st.DrawFn) -> Call:
    """A request that a reply answers in full: what it offers, and whether it wants usage streamed."""
    offered = tuple(tool for tool in OFFERED if draw(st.booleans()))
    return Call((Message("user", "go"),), tools=offered, model="policy", stream=True, include_usage=draw(st.booleans()))


@st.composite
def replies(draw: st.DrawFn, arguments: st.SearchStrategy[str] | None = None) -> Reply:
    """A reply; `arguments` None draws any text a model may write, valid or not."""
    spelled = OBJECTS.map(lambda value: orjson.dumps(value).decode()) | st.sampled_from(ODD_OBJECTS)
    if arguments is None:
        spelled |= st.sampled_from(NOT_OBJECTS) | TEXTS
    calls = tuple(
        ToolCall(f"call_{i}", draw(st.sampled_from(CALLED)), draw(arguments if arguments is not None else spelled))
        for i in range(draw(st.integers(0, 3)))
    )
    prompt = draw(st.integers(1, 10_000))
    return Reply(
        id="reply-7",
        message=Message("assistant", draw(TEXTS), draw(TEXTS), calls),
        finish=draw(st.sampled_from(["stop", "length"])),
        usage=Usage(prompt, draw(st.integers(0, 500)), draw(st.integers(0, prompt))),
        model="policy",
        created=1_700_000_000,
    )


def _lines(vary: Random, text: str) -> list[str]:
    """Parts that join to `text` with a line break, empty ones thrown in."""
    cuts = [i for i, char in enumerate(text) if char == "\n" and 0 < i < len(text) - 1]
    at = vary.choice(cuts) if cuts else 0
    return _with_empty(vary, [text[:at], text[at + 1 :]] if at else [text])


def _slices(vary: Random, text: str) -> list[str]:
    """Parts that join to `text` as they stand."""
    at = vary.randrange(len(text) + 1)
    return _with_empty(vary, [text[:at], text[at:]])


def _with_empty(vary: Random, parts: list[str]) -> list[str]:
    if vary.random() < 0.3:
        parts.insert(vary.randrange(len(parts) + 1), "")
    return parts


def _content(vary: Random, text: str, parts: Callable[[Random, str], list[str]], kind: str = "text") -> Any:
    """A text as a string, as parts, or as nothing."""
    if not text and vary.random() < 0.3:
        return None
    if vary.random() < 0.5:
        return text
    return [{"type": kind, "text": part, **_extra(vary)} for part in parts(vary, text)]


def _extra(vary: Random) -> Body:
    """Fields that mean nothing to a model."""
    return {"cache_control": {"type": "ephemeral"}} if vary.random() < 0.3 else {}


def chat_body(call: Call, vary: Random) -> Body:
    body: Body = {
        "model": call.model,
        "messages": [_chat_message(m, vary) for m in call.messages],
        "metadata": {"x": "y"},
    }
    if call.tools or vary.random() < 0.5:
        body["tools"] = [
            {"type": "function", "function": {"name": t.name, "description": t.description, "parameters": t.parameters}}
            for t in call.tools
        ]
    if call.stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    body[vary.choice(["max_tokens", "max_completion_tokens"])] = call.max_tokens
    asked = call.sampling
    body |= {"temperature": asked.temperature, "top_p": asked.top_p, "top_k": asked.top_k, "seed": asked.seed}
    body["stop"] = asked.stop[0] if len(asked.stop) == 1 and vary.random() < 0.5 else list(asked.stop)
    if call.tool_choice.mode == "named":
        body["tool_choice"] = {"type": "function", "function": {"name": call.tool_choice.name}}
    else:
        body["tool_choice"] = call.tool_choice.mode
    if call.thinking is not None:
        body |= vary.choice(
            [
                {"chat_template_kwargs": {"enable_thinking": call.thinking}},
                {"reasoning_effort": "high" if call.thinking else "none"},
            ]
        )
    if call.response_schema is not None:
        body["response_format"] = {"type": "json_schema", "json_schema": {"name": "r", "schema": call.response_schema}}
    return body


def _chat_message(message: Message, vary: Random) -> Body:
    if message.role == "assistant":
        out: Body = {"role": "assistant", "content": _content(vary, message.content, _slices)}
        if message.reasoning:
            names = vary.choice([["reasoning"], ["reasoning_content"], ["reasoning", "reasoning_content"]])
            out |= dict.fromkeys(names, message.reasoning)
        if message.tool_calls:
            out["tool_calls"] = [
                {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
                for c in message.tool_calls
            ]
        return out | vary.choice([{}, {"refusal": None, "annotations": []}])
    role = vary.choice(["system", "developer"]) if message.role == "system" else message.role
    out = {"role": role, "content": _content(vary, message.content, _lines)}
    if message.role == "tool":
        out |= {"tool_call_id": message.tool_call_id} | vary.choice([{}, {"name": message.name}])
    return out


def without_error_flags(call: Call) -> Call:
    """Chat Completions and Responses have no field for a result that is an error."""
    return replace(call, messages=tuple(replace(m, is_error=False) for m in call.messages))


def without_seed(call: Call) -> Call:
    """Anthropic has no seed."""
    return replace(call, sampling=replace(call.sampling, seed=None))


def as_responses_has_it(call: Call) -> Call:
    """Nor has Responses fields for stop texts, for a seed, or for top-k."""
    sampling = Sampling(call.sampling.temperature, call.sampling.top_p)
    return replace(without_error_flags(call), sampling=sampling)


def messages_body(call: Call, vary: Random) -> Body:
    body: Body = {"model": call.model, "messages": [], "metadata": {"user_id": "u"}, "max_tokens": call.max_tokens}
    rest = list(call.messages)
    if rest[0].role == "system":
        body["system"] = _content(vary, rest.pop(0).content, _lines)
    if vary.random() < 0.3:
        header = {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.332.93a; cc_entrypoint=sdk-cli;"}
        given = body.get("system") or []
        body["system"] = [header, *([{"type": "text", "text": given}] if isinstance(given, str) else given)]
    for message in rest:
        _add_anthropic(body["messages"], message, vary)
    body["tools"] = [
        {"name": t.name, "description": t.description, "input_schema": t.parameters, **_extra(vary)} for t in call.tools
    ]
    asked = call.sampling
    body |= {"stream": call.stream, "temperature": asked.temperature, "top_p": asked.top_p, "top_k": asked.top_k}
    body["stop_sequences"] = list(asked.stop)
    choices = {"auto": "auto", "none": "none", "required": "any", "named": "tool"}
    body["tool_choice"] = {"type": choices[call.tool_choice.mode]}
    if call.tool_choice.name:
        body["tool_choice"]["name"] = call.tool_choice.name
    if call.thinking is not None:
        on: Body = vary.choice([{"type": "enabled", "budget_tokens": 1024}, {"type": "adaptive"}])
        body["thinking"] = on if call.thinking else {"type": "disabled"}
    if call.response_schema is not None:
        form = {"type": "json_schema", "schema": call.response_schema}
        body |= vary.choice([{"output_config": {"format": form, "effort": "high"}}, {"output_format": form}])
    return body


def _add_anthropic(wire: list[Body], message: Message, vary: Random) -> None:
    if message.role == "system":
        wire.append({"role": "system", "content": _content(vary, message.content, _lines)})
    elif message.role == "assistant":
        wire.append({"role": "assistant", "content": _anthropic_blocks(message, vary)})
    elif message.role == "tool":
        result: Body = {"type": "tool_result", "tool_use_id": message.tool_call_id, **_extra(vary)}
        content = _content(vary, message.content, _lines)
        result |= {} if content is None else {"content": content}
        result |= {"is_error": True} if message.is_error else vary.choice([{}, {"is_error": False}])
        _join(wire, [result], vary)
    elif message.content:
        _join(wire, [{"type": "text", "text": part} for part in _lines(vary, message.content)], vary)
    else:
        wire.append({"role": "user", "content": _content(vary, "", _lines)})


def _join(wire: list[Body], blocks: list[Body], vary: Random) -> None:
    """Add blocks to the last user message where that changes no meaning, or as a message of their own."""
    last = wire[-1] if wire else {"role": ""}
    open_end = last["role"] == "user" and isinstance(last["content"], list) and last["content"]
    two_texts = open_end and last["content"][-1]["type"] == blocks[0]["type"] == "text"
    if open_end and not two_texts and vary.random() < 0.7:
        last["content"] += blocks
    elif len(blocks) == 1 and blocks[0]["type"] == "text" and vary.random() < 0.5:
        wire.append({"role": "user", "content": blocks[0]["text"]})
    else:
        wire.append({"role": "user", "content": blocks})


def _anthropic_blocks(message: Message, vary: Random) -> Any:
    if not message.reasoning and not message.tool_calls:
        return _content(vary, message.content, _slices)
    blocks: list[Body] = []
    if message.reasoning:
        blocks.append({"type": "thinking", "thinking": message.reasoning, "signature": "sig"})
    if message.content:
        blocks += [{"type": "text", "text": part} for part in _slices(vary, message.content)]
    blocks += [
        {"type": "tool_use", "id": c.id, "name": c.name, "input": orjson.loads(c.arguments)} for c in message.tool_calls
    ]
    return blocks


def responses_body(call: Call, vary: Random) -> Body:
    rest, items = list(call.messages), []
    body: Body = {"model": call.model, "store": False, "include": ["reasoning.encrypted_content"]}
    if rest[0].role == "system" and vary.random() < 0.7:
        body["instructions"] = rest.pop(0).content
    for message in rest:
        items += _responses_items(message, vary)
    plain = len(rest) == 1 and rest[0].role == "user"
    body["input"] = rest[0].content if plain and vary.random() < 0.5 else items
    body["tools"] = [
        {"type": "function", "name": t.name, "description": t.description, "parameters": t.parameters, "strict": False}
        for t in call.tools
    ]
    body |= {"stream": call.stream, "max_output_tokens": call.max_tokens}
    body |= {"temperature": call.sampling.temperature, "top_p": call.sampling.top_p}
    named = call.tool_choice.mode == "named"
    body["tool_choice"] = {"type": "function", "name": call.tool_choice.name} if named else call.tool_choice.mode
    effort = {None: {"summary": "auto"}, True: {"effort": "high"}, False: {"effort": "none"}}
    body["reasoning"] = effort[call.thinking]
    if call.response_schema is not None:
        body["text"] = {"format": {"type": "json_schema", "name": "r", "schema": call.response_schema}}
    return body


def _responses_items(message: Message, vary: Random) -> list[Body]:
    if message.role == "assistant":
        return _responses_reply(message, vary)
    if message.role == "tool":
        output = _content(vary, message.content, _lines, "input_text")
        return [{"type": "function_call_output", "call_id": message.tool_call_id, "output": output, "id": None}]
    role = vary.choice(["system", "developer"]) if message.role == "system" else "user"
    item = {"role": role, "content": _content(vary, message.content, _lines, "input_text")}
    return [item | vary.choice([{}, {"type": "message"}, {"type": "message", "id": "msg_1", "status": "completed"}])]


def _responses_reply(message: Message, vary: Random) -> list[Body]:
    items: list[Body] = []
    if message.reasoning:
        shown = [{"type": "summary_text", "text": message.reasoning}]
        sealed = {"summary": vary.choice([[], shown]), "encrypted_content": seal(message.reasoning), "content": None}
        items.append({"type": "reasoning", "id": "rs_1"} | vary.choice([sealed, {"summary": shown}]))
    if message.content or not (message.reasoning or message.tool_calls):
        for text in vary.choice([[message.content], _slices(vary, message.content)]):
            parts = [{"type": "output_text", "text": part, "annotations": []} for part in _slices(vary, text)]
            items.append({"type": "message", "role": "assistant", "content": vary.choice([text, parts])})
    items += [
        {"type": "function_call", "call_id": c.id, "name": c.name, "arguments": c.arguments, "status": "completed"}
        for c in message.tool_calls
    ]
    return items


def only_leading_system(call: Call) -> Call:
    """Google has one system instruction, and no place for another in mid-conversation."""
    rest = tuple(m for m in call.messages[1:] if m.role != "system")
    return replace(call, messages=(call.messages[0], *rest))


def gemini_body(call: Call, vary: Random) -> Body:
    rest = list(only_leading_system(call).messages)
    body: Body = {"contents": []}
    if rest[0].role == "system":
        parts = [{"text": part} for part in _lines(vary, rest.pop(0).content)]
        body[vary.choice(["systemInstruction", "system_instruction"])] = {"role": "user", "parts": parts}
    for message in rest:
        _add_gemini(body["contents"], message, vary)
    field = vary.choice(["parameters", "parametersJsonSchema"])
    declared = [{"name": t.name, "description": t.description, field: t.parameters} for t in call.tools]
    body["tools"] = [{"functionDeclarations": declared}] if declared else []
    modes = {"auto": "AUTO", "none": "NONE", "required": "ANY", "named": "ANY"}
    calling: Body = {"mode": modes[call.tool_choice.mode]}
    if call.tool_choice.name:
        calling["allowedFunctionNames"] = [call.tool_choice.name]
    body["toolConfig"] = {"functionCallingConfig": calling}
    config: Body = {
        "temperature": call.sampling.temperature,
        "topP": call.sampling.top_p,
        "topK": call.sampling.top_k,
        "stopSequences": list(call.sampling.stop),
        "seed": call.sampling.seed,
        "maxOutputTokens": call.max_tokens,
    }
    if call.thinking is not None:
        config["thinkingConfig"] = {"thinkingBudget": vary.choice([-1, 8192]) if call.thinking else 0}
    if call.response_schema is not None:
        config |= {"responseMimeType": "application/json", "responseJsonSchema": call.response_schema}
    return body | {"generationConfig": config}


def _add_gemini(wire: list[Body], message: Message, vary: Random) -> None:
    if message.role == "assistant":
        parts: list[Body] = [{"text": message.reasoning, "thought": True}] if message.reasoning else []
        if message.content or not (parts or message.tool_calls):
            parts += [{"text": part} for part in _slices(vary, message.content)]
        for call in message.tool_calls:
            parts.append({"functionCall": {"id": call.id, "name": call.name, "args": orjson.loads(call.arguments)}})
            parts[-1] |= vary.choice([{}, {"thoughtSignature": "skip_thought_signature_validator"}])
        wire.append({"role": "model", "parts": parts})
    elif message.role == "tool":
        response = {"error" if message.is_error else vary.choice(["output", "result"]): message.content}
        answer = {"functionResponse": {"id": message.tool_call_id, "name": message.name, "response": response}}
        last = wire[-1]
        if last["role"] == "user" and "functionResponse" in last["parts"][-1] and vary.random() < 0.7:
            last["parts"].append(answer)
        else:
            wire.append({"role": "user", "parts": [answer]})
    else:
        wire.append({"role": "user", "parts": [{"text": part} for part in _lines(vary, message.content)]})


SPELLINGS: dict[str, tuple[Callable[[Call, Random], Body], Callable[[Call], Call]]] = {
    "chat": (chat_body, without_error_flags),
    "messages": (messages_body, without_seed),
    "responses": (responses_body, as_responses_has_it),
    "gemini": (gemini_body, only_leading_system),
}
"""Per dialect: how it is spelled, and what it can carry."""
