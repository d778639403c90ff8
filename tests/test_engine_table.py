"""Engines by name: what exists, what an outsider adds, what a wrong name is told."""

from __future__ import annotations

import subprocess
import sys

import pytest

from harbor_env.errors import UsageError
from harbor_env.gateway.engines import ENGINES, Engine, EngineInfo, EngineRequest, EngineSpec, open_engine
from harbor_env.gateway.types import Generation


class OutsidersEngine:
    kind = "outsider"

    def __init__(self, spec: EngineSpec) -> None:
        self.spec = spec

    async def probe(self) -> EngineInfo:
        return EngineInfo("text", "m", 9)

    async def generate(self, request: EngineRequest) -> Generation:
        return Generation((), (), "stop", text="Hi.")

    async def close(self) -> None:
        return None


def open_outsiders(spec: EngineSpec) -> Engine:
    return OutsidersEngine(spec)


def fails_where_called(text: str) -> None:
    raise AssertionError(text)


def test_every_kind_opens_without_contacting_anything() -> None:
    for kind in ("vllm", "sglang", "hosted", "llamacpp"):
        engine: Engine = open_engine(kind, url="http://127.0.0.1:1", model="m")
        assert engine.kind == kind


def test_an_unknown_kind_is_told_what_exists() -> None:
    with pytest.raises(UsageError, match="There is no engine 'vlm': use vllm, sglang, llamacpp, hosted, scripted"):
        open_engine("vlm")


def test_an_outsiders_engine_is_opened_by_module_and_name() -> None:
    engine = open_engine("tests.test_engine_table:OutsidersEngine?depth=3", url="http://x", model="m", timeout=5)
    spec = getattr(engine, "spec")  # noqa: B009 the protocol has no such field
    assert (spec.options, spec.url, spec.model, spec.timeout) == ({"depth": "3"}, "http://x", "m", 5)


@pytest.mark.parametrize("spec", ["tests.test_engine_table:Nobody", "tests.no_such_module:Engine"])
def test_an_outsiders_engine_that_is_not_there_is_a_usage_error(spec: str) -> None:
    with pytest.raises(UsageError, match="cannot be loaded"):
        open_engine(spec)


def test_an_outsiders_function_opens_an_engine_too() -> None:
    assert open_engine("tests.test_engine_table:open_outsiders").kind == "outsider"


@pytest.mark.parametrize(
    "spec", ["os:system", "builtins:print", "builtins:dict", "tests.test_engine_table:fails_where_called", "os:path"]
)
def test_what_is_no_engine_is_refused_without_calling_it(spec: str) -> None:
    with pytest.raises(UsageError, match="is no engine"):
        open_engine(spec)


@pytest.mark.parametrize("kind", ["vllm", "sglang", "hosted"])
def test_an_engine_behind_http_says_that_it_needs_a_url(kind: str) -> None:
    with pytest.raises(UsageError, match="--llm-url"):
        open_engine(kind)


def test_a_url_may_be_the_argument() -> None:
    assert open_engine("vllm:http://127.0.0.1:1/v1").kind == "vllm"


def test_an_option_an_engine_does_not_have_is_refused() -> None:
    with pytest.raises(UsageError, match="no option threads; it has none"):
        open_engine("sglang?threads=2", url="http://x")


def test_the_embedded_engine_names_a_model_file_that_is_missing() -> None:
    with pytest.raises(UsageError, match=r"missing\.gguf is none"):
        open_engine("llamacpp:missing.gguf")


def test_the_table_is_read_without_importing_an_engine() -> None:
    program = (
        "import sys, harbor_env.gateway.engines\n"
        "print([name for name in ('aiohttp', 'xllamacpp', 'torch', 'transformers') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert set(ENGINES) == {"vllm", "sglang", "llamacpp", "hosted", "scripted"}
