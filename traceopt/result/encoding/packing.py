"""Data embedded in the page: gzip, then base64. reports/html/assets/page/shared.js has the decoder."""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Iterable
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt

ENCODING = "gzip+base64"
RESULT_ID = "traceopt-result"  # the script element that contains the document
LARGEST_BYTES = 1 << 27  # unpacked: a hundred times a large document, but not enough to exhaust memory

_COLUMN_LEVEL = 6  # level 9 takes three times as long and saves 2 %
_GZIP_WINDOW = 31  # zlib's code for a gzip header without a time: same data, same text


def pack(data: bytes, level: int = 9) -> str:
    """Bytes as text without a character that means something in HTML or JSON, so it can be anywhere in a page."""
    packer = zlib.compressobj(level, zlib.DEFLATED, _GZIP_WINDOW)
    return base64.b64encode(packer.compress(data) + packer.flush()).decode("ascii")


def pack_columns(columns: Iterable[npt.NDArray[np.int64]]) -> str:
    """Columns of numbers from 0 up, packed. Each is one byte with the number of bytes per value, then the lowest byte
    of every value, then the next higher byte of every value, and so on, which compresses well.
    """
    return pack(b"".join(map(_planes, columns)), _COLUMN_LEVEL)


def _planes(values: npt.NDArray[np.int64]) -> bytes:
    width = (int(values.max(initial=0)).bit_length() + 7) // 8
    planes = np.ascontiguousarray(values, "<u8").view(np.uint8).reshape(-1, 8)[:, :width]
    data: bytes = planes.T.tobytes()
    return bytes([width]) + data


def unpack(text: str) -> bytes:
    """Reverses `pack`. Raises ValueError if the text is damaged, or holds more than a report ever does."""
    unpacker = zlib.decompressobj(_GZIP_WINDOW)
    try:
        data = unpacker.decompress(base64.b64decode(text, validate=True), LARGEST_BYTES)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if unpacker.unconsumed_tail:
        raise ValueError(f"it unpacks to more than {LARGEST_BYTES:,} bytes")
    if not unpacker.eof:
        raise ValueError("its end is missing")
    return data


class _Envelope(msgspec.Struct):
    """How the result document is embedded in a page."""

    encoding: Literal["gzip+base64"]  # ENCODING
    document: str


def embedded_result(page: str) -> bytes:
    """Extracts the result document (JSON) from a rendered report. Raises ValueError if the page holds none."""
    found = re.search(rf'<script type="application/json" id="{RESULT_ID}">(.*?)</script>', page, re.DOTALL)
    if found is None:
        raise ValueError("this file is not a traceopt report: it embeds no result document")
    try:
        return unpack(msgspec.json.decode(found[1], type=_Envelope).document)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the result document in this report is damaged: {error}") from error
