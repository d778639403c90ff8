"""The tokenizer inside a GGUF file, read without the weights and without torch.

Format: github.com/ggml-org/ggml, docs/gguf.md (little-endian, versions 2 and 3). Only the metadata is read.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from harbor_env.errors import RenderingError

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_CONTROL, _USER_DEFINED = 3, 4
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
_DIGITS = {"type": "Digits", "individual_digits": True}


def _split(pattern: str) -> list[dict[str, Any]]:
    return [{"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}, _BYTES]


_PRE_TOKENIZERS: dict[str, list[dict[str, Any]]] = {
    "smollm": [_DIGITS, {**_BYTES, "use_regex": True}],
    "gpt-2": [{**_BYTES, "use_regex": True}],
    "default": [{**_BYTES, "use_regex": True}],
    "qwen2": _split(_LLAMA3.replace("{1,3}", "")),
    "llama-bpe": _split(_LLAMA3),
    "llama3": _split(_LLAMA3),
    "lfm2": _split(_LLAMA3),
}


def read_metadata(path: Path) -> dict[str, Any]:
    """All key-value pairs of a GGUF file. Raises `RenderingError` for a file that is none."""
    with path.open("rb") as file:
        magic, version, _tensors, count = struct.unpack("<4sIQQ", file.read(24).ljust(24, b"\0"))
        if magic != b"GGUF" or version not in (2, 3):
            raise RenderingError(f"{path} is not a GGUF file of version 2 or 3")
        try:
            return {_text(file): _value(file, *struct.unpack("<I", file.read(4))) for _ in range(count)}
        except (struct.error, KeyError, UnicodeDecodeError) as error:
            raise RenderingError(f"{path} is a damaged GGUF file: {error}") from error


def tokenizer_json(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The same tokenizer as the content of a tokenizer.json. Raises `RenderingError` where it is not byte-level BPE."""
    model, kind = metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.pre", "default")
    if model != "gpt2" or kind not in _PRE_TOKENIZERS:
        raise RenderingError(
            f"this GGUF's tokenizer ({model}/{kind}) is not read here: give --tokenizer the model's Hugging Face folder"
        )
    texts, kinds = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    added = [
        {"id": i, "content": text, "special": kind == _CONTROL}
        | {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
        for i, (text, kind) in enumerate(zip(texts, kinds, strict=True))
        if kind in (_CONTROL, _USER_DEFINED)
    ]
    bpe = {
        "type": "BPE",
        "vocab": {text: i for i, text in enumerate(texts)},
        "merges": metadata["tokenizer.ggml.merges"],
    }
    bpe |= {"dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None}
    bpe |= {"fuse_unk": False, "byte_fallback": False, "ignore_merges": kind in ("llama-bpe", "llama3", "lfm2")}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": {"type": "NFC"} if kind == "qwen2" else None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": _PRE_TOKENIZERS[kind]},
        "post_processor": None,
        "decoder": _BYTES,
        "model": bpe,
    }


def _text(file: BinaryIO) -> str:
    (length,) = struct.unpack("<Q", file.read(8))
    return file.read(length).decode()


def _value(file: BinaryIO, kind: int) -> Any:
    if kind == _STRING:
        return _text(file)
    if kind == _ARRAY:
        item, length = struct.unpack("<IQ", file.read(12))
        return [_value(file, item) for _ in range(length)]
    form = "<" + _SCALARS[kind]
    return struct.unpack(form, file.read(struct.calcsize(form)))[0]
