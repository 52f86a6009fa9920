"""Bodies within a limit, whatever they are made of."""

import gzip
import zlib

import pytest
from starlette.exceptions import HTTPException

from jetway.runtime.errors import InvalidArgument, Unimplemented
from jetway.runtime.gateway.kserve.compression import chosen, compressed, decompressed

TEXT = b"text " * 100


def test_bodies_come_back_up_to_the_limit() -> None:
    assert decompressed(TEXT, None, 1) == TEXT  # it has been read within the limit
    assert decompressed(gzip.compress(TEXT), "gzip", len(TEXT)) == TEXT
    assert decompressed(zlib.compress(TEXT), "deflate", len(TEXT)) == TEXT
    assert gzip.decompress(compressed(TEXT, "gzip")) == zlib.decompress(compressed(TEXT, "deflate")) == TEXT


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (gzip.compress(TEXT) + b"more", "not one whole gzip stream"),
        (gzip.compress(TEXT)[:-1], "not one whole gzip stream"),
        (TEXT, "not what its content-encoding gzip says"),
        (b"", "not one whole gzip stream"),
    ],
)
def test_what_is_no_stream(body: bytes, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        decompressed(body, "gzip", len(TEXT))


def test_what_is_too_large() -> None:
    with pytest.raises(HTTPException) as caught:
        decompressed(gzip.compress(TEXT + b"!"), "gzip", len(TEXT))
    assert caught.value.status_code == 413
    assert caught.value.detail == "the body may have at most 500 bytes; decompressed it has more"


def test_other_encodings() -> None:
    with pytest.raises(Unimplemented, match="Unsupported compression type"):
        decompressed(TEXT, "br", 1000)


@pytest.mark.parametrize(
    ("accept", "encoding"),
    [
        (None, None), ("", None), ("br", None), ("gzip", "gzip"), ("br, Deflate;q=0.5, gzip", "deflate"),
        ("gzip; q=0, deflate", "deflate"), ("identity", None),
    ],
)  # fmt: skip
def test_the_first_encoding_that_is_known(accept: str | None, encoding: str | None) -> None:
    assert chosen(accept) == encoding
