"""The call grammars a template may use, in the order they are tried. Adding one is a file and a line here."""

from __future__ import annotations

from collections.abc import Callable

from harbor_env.gateway.rendering.grammars import Grammar
from harbor_env.gateway.rendering.grammars.glm_xml import glm_xml
from harbor_env.gateway.rendering.grammars.hermes import Hermes
from harbor_env.gateway.rendering.grammars.pythonic import Pythonic
from harbor_env.gateway.rendering.grammars.qwen_xml import QwenXml


def known_grammars(marker: Callable[[str], str]) -> list[Grammar]:
    """Each grammar once; `marker` says how a tag looks in the text that is read."""
    tag, end = marker("<tool_call>"), marker("</tool_call>")
    return [
        Hermes(tag, end),
        QwenXml(tag, end),
        glm_xml(marker),
        Pythonic(marker("<|tool_call_start|>"), marker("<|tool_call_end|>")),
    ]
