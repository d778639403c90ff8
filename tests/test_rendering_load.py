"""Which renderer a model gets, and what is read from its files."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from harbor_env.errors import RenderingError, UsageError
from harbor_env.gateway.rendering import Renderer
from harbor_env.gateway.rendering.families import choose
from harbor_env.gateway.rendering.fast_bpe import SAMPLE
from harbor_env.gateway.rendering.load import load_renderer
from harbor_env.gateway.rendering.source import Source, read_source
from harbor_env.gateway.rendering.template import TemplateRenderer
from harbor_env.gateway.rendering.tokens import Tokens
from tests.rendering_models import carrier, chosen, qwen3, qwen3_template, smollm2, user
from tests.tokenizers import smollm2_gguf, trl_templates


def test_a_model_name_the_library_knows_chooses_its_family() -> None:
    template = (trl_templates() / "qwen3_training.jinja").read_text()
    source = Source({}, template, {}, ("<|im_end|>",), "")
    known = choose(carrier(template, "Qwen/Qwen3-4B"), source, template, None, {})
    unknown = choose(carrier(template, "mine/Qwen3-4B"), source, template, None, {})
    assert (known.name, unknown.name) == ("qwen3", "template")


@pytest.mark.parametrize(
    ("template", "family"),
    [
        ("glm4moe", "template"),
        ("nemotron_3_nano", "nemotron-3"),
        ("nemotron_3_ultra", "nemotron-3-ultra"),
        ("qwen3_5_think", "qwen3.5"),
        ("qwen3_8", "qwen3.8"),
        ("qwen3", "qwen3"),
        ("qwen3_training", "template"),
        ("lfm2_2_5", "template"),
        ("qwen2_5", "template"),
    ],
)
def test_a_copy_of_a_known_model_is_known_by_what_its_template_prints(template: str, family: str) -> None:
    assert chosen(template).name == family
    assert chosen(template).tito == "exact"


def test_a_renderer_can_be_named_by_table_and_by_module() -> None:
    assert qwen3_template().name == "template"
    assert load_renderer(smollm2_gguf(), renderer="tests.test_rendering_load:own_renderer").name == "own"
    with pytest.raises(UsageError, match="there are template, qwen3"):
        load_renderer(smollm2_gguf(), renderer="qwen-3")
    with pytest.raises(UsageError, match="nowhere"):
        load_renderer(smollm2_gguf(), renderer="nowhere:Name")
    with pytest.raises(RenderingError, match=r"does not fit the family glm-4\.5"):
        load_renderer(smollm2_gguf(), renderer="glm-4.5")


def own_renderer(tokens: Tokens, source: Source, template: str, variables: Mapping[str, Any]) -> Renderer:
    renderer = TemplateRenderer(tokens, _compiled(source, template), variables, source.eos)
    renderer.name = "own"
    return renderer


def _compiled(source: Source, template: str) -> Any:
    from harbor_env.gateway.rendering.jinja import Template

    return Template(template, source.special)


def test_variables_a_family_does_not_have_are_refused_by_name() -> None:
    with pytest.raises(UsageError, match="qwen3 has no template variable thinking; it has enable_thinking"):
        qwen3().bind({"thinking": True})


def _tokens() -> Tokens:
    source = read_source(smollm2_gguf())
    return Tokens(source.data, template=source.template)


def test_a_gguf_gives_the_ids_llama_cpp_gives() -> None:
    xllamacpp = pytest.importorskip("xllamacpp")
    params = xllamacpp.CommonParams()
    params.model.path, params.n_ctx, params.n_parallel = str(smollm2_gguf()), 256, 1
    server, tokens = xllamacpp.Server(params), _tokens()
    for text in (SAMPLE, "<|im_start|>user\nhi 12345<|im_end|>\n", "def f():\n    return [1, 22, 333]\n\n\n"):
        body = json.dumps({"content": text, "add_special": False, "parse_special": True}).encode()
        request = Request(f"{server.listening_address}/tokenize", body, {"Content-Type": "application/json"})
        with urlopen(request, timeout=30) as answer:
            assert tokens.encode(text) == json.load(answer)["tokens"]


def test_a_gguf_brings_its_template_and_stop_token() -> None:
    renderer = smollm2()
    assert [renderer.decode([stop]) for stop in renderer.stop_ids] == ["<|im_end|>"]
    assert "named SmolLM" in renderer.decode(renderer.render([user("hi")], ()))


def test_files_that_are_no_tokenizer_are_refused_with_what_to_give(tmp_path: Path) -> None:
    with pytest.raises(RenderingError, match="no file"):
        load_renderer(tmp_path / "missing.gguf")
    with pytest.raises(RenderingError, match=r"has no tokenizer\.json"):
        load_renderer(tmp_path)
    (tmp_path / "text.gguf").write_text("no GGUF")
    with pytest.raises(RenderingError, match="not a GGUF file"):
        load_renderer(tmp_path / "text.gguf")
    (tmp_path / "cut.gguf").write_bytes(struct.pack("<4sIQQ", b"GGUF", 3, 0, 5) + b"\x01")
    with pytest.raises(RenderingError, match="damaged"):
        load_renderer(tmp_path / "cut.gguf")
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(RenderingError, match="is not JSON"):
        load_renderer(tmp_path)


def test_a_gguf_with_another_kind_of_tokenizer_says_what_to_give(tmp_path: Path) -> None:
    (tmp_path / "spm.gguf").write_bytes(_gguf({"tokenizer.ggml.model": "llama"}))
    with pytest.raises(RenderingError, match="Hugging Face folder"):
        load_renderer(tmp_path / "spm.gguf")


def _gguf(pairs: Mapping[str, str]) -> bytes:
    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value)) + value.encode()

    body = b"".join(text(key) + struct.pack("<I", 8) + text(value) for key, value in pairs.items())
    return struct.pack("<4sIQQ", b"GGUF", 3, 0, len(pairs)) + body


def test_a_folder_without_a_template_wants_one(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps(read_source(smollm2_gguf()).data))
    with pytest.raises(RenderingError, match="has no chat template"):
        load_renderer(tmp_path)
    with pytest.raises(RenderingError, match="no chat template file"):
        load_renderer(tmp_path, chat_template="missing.jinja")
    assert load_renderer(tmp_path, chat_template=_CHATML).tito == "exact"


_CHATML = """{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def test_end_tokens_and_templates_are_read_where_models_keep_them(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps(read_source(smollm2_gguf()).data))
    (tmp_path / "chat_template.jinja").write_text(_CHATML)
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 0]}))
    config = {"eos_token": {"content": "<|im_end|>"}, "chat_template": "not this one"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    source = read_source(tmp_path)
    assert source.eos == ("<|im_end|>", "<|endoftext|>")
    assert source.template == _CHATML
    renderer = load_renderer(tmp_path)
    assert list(renderer.stop_ids) == [2, 0]
