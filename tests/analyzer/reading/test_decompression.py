"""TextBlocks return the text of plain and gzip streams, and describe what is wrong with damaged ones."""

from __future__ import annotations

import gzip
import hashlib
import io
import tracemalloc
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceopt.analyzer.reading import limits
from traceopt.analyzer.reading.decompression import TextBlocks
from traceopt.analyzer.reading.limits import TooLargeError
from traceopt.analyzer.reading.trace_reader import read_trace

TEXT = b'{"traceEvents": [' + b",".join(b'{"ph": "X", "ts": %d}' % i for i in range(5000)) + b"]}"
PACKED = gzip.compress(TEXT, mtime=0)


def text_of(data: bytes, block_bytes: int = 1 << 20) -> tuple[bytes, str | None]:
    blocks = TextBlocks(io.BytesIO(data), block_bytes)
    text = b"".join(blocks)
    assert blocks.byte_count == len(text)
    return text, blocks.damage


@pytest.mark.parametrize("block_bytes", [1, 7, 1000, 1 << 16, 1 << 20])
def test_the_content_tells_plain_from_gzip(block_bytes: int) -> None:
    assert text_of(TEXT, block_bytes) == (TEXT, None)
    assert text_of(PACKED, block_bytes) == (TEXT, None)


def test_the_digest_is_that_of_the_file() -> None:
    for data in (TEXT, PACKED, PACKED + PACKED, b""):
        blocks = TextBlocks(io.BytesIO(data), 1000)
        list(blocks)
        assert blocks.digest.hexdigest() == hashlib.sha256(data).hexdigest()


def test_nothing() -> None:
    assert text_of(b"") == (b"", None)


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=4), st.integers(0, 5))
def test_a_gzip_file_of_several_members(members: list[bytes], zeros: int) -> None:
    members = [b"{", *members]  # no byte order mark
    packed = (b"\0" * zeros).join(gzip.compress(member) for member in members) + b"\0" * zeros
    assert text_of(packed) == (b"".join(members), None)


@pytest.mark.parametrize("length", [0, 10, 30_000, 60_000, 65_535])
def test_members_with_an_extra_field(length: int) -> None:
    plain = gzip.compress(TEXT, mtime=0)
    member = plain[:3] + b"\x04" + plain[4:10] + length.to_bytes(2, "little") + bytes(length) + plain[10:]
    assert text_of(member + member) == (TEXT + TEXT, None)
    assert text_of((member + member)[: len(member) + 11]) == (TEXT, "the gzip stream is truncated")


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("block_bytes", [7, 1 << 20])
def test_utf16_with_a_byte_order_mark(encoding: str, block_bytes: int) -> None:
    text = '{"name": "Straße 🚀"}'
    data = f"\ufeff{text}".encode(encoding)
    for stored in (data, gzip.compress(data)):
        assert text_of(stored, block_bytes) == (text.encode(), None)


def test_members_far_apart() -> None:
    first, second = gzip.compress(b"a"), gzip.compress(b"b")
    assert text_of(first + b"\0" * 200_000 + second) == (b"ab", None)
    # The second member begins at the last byte of a piece of input.
    assert text_of(first + b"\0" * ((1 << 16) - 1 - len(first)) + second) == (b"ab", None)


def test_a_cut_gzip_gives_its_beginning() -> None:
    for end in range(2, len(PACKED) - 1, 97):
        text, damage = text_of(PACKED[:end])
        assert TEXT.startswith(text)
        assert damage == "the gzip stream is truncated"


def test_garbage_behind_a_gzip_stream() -> None:
    assert text_of(PACKED + b"garbage") == (TEXT, "non-gzip bytes follow the compressed data")
    assert text_of(PACKED + b"\x1f") == (TEXT, "the gzip stream is truncated")


def test_corrupt_gzip() -> None:
    text, damage = text_of(PACKED[:2000] + b"\xff" * 50 + PACKED[2050:], block_bytes=1000)
    assert text[:1000] == TEXT[:1000]
    assert damage is not None
    assert damage.startswith("the gzip stream is corrupt (")
    assert text_of(PACKED[:-8] + b"\0" * 8)[1] is not None  # the checksum


def test_a_stream_that_fails_gives_what_came_before() -> None:
    """Reading a member of a damaged zip archive, or a disk, fails midway."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as writer:
        writer.writestr("trace.json", TEXT)
    damaged = archive.getvalue().replace(b'"ts": 4999', b'"ts": 9999')
    with zipfile.ZipFile(io.BytesIO(damaged)) as reader, reader.open("trace.json") as member:
        blocks = TextBlocks(member, 1000)
        text = b"".join(blocks)
    assert TEXT.startswith(text[:90_000])
    assert blocks.damage is not None
    assert "Bad CRC-32" in blocks.damage


def test_a_bomb_is_read_in_blocks() -> None:
    bomb = io.BytesIO(gzip.compress(b" " * (64 << 20)))
    tracemalloc.start()
    try:
        largest = max(len(block) for block in TextBlocks(bomb))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert largest <= 2 << 20
    assert peak < 8 << 20


def test_a_limit_ends_the_reading() -> None:
    for data in (TEXT, PACKED):
        with pytest.raises(TooLargeError, match=r"more than 1e-05 GB of text; to read it anyway, set TRACEOPT_MAX_GB"):
            list(TextBlocks(io.BytesIO(data), 1000, most_bytes=10_000))
        assert b"".join(TextBlocks(io.BytesIO(data), most_bytes=len(TEXT))) == TEXT


def test_what_unpacks_to_far_more_than_a_trace_is_refused_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "RATIO_FROM_BYTES", 1 << 20)
    blocks = TextBlocks(io.BytesIO(gzip.compress(b'{"traceEvents": [' + b" " * (64 << 20), 9)))
    with pytest.raises(TooLargeError, match="expands to more than 250 times its size, which no trace does"):
        list(blocks)
    assert blocks.byte_count < 32 << 20
    text = b"".join(b'{"ph": "X", "ts": %d}' % (i * i) for i in range(200_000))
    assert b"".join(TextBlocks(io.BytesIO(gzip.compress(text)))) == text  # as repetitive as traces are


class Growing(io.BytesIO):
    """A file that another process writes to while it is read."""

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(size)
        if self.tell() < 3_000_000:
            at = self.tell()
            self.seek(0, io.SEEK_END)
            self.write(b'{"ph": "X", "cat": "cpu_op", "name": "late", "ts": 7},' * 1000)
            self.seek(at)
        return data


def test_a_file_that_grows_while_it_is_read() -> None:
    trace = read_trace(Growing(b'{"traceEvents": ['), "growing.json")
    assert len(trace.ops) > 50_000
    assert trace.meta.damage == "the file is truncated inside the events"
