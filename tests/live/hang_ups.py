"""The trail with one reply that never comes: for a connection that breaks while a harness waits."""

from __future__ import annotations

import re
from collections.abc import Sequence

from harbor_env.gateway.engines.scripted import Reply, Script
from harbor_env.gateway.types import Message, Tool
from tests.live.plain_text import follow

FOREVER = 600.0


class Slow:
    """Follows the trail; the first reply after four notes takes ten minutes."""

    def __init__(self) -> None:
        self._slept = False

    def __call__(self, messages: Sequence[Message], tools: Sequence[Tool]) -> Reply:
        usual = follow(messages, tools)
        seen = "\n".join(message.content for message in messages if message.role in ("tool", "user"))
        if self._slept or len(re.findall(r"Add -?\d+\.", seen)) < 4:
            return usual
        self._slept = True
        return Script(usual.content, usual.reasoning, usual.tool_calls, delay=FOREVER)
