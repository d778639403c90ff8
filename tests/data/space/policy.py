"""A scripted policy of a Space's test: write the answer, then say so."""

from harbor_env.gateway.types import Message, ToolCall


def writes(messages, tools):
    if messages[-1].role == "tool":
        return Message("assistant", "Done.")
    return Message("assistant", tool_calls=(ToolCall("", "bash", '{"command": "echo 42 > /app/answer.txt"}'),))
