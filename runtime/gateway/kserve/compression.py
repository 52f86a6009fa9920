"""Bodies as Content-Encoding and Accept-Encoding have them: gzip and deflate, as Triton, within a limit."""

import gzip
import zlib

from starlette.exceptions import HTTPException

from jetway.runtime.errors import InvalidArgument, Unimplemented

_WBITS = {"gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}


def decompressed(body: bytes, encoding: str | None, limit_bytes: int) -> bytes:
    """No more than one byte beyond `limit_bytes` is ever made of it, and then HTTPException raised, as for a body that comes
    as large. Raises InvalidArgument and Unimplemented too.
    """
    if encoding is None or encoding == "identity":
        return body
    if encoding not in _WBITS:
        raise Unimplemented("Unsupported compression type")
    stream = zlib.decompressobj(_WBITS[encoding])
    try:
        content = stream.decompress(body, limit_bytes + 1)
    except zlib.error as error:
        raise InvalidArgument(f"the body is not what its content-encoding {encoding} says: {error}") from error
    if len(content) > limit_bytes:
        raise HTTPException(413, f"the body may have at most {limit_bytes} bytes; decompressed it has more")
    if not stream.eof or stream.unused_data:
        raise InvalidArgument(f"the body is not one whole {encoding} stream")
    return content


def chosen(accept: str | None) -> str | None:
    """The first encoding of an Accept-Encoding header that is spoken here, of those whose weight is not 0."""
    for each in (accept or "").split(","):
        name, _, weight = each.partition(";")
        if name.strip().lower() in _WBITS and weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000"):
            return name.strip().lower()
    return None


def compressed(body: bytes, encoding: str) -> bytes:
    return gzip.compress(body) if encoding == "gzip" else zlib.compress(body)
