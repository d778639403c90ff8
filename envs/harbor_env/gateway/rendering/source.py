"""What a model's files say about its tokenizer: from a Hugging Face folder, a hub id, or a GGUF file.

Invariant: only tokenizer files are read, no model code is run and no model class is built.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harbor_env.errors import RenderingError
from harbor_env.gateway.rendering.gguf import read_metadata, tokenizer_json

_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json", "config.json")
_SPECIAL = ("bos_token", "eos_token", "pad_token", "unk_token")


@dataclass(frozen=True, slots=True)
class Source:
    """`data`: the content of tokenizer.json. `special`: the names templates print. `eos`: texts of the tokens that end
    a turn by the model's own configuration. `name`: where it came from, for choosing a family by model name."""

    data: Mapping[str, Any]
    template: str
    special: Mapping[str, str]
    eos: tuple[str, ...]
    name: str


def read_source(tokenizer: str | Path) -> Source:
    """Raises `RenderingError` with what to give instead."""
    path = Path(tokenizer).expanduser()
    if path.suffix == ".gguf":
        if not path.is_file():
            raise RenderingError(f"no file {path}")
        return _from_gguf(path)
    if path.is_dir():
        return _from_folder(path, str(tokenizer))
    return _from_folder(_download(str(tokenizer)), str(tokenizer))


def _from_gguf(path: Path) -> Source:
    metadata = read_metadata(path)
    data = tokenizer_json(metadata)
    texts = metadata["tokenizer.ggml.tokens"]
    ids = {name: metadata.get(f"tokenizer.ggml.{name[:3]}_token_id") for name in ("bos_token", "eos_token")}
    more = (metadata.get(f"tokenizer.ggml.{name}_token_id") for name in ("eot", "eom"))
    special = {name: texts[i] for name, i in ids.items() if i is not None}
    ends = (special.get("eos_token"), *(texts[i] for i in more if i is not None))
    template = metadata.get("tokenizer.chat_template", "")
    return Source(data, template, special, tuple(filter(None, ends)), metadata.get("general.name", path.stem))


def _from_folder(folder: Path, name: str) -> Source:
    config = _json(folder / "tokenizer_config.json")
    data = _json(folder / "tokenizer.json")
    if not data:
        raise RenderingError(f"{name} has no tokenizer.json: save it with transformers' fast tokenizer first")
    data = _with_added(data, config.get("added_tokens_decoder", {}))
    special = {key: text for key in _SPECIAL if (text := _token_text(config.get(key)))}
    return Source(data, _template(folder, config), special, _ends(folder, data, special), name)


def _download(model: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(model, allow_patterns=list(_FILES)))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        why = " ".join(str(error).split())
        raise RenderingError(
            f"no tokenizer at {model!r}: no folder or .gguf file here has this path, and the hub gave none "
            f"({type(error).__name__}: {why})"
        ) from error


def _with_added(data: dict[str, Any], decoder: Mapping[str, Any]) -> dict[str, Any]:
    """tokenizer.json with the tokens that only tokenizer_config.json adds."""
    known = {token["content"] for token in data.get("added_tokens", [])}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    extra = [
        {"id": int(number), **flags, **{key: token[key] for key in (*flags, "content") if key in token}}
        for number, token in decoder.items()
        if token["content"] not in known
    ]
    return {**data, "added_tokens": sorted([*data.get("added_tokens", []), *extra], key=lambda token: token["id"])}


def _template(folder: Path, config: Mapping[str, Any]) -> str:
    own = folder / "chat_template.jinja"
    if own.is_file():
        return own.read_text()
    template = config.get("chat_template", "")
    if isinstance(template, list):
        named = {entry["name"]: entry["template"] for entry in template}
        template = named.get("tool_use", named.get("default", ""))
    return template if isinstance(template, str) else ""


def _ends(folder: Path, data: Mapping[str, Any], special: Mapping[str, str]) -> tuple[str, ...]:
    numbers = _json(folder / "generation_config.json").get("eos_token_id", [])
    wanted = [numbers] if isinstance(numbers, int) else numbers
    texts = {token["id"]: token["content"] for token in data.get("added_tokens", [])}
    ends = (special.get("eos_token", ""), *(texts.get(number, "") for number in wanted))
    return tuple(dict.fromkeys(filter(None, ends)))


def _token_text(token: Any) -> str:
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else ""


def _json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        loaded = json.loads(path.read_text())
    except ValueError as error:
        raise RenderingError(f"{path} is not JSON: {error}") from error
    return loaded if isinstance(loaded, dict) else {}
