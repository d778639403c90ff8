from pathlib import Path

import numpy as np
import orjson
import pytest
from safetensors import safe_open

from harbor_env.errors import UsageError
from harbor_env.gateway.export import FORMATS, Format, SessionExport, find_format
from harbor_env.gateway.export.parquet import write_parquet
from harbor_env.gateway.export.rows import rows
from harbor_env.gateway.types import Message, ToolCall, Turn
from tests.turns import make_turn

CONTEXTS = {
    "c0": {"tools": [{"name": "bash", "description": "Run.", "parameters": {"type": "object"}}], "template_kwargs": {}}
}
upper_case = Format("text/plain", lambda session: session.session_id.upper().encode())


def conversation() -> list[Turn]:
    call = ToolCall("call_1", "bash", "{}")
    return [
        make_turn("t1", delta=(Message("user", "one"),), reply=Message("assistant", "", tool_calls=(call,))),
        make_turn("t2", "t1", delta=(Message("tool", "2", tool_call_id="call_1"),), reply=Message("assistant", "two")),
        make_turn(
            "t3", "t1", delta=(Message("tool", "3", tool_call_id="call_1"),), reply=Message("assistant", "three")
        ),
        make_turn("t4", role="auxiliary", delta=(Message("user", "title?"),), reply=Message("assistant", "A title")),
        make_turn("t5", delta=(Message("user", "silence"),), reply=Message("assistant", "")),
    ]


def lines(name: str, session: SessionExport) -> list[dict[str, object]]:
    return [orjson.loads(line) for line in FORMATS[name].encode(session).splitlines()]


def test_messages_give_one_conversation_per_leaf() -> None:
    found = lines("messages", SessionExport("s", conversation(), CONTEXTS))
    assert [each["turns"] for each in found] == [["t1", "t2"], ["t1", "t3"], ["t4"], ["t5"]]
    assert [message["role"] for message in found[0]["messages"]] == ["user", "assistant", "tool", "assistant"]
    assert found[1]["messages"][-1] == {"role": "assistant", "content": "three"}
    assert found[0]["tools"][0]["function"]["name"] == "bash"


def test_sft_makes_each_trained_reply_one_example_with_the_conversation_so_far() -> None:
    found = lines("sft", SessionExport("s", conversation(), CONTEXTS, {"reward": 1.0}))
    assert [each["turn"] for each in found] == ["t1", "t2", "t3"]
    assert found[2]["completion"] == [{"role": "assistant", "content": "three"}]
    assert [message["content"] for message in found[2]["prompt"]] == ["one", "", "3"]
    assert orjson.loads(found[0]["tools"])[0]["function"]["name"] == "bash"
    assert found[0]["metadata"] == {"reward": 1.0}


def test_safetensors_hold_the_rows_end_to_end(tmp_path: Path) -> None:
    session = SessionExport("s", conversation(), metadata={"task": "sum"})
    file = tmp_path / "rows.safetensors"
    file.write_bytes(FORMATS["safetensors"].encode(session))
    wanted = rows(session)
    with safe_open(file, "np") as found:
        offsets = found.get_tensor("offsets")
        assert offsets.tolist() == np.cumsum([0, *(len(row.input_ids) for row in wanted)]).tolist()
        for index, row in enumerate(wanted):
            part = slice(offsets[index], offsets[index + 1])
            assert found.get_tensor("input_ids")[part].tolist() == list(row.input_ids)
            assert found.get_tensor("loss_mask")[part].tolist() == list(row.loss_mask)
            assert found.get_tensor("logprobs")[part].tolist() == list(row.logprobs)
        assert orjson.loads(found.metadata()["metadata"]) == {"task": "sum"}
        assert [row["leaf"] for row in orjson.loads(found.metadata()["rows"])] == ["t2", "t3", "t4", "t5"]


def test_parquet_holds_the_rows_of_all_sessions(tmp_path: Path) -> None:
    from datasets import load_dataset

    exports = [SessionExport("s1", conversation(), metadata={"task": "a"}), SessionExport("s2", [make_turn("t1")])]
    file = tmp_path / "rows.parquet"
    assert write_parquet(exports, file) == 5
    found = load_dataset("parquet", data_files=str(file), split="train", cache_dir=str(tmp_path / "cache"))
    assert found["session_id"] == ["s1"] * 4 + ["s2"]
    wanted = [row for each in exports for row in rows(each)]
    assert list(found["input_ids"]) == [list(row.input_ids) for row in wanted]
    assert list(found["logprobs"]) == [list(row.logprobs) for row in wanted]
    assert orjson.loads(found[0]["metadata"]) == {"task": "a"}


def test_parquet_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no row"):
        write_parquet([SessionExport("s", [])], tmp_path / "rows.parquet")


@pytest.mark.parametrize("name", FORMATS)
def test_a_session_without_turns_exports_in_every_format(name: str) -> None:
    assert isinstance(FORMATS[name].encode(SessionExport("s", [])), bytes)


def test_a_format_from_outside_is_found_by_module_and_name() -> None:
    assert find_format("tests.test_export_formats:upper_case").encode(SessionExport("s", [])) == b"S"


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("csv", "Use one of trace, rows, safetensors, messages, sft, or module:Name"),
        ("no_such_module:Format", "cannot be loaded"),
        ("tests.test_export_formats:nothing", "cannot be loaded"),
        ("tests.test_export_formats:CONTEXTS", "is not a Format"),
    ],
)
def test_an_unknown_format_says_what_to_type(name: str, answer: str) -> None:
    with pytest.raises(UsageError, match=answer):
        find_format(name)
