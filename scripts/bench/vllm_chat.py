"""What vLLM's chat route does around sampling: messages to ids by the model's own template, sampled text to a message.

Written after vLLM 0.32: its message parsing, its Hermes call parser and its answers with `return_token_ids`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

Json = dict[str, Any]
CALL = re.compile(r"<tool_call>(.*?)</tool_call>|<tool_call>(.*)", re.DOTALL)


def render(hugging: Any, body: Json, **variables: Any) -> list[int]:
    """Ids of a request's prompt. `hugging` is a transformers tokenizer with a chat template."""
    text = hugging.apply_chat_template(
        [_shaped(message) for message in body["messages"]],
        tools=body.get("tools"),
        add_generation_prompt=True,
        tokenize=False,
        **variables,
    )
    found: list[int] = hugging.backend_tokenizer.encode(text, add_special_tokens=False).ids
    return found


def _shaped(message: Json) -> Json:
    """Text parts joined, reasoning under its template's name, arguments as an object."""
    content = message.get("content") or ""
    if isinstance(content, list):
        content = "\n".join(part.get("text", "") for part in content)
    shaped = {**message, "content": content}
    reasoning = shaped.pop("reasoning", None) or shaped.get("reasoning_content")
    if reasoning:
        shaped["reasoning_content"] = reasoning
    if calls := shaped.pop("tool_calls", None):
        shaped["tool_calls"] = [
            {**call, "function": {**call["function"], "arguments": _object(call["function"].get("arguments"))}}
            for call in calls
        ]
    return shaped


def _object(arguments: Any) -> Json:
    """Arguments a template can walk; what is no object is an empty one, as vLLM has it."""
    try:
        found = json.loads(arguments) if isinstance(arguments, str) else arguments
    except json.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def read_reply(text: str) -> Json:
    """The message vLLM's Hermes parser, and a parser of `<think>` blocks, make of sampled text; calls without ids.

    Text before the first call is kept to the letter, text after it is dropped; where one call cannot be read, there
    is none and all is text.
    """
    message: Json = {"role": "assistant", "content": None}
    if text.startswith("<think>"):
        reasoning, _, text = text.removeprefix("<think>").partition("</think>")
        message["reasoning"], text = reasoning.strip("\n"), text.lstrip("\n")
    before, opener, _ = text.partition("<tool_call>")
    calls = _calls(text) if opener else None
    message["content"] = text if calls is None else before or None
    return message if calls is None else {**message, "tool_calls": calls}


def _calls(text: str) -> list[Json] | None:
    try:
        read = [json.loads(closed or cut) for closed, cut in CALL.findall(text)]
        spelled = [(call["name"], json.dumps(call["arguments"], ensure_ascii=False)) for call in read]
    except (json.JSONDecodeError, KeyError, TypeError):
        return None
    if not all(isinstance(name, str) for name, _ in spelled):
        return None
    return [{"type": "function", "function": {"name": name, "arguments": arguments}} for name, arguments in spelled]


def answer(message: Json, prompt: Sequence[int], ids: Sequence[int], logprobs: Sequence[float], finish: str) -> Json:
    """A chat completion with the ids and log probabilities a capture proxy asks for. `finish`: stop or length."""
    content: list[Json] = [
        {"token": f"token_id:{token}", "logprob": value, "bytes": None, "top_logprobs": []}
        for token, value in zip(ids, logprobs, strict=True)
    ]
    choice: Json = {"index": 0, "message": message, "token_ids": list(ids), "logprobs": {"content": content}}
    choice["finish_reason"] = "tool_calls" if message.get("tool_calls") else finish
    usage = {"prompt_tokens": len(prompt), "completion_tokens": len(ids), "total_tokens": len(prompt) + len(ids)}
    head = {"id": "chatcmpl-0", "object": "chat.completion", "created": 0, "model": "fake"}
    return {**head, "choices": [choice], "prompt_token_ids": list(prompt), "usage": usage}
