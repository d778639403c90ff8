"""A request body as it came off the wire to a JSON object.

Invariant: nothing larger than the limit is ever held, however small the compressed body was.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import AsyncIterable, Callable
from typing import Any

import orjson
import zstandard

from harbor_env.errors import GatewayError

try:
    import brotli
except ImportError:  # only the server extra brings it
    brotli = None

MAX_ENCODINGS = 4
MAX_DIGITS = 20
"""Digits, or a sign and digits, of the integers furthest from zero that are kept."""
ZSTD_WINDOW = 8 << 20
"""The largest window an HTTP body may ask for (RFC 9659)."""
ZSTD_SLICE = 256
"""Bytes fed to zstd at once: a run-length block turns 4 bytes into 128 KiB, so one slice gives at most 8 MiB."""

_Decoder = Callable[[bytes, int], bytes]


async def read_raw(chunks: AsyncIterable[bytes], limit: int) -> bytes:
    """The body as sent, refused as soon as it is longer than `limit` bytes."""
    kept: list[bytes] = []
    size = 0
    async for chunk in chunks:
        size += len(chunk)
        if size > limit:
            raise _too_large(limit)
        kept.append(chunk)
    return b"".join(kept)


def read_body(raw: bytes, content_encoding: str, limit: int, *, exact: bool = False) -> dict[str, Any]:
    """The JSON object in `raw`. `content_encoding` is the header's value, "" where there was none.

    `limit` is in bytes and holds before and after decompression. Raises `GatewayError`: too_large,
    unsupported_encoding, or bad_request for anything truncated, corrupt, not UTF-8, not JSON or not an object. An
    integer beyond 64 bits becomes the nearest float, as it does in most harnesses; where what is sent must come back
    as it was (`exact`), it is refused.
    """
    if len(raw) > limit:
        raise _too_large(limit)
    for name in reversed(_encodings(content_encoding)):
        raw = _DECODERS[name](raw, limit)
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise GatewayError("bad_request", f"The body is not valid JSON: {error}.") from error
    if not isinstance(body, dict):
        raise GatewayError("bad_request", "The body must be a JSON object.")
    if exact:
        json.loads(raw, parse_int=_whole_number)
    return body


def _whole_number(digits: str) -> int:
    if len(digits) > MAX_DIGITS or not -(1 << 63) <= int(digits) < 1 << 64:
        raise GatewayError(
            "bad_request", f"{digits[:40]}: an integer beyond 64 bits cannot be kept, send it as a string."
        )
    return int(digits)


def _encodings(header: str) -> list[str]:
    """The encodings in the order they were applied; `identity` is none."""
    names = [name for part in header.split(",") if (name := part.strip().lower()) not in ("", "identity")]
    for name in names:
        if name not in _DECODERS:
            spoken = ", ".join(sorted(_DECODERS))
            raise GatewayError("unsupported_encoding", f"Content-Encoding {name!r} is not one of: {spoken}.")
    if len(names) > MAX_ENCODINGS:
        raise GatewayError("unsupported_encoding", f"More than {MAX_ENCODINGS} content encodings on one body.")
    return names


def _zlib(raw: bytes, limit: int, wbits: int) -> bytes:
    stream = zlib.decompressobj(wbits)
    try:
        out = stream.decompress(raw, limit + 1)
    except zlib.error as error:
        raise _corrupt(str(error)) from error
    if len(out) > limit:
        raise _too_large(limit)
    return _whole(out, stream.eof, bool(stream.unused_data))


def _gzip(raw: bytes, limit: int) -> bytes:
    return _zlib(raw, limit, 16 + zlib.MAX_WBITS)


def _deflate(raw: bytes, limit: int) -> bytes:
    """`deflate` means the zlib format, but some clients send the bare stream."""
    wrapped = len(raw) >= 2 and raw[0] & 0x0F == 8 and int.from_bytes(raw[:2], "big") % 31 == 0
    return _zlib(raw, limit, zlib.MAX_WBITS if wrapped else -zlib.MAX_WBITS)


def _zstd(raw: bytes, limit: int) -> bytes:
    stream = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW).decompressobj()
    out = bytearray()
    end = 0
    try:
        while end < len(raw) and not stream.eof:
            out += stream.decompress(raw[end : end + ZSTD_SLICE])
            end += ZSTD_SLICE
            if len(out) > limit:
                raise _too_large(limit)
    except zstandard.ZstdError as error:
        raise _corrupt(str(error)) from error
    return _whole(bytes(out), stream.eof, end < len(raw) or bool(stream.unused_data))


def _brotli(raw: bytes, limit: int) -> bytes:
    stream = brotli.Decompressor()
    out = bytearray()
    try:
        out += stream.process(raw, output_buffer_limit=limit + 1)
        while not stream.can_accept_more_data() and len(out) <= limit:
            out += stream.process(b"", output_buffer_limit=limit + 1 - len(out))
    except brotli.error as error:
        raise _corrupt(str(error)) from error
    if len(out) > limit:
        raise _too_large(limit)
    return _whole(bytes(out), stream.is_finished(), trailing=False)


def _whole(out: bytes, finished: bool, trailing: bool) -> bytes:
    if not finished:
        raise _corrupt("it ends too early")
    if trailing:
        raise _corrupt("data follows its end")
    return out


def _corrupt(reason: str) -> GatewayError:
    return GatewayError("bad_request", f"The compressed body cannot be read: {reason}.")


def _too_large(limit: int) -> GatewayError:
    return GatewayError("too_large", f"The body is larger than {limit} bytes.")


_DECODERS: dict[str, _Decoder] = {"gzip": _gzip, "x-gzip": _gzip, "deflate": _deflate, "zstd": _zstd}
if brotli is not None:
    _DECODERS["br"] = _brotli
