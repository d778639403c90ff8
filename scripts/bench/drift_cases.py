"""Turns whose text does not survive re-tokenization, sampled the way models really do.

A case is pure: the same case, turn and tokenizer give the same ids. A case has ten turns; the last is plain text.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass

from tokenizers import Tokenizer

from bench.fake_engine import end_of_message

TURNS = 10
THOUGHTS = ("look at the file list", "then check", "why do the tests fail", "config values are missing", "we first")


@dataclass(frozen=True)
class Case:
    """What the model samples. `split` is the share of tokens sampled as two shorter ones; `turns` limits it to some.

    `thinking` opens a `<think>` block; `echo` says whether the harness sends it back.
    """

    name: str
    before_call: str = ""
    separators: tuple[str, str] = (", ", ": ")
    command: str = "grep -rn 'def parse' src/ | head -20 && echo step {turn}"
    split: float = 0.0
    turns: tuple[int, ...] = tuple(range(TURNS))
    thinking: bool = True
    echo: bool = True

    def text(self, turn: int) -> str:
        if turn == TURNS - 1:
            said = "The task is done."
        else:
            arguments = {"command": self.command.format(turn=turn), "timeout": 30}
            call = {"name": "bash", "arguments": arguments}
            spelled = json.dumps(call, ensure_ascii=False, separators=self.separators)
            said = f"{self.before_call}<tool_call>\n{spelled}\n</tool_call>"
        if not self.thinking:
            return said
        chance = random.Random(f"{self.name} {turn}")
        return f"<think>\n{', '.join(chance.choice(THOUGHTS) for _ in range(30))}.\n</think>\n\n{said}"

    def sampled(self, tokenizer: Tokenizer, turn: int) -> list[int]:
        """Ids of one turn, the end of message included."""
        ids = tokenizer.encode(self.text(turn), add_special_tokens=False).ids
        if turn in self.turns and self.split:
            ids = split_tokens(tokenizer, ids, self.split, random.Random(f"split {self.name} {turn}"))
        return [*ids, end_of_message(tokenizer)]


def split_tokens(tokenizer: Tokenizer, ids: list[int], share: float, chance: random.Random) -> list[int]:
    """The same text with about `share` of its tokens spelled as two shorter tokens."""
    found: list[int] = []
    for token in ids:
        text = tokenizer.id_to_token(token) or ""
        cuts = [cut for cut in range(1, len(text)) if None not in _halves(tokenizer, text, cut)]
        if cuts and not text.startswith("<") and chance.random() < share:
            found.extend(half for half in _halves(tokenizer, text, chance.choice(cuts)) if half is not None)
        else:
            found.append(token)
    return found


def _halves(tokenizer: Tokenizer, text: str, cut: int) -> tuple[int | None, int | None]:
    return tokenizer.token_to_id(text[:cut]), tokenizer.token_to_id(text[cut:])


CASES = {
    case.name: case
    for case in (
        Case("thinking and a call"),
        Case("thinking off", thinking=False),
        Case("thinking dropped by the harness", echo=False),
        Case("text before the call", before_call="Let me look at the code.\n"),
        Case("text and a blank line before it", before_call="Let me look at the code.\n\n"),
        Case("compact call JSON", separators=(",", ":")),
        Case("non-ASCII argument", command="echo 'naïve café – 数据 {turn}'"),
        Case("one turn with odd tokens", split=0.3, turns=(4,)),
        Case("0.2 % odd tokens", split=0.002),
        Case("1 % odd tokens", split=0.01),
        Case("10 % odd tokens", split=0.1),
        Case("text, 10 % odd, compact, dropped", "Let me look.\n", (",", ":"), split=0.1, echo=False),
    )
}
