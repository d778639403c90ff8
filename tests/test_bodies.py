"""Bodies come compressed, cut, oversized and not as JSON; each gets its own answer and bounded memory."""

from __future__ import annotations

import tracemalloc
import zlib
from collections.abc import Callable

import brotli
import orjson
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from harbor_env.errors import GatewayError
from harbor_env.gateway.bodies import read_body

LIMIT = 1 << 20
BODY = {"model": "m", "messages": [{"role": "user", "content": "žluťoučký kůň 🐎 " * 200}]}
PLAIN = orjson.dumps(BODY)


def gzip(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=31)
    return packer.compress(data) + packer.flush()


def bare_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


def zstd_of_unknown_size(data: bytes) -> bytes:
    packer = zstandard.ZstdCompressor().compressobj()
    return packer.compress(data) + packer.flush()


CODECS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gzip": ("gzip", gzip),
    "x-gzip": ("x-gzip", gzip),
    "deflate": ("deflate", zlib.compress),
    "bare deflate": ("deflate", bare_deflate),
    "zstd": ("zstd", zstandard.compress),
    "zstd of unknown size": ("zstd", zstd_of_unknown_size),
    "br": ("br", brotli.compress),
}
each_codec = pytest.mark.parametrize(("header", "pack"), CODECS.values(), ids=CODECS)


def refused(raw: bytes, encoding: str = "", limit: int = LIMIT) -> GatewayError:
    with pytest.raises(GatewayError) as caught:
        read_body(raw, encoding, limit)
    return caught.value


@each_codec
def test_a_compressed_body_equals_the_plain_one(header: str, pack: Callable[[bytes], bytes]) -> None:
    assert read_body(pack(PLAIN), header, LIMIT) == read_body(PLAIN, "", LIMIT) == BODY


@pytest.mark.parametrize("header", ["", "identity", " Identity ,", "IDENTITY, identity"])
def test_identity_is_no_encoding(header: str) -> None:
    assert read_body(PLAIN, header, LIMIT) == BODY


def test_encodings_are_undone_in_reverse_and_in_any_case() -> None:
    assert read_body(zstandard.compress(gzip(PLAIN)), " GZip , identity, ZSTD", LIMIT) == BODY


@pytest.mark.parametrize("header", ["lzma", "gzip, lzma", "compress", "gzip;q=1", ", ".join(["gzip"] * 5)])
def test_an_encoding_not_spoken_here_is_415(header: str) -> None:
    assert refused(PLAIN, header).status == 415


@each_codec
def test_a_truncated_body_is_400(header: str, pack: Callable[[bytes], bytes]) -> None:
    packed = pack(PLAIN)
    for length in {0, 1, len(packed) // 2, len(packed) - 1}:
        assert refused(packed[:length], header).status == 400


@each_codec
def test_a_body_with_more_after_its_end_is_400(header: str, pack: Callable[[bytes], bytes]) -> None:
    assert refused(pack(PLAIN) + b"more", header).status == 400
    assert refused(pack(PLAIN) + b"m" * 1000, header).status == 400


@each_codec
def test_a_plain_body_under_a_compressed_header_is_400(header: str, pack: Callable[[bytes], bytes]) -> None:
    assert refused(PLAIN, header).status == 400


@each_codec
def test_a_bomb_stops_at_the_limit_with_bounded_memory(header: str, pack: Callable[[bytes], bytes]) -> None:
    bomb = pack(b"\0" * (64 << 20))
    tracemalloc.start()
    try:
        assert refused(bomb, header).status == 413
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 32 << 20


@each_codec
def test_the_limit_itself_is_allowed(header: str, pack: Callable[[bytes], bytes]) -> None:
    assert read_body(pack(PLAIN), header, len(PLAIN)) == BODY
    assert refused(pack(PLAIN), header, len(PLAIN) - 1).status == 413


def test_a_plain_body_over_the_limit_is_413() -> None:
    assert read_body(PLAIN, "", len(PLAIN)) == BODY
    assert refused(PLAIN, "", len(PLAIN) - 1).status == 413


def test_a_zstd_window_larger_than_http_allows_is_400() -> None:
    packer = zstandard.ZstdCompressor(
        compression_params=zstandard.ZstdCompressionParameters(window_log=27, enable_ldm=True)
    ).compressobj()
    assert refused(packer.compress(PLAIN) + packer.flush(), "zstd").status == 400


NOT_AN_OBJECT = {
    "empty": b"",
    "cut": b'{"a": 1',
    "latin-1": b'{"a": "caf\xe9"}',
    "utf-16": '{"a": 1}'.encode("utf-16"),
    "nan": b'{"a": NaN}',
    "lone surrogate": b'{"a": "\\ud800"}',
    "too deep": b'{"a":' * 5000 + b"1" + b"}" * 5000,
    "list": b"[]",
    "string": b'"x"',
    "null": b"null",
}


@pytest.mark.parametrize("raw", NOT_AN_OBJECT.values(), ids=NOT_AN_OBJECT)
def test_what_is_not_a_json_object_in_utf8_is_400(raw: bytes) -> None:
    error = refused(raw)
    assert error.status == 400
    assert error.message.endswith(".")


@pytest.mark.parametrize("number", [2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, -(2**63), 0, -1])
def test_an_integer_of_64_bits_is_kept_exactly(number: int) -> None:
    raw = b'{"n": [{"n": %d}]}' % number
    assert read_body(raw, "", LIMIT) == read_body(raw, "", LIMIT, exact=True) == {"n": [{"n": number}]}


@pytest.mark.parametrize("number", [2**64, -(2**63) - 1, 10**20, 10**300])
def test_where_numbers_must_come_back_as_they_were_a_longer_integer_is_400(number: int) -> None:
    raw = gzip(b'{"n": [{"n": %d}]}' % number)
    with pytest.raises(GatewayError, match="beyond 64 bits") as caught:
        read_body(raw, "gzip", LIMIT, exact=True)
    assert caught.value.kind == "bad_request"
    assert len(caught.value.message) < 200


def test_the_deepest_body_is_read_exactly_too() -> None:
    raw = b'{"a":' * 1000 + b"1.5e3" + b"}" * 1000
    assert read_body(raw, "", LIMIT, exact=True) == read_body(raw, "", LIMIT)


@given(raw=st.binary(max_size=200), header=st.sampled_from(["", "gzip", "deflate", "zstd", "br", "br, gzip"]))
def test_any_bytes_give_an_object_or_a_gateway_error(raw: bytes, header: str) -> None:
    try:
        status = 200 if isinstance(read_body(raw, header, 1000), dict) else 500
    except GatewayError as error:
        status = error.status
    assert status in (200, 400, 413)
