"""Law 7 where requests are read: what would change a vendor's sample and does not change ours is a finding.

Each file in `data/unheeded` has, for one dialect, fields that ask for something and the findings they give, fields that
ask for nothing, and fields without which the conversation would be another one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from harbor_env.errors import GatewayError
from harbor_env.gateway.dialects import DIALECTS
from harbor_env.gateway.types import Call, Message
from tests.play import player, said, user

BODIES: dict[str, dict[str, Any]] = {
    "chat": {"messages": [{"role": "user", "content": "go"}]},
    "responses": {"input": "go"},
    "messages": {"messages": [{"role": "user", "content": "go"}]},
    "gemini": {"contents": [{"parts": [{"text": "go"}]}]},
}
CASES = {
    path.stem: orjson.loads(path.read_bytes()) for path in (Path(__file__).parent / "data" / "unheeded").glob("*.json")
}


def cases(kind: str) -> list[Any]:
    return [
        pytest.param(name, case, id=f"{name}-{orjson.dumps(case).decode()[:60]}")
        for name in sorted(CASES)
        for case in CASES[name][kind]
    ]


def decode(name: str, fields: dict[str, Any]) -> Call:
    return DIALECTS[name].decode(BODIES[name] | fields, {"model": "m"})


def test_every_dialect_says_what_it_does_not_heed() -> None:
    assert set(CASES) == set(DIALECTS)


@pytest.mark.parametrize(("name", "case"), cases("asked"))
def test_what_is_asked_for_and_not_given_is_a_finding(name: str, case: Any) -> None:
    fields, findings = case
    assert [[finding.code, finding.detail] for finding in decode(name, fields).findings] == findings


@pytest.mark.parametrize(("name", "fields"), cases("neutral"))
def test_a_field_that_asks_for_nothing_is_none(name: str, fields: Any) -> None:
    assert decode(name, fields).findings == ()


@pytest.mark.parametrize(("name", "case"), cases("refused"))
def test_what_the_conversation_depends_on_is_refused(name: str, case: Any) -> None:
    fields, sentence = case
    with pytest.raises(GatewayError) as caught:
        decode(name, fields)
    assert (caught.value.status, caught.value.message) == (400, sentence)


def test_a_session_says_it_once() -> None:
    play = player()
    findings = decode("chat", {"verbosity": "low", "parallel_tool_calls": False}).findings
    history: list[Message] = [user("go")]
    history.append(play.ask(*history, reply=said("one"), findings=findings))
    play.ask(*history, user("on"), reply=said("two"), findings=findings)
    assert play.session.findings == {"field_ignored": 1, "parallel_calls_not_prevented": 1}
