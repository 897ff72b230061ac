"""Reads one trace file into tables: decompress, split, decode, group by category, append to growing columns.

Memory is bounded by the tables, not by the file: each block of text and its events are freed before the next is read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import IO, Any, TypeVar

import numpy as np

from traceopt.analyzer.clocks.possible_times import with_possible_times
from traceopt.analyzer.reading.decompression import TextBlocks
from traceopt.analyzer.reading.event_stream import EventStream, NotATraceError
from traceopt.analyzer.reading.finishing.python_events import with_call_lines, without_addresses
from traceopt.analyzer.reading.limits import TooLargeError, most_text_bytes
from traceopt.analyzer.reading.other_formats import told_apart
from traceopt.analyzer.reading.perfetto.perfetto_stream import PerfettoStream
from traceopt.analyzer.reading.perfetto.wire import is_perfetto
from traceopt.analyzer.reading.table_builder import TableBuilder
from traceopt.analyzer.reading.two_processes import NotShareableError, read_shared, shareable
from traceopt.analyzer.tables.json_values import whole
from traceopt.analyzer.tables.trace import Trace, TraceMeta
from traceopt.analyzer.vocabulary.event_categories import of_pytorch, other_format
from traceopt.errors import InputError

_LATEST_NS = 2**62  # since 1970: until 2116
_MOST_RANKS = 10_000_000
_REUSED_BYTES = 8 << 20  # far more than a chunk with its events and arrays; glibc adapts up to 32 MiB
_NAME_LENGTH = 16_384  # the longest C++ template names have a few thousand characters

ReportBytes = Callable[[int], None]
Stream = TypeVar("Stream", EventStream, PerfettoStream)


def read_trace(
    stream: IO[bytes],
    path: str,
    *,
    rank_hint: int | None = None,
    world_size_hint: int | None = None,
    progress: ReportBytes | None = None,
) -> Trace:
    """Reads the trace in `stream`, plain or gzip. `progress` is called with the number of uncompressed bytes read so
    far.

    Raises InputError if it is not a PyTorch trace.
    """
    _reuse_freed_memory()
    blocks = TextBlocks(stream, most_bytes=most_text_bytes())
    try:
        events, builder = _read(blocks, progress or (lambda _: None))
    except TooLargeError as error:
        raise InputError(f"{path}: {error}") from None
    except NotATraceError as error:
        if blocks.damage and not blocks.byte_count:
            raise InputError(f"{path}: {blocks.damage}") from None
        raise InputError(f"{path} {told_apart(path, error.start)}") from None
    if not builder.slice_count:
        why = f" ({events.damage})" if events.damage else ""
        raise InputError(f"{path} is not a PyTorch profiler trace: it has no complete events{why}.")
    if isinstance(events, PerfettoStream) and not of_pytorch(builder.categories):
        raise InputError(f"{path} is a Perfetto trace of another program, not of torch.profiler.")
    if (writer := other_format(builder.categories)) is not None:
        raise InputError(
            f"{path} was written by {writer}, not by torch.profiler. Record it with torch.profiler.profile."
        )
    header = events.header
    rank, world_size = _rank(header)
    tables = builder.finish()
    names = [name if len(name) <= _NAME_LENGTH else name[:_NAME_LENGTH] + "…" for name in builder.names.values()]
    tables["python"] = without_addresses(names, with_call_lines(tables["python"], header))
    trace = Trace(
        meta=TraceMeta(
            path=path,
            header=header,
            rank=rank_hint if rank is None else rank,
            world_size=world_size_hint if world_size is None else world_size,
            event_count=builder.event_count,
            byte_count=blocks.byte_count,
            sha256=None if blocks.damage else blocks.digest.hexdigest(),
            lost_events=events.lost + builder.lost + builder.torn_operators(),
            repaired_events=events.repaired,
            unread_bytes=events.unread_bytes,
            arrow_ends=builder.arrow_ends,
            damage="; ".join(filter(None, (blocks.damage, events.damage))) or None,
            recorded_index_share=builder.recorded_index_share(),
            categories=dict(builder.categories),
            start_ns=_clock_ns(builder.start_ns, header),
        ),
        names=names,
        texts=[text.decode("utf-8", "replace") for text in builder.texts.values()],
        threads=builder.threads.described(),
        counter_ranges=builder.counter_ranges(),
        **tables,
    )
    return with_possible_times(trace)


def _read(blocks: TextBlocks, tell: ReportBytes) -> tuple[EventStream | PerfettoStream, TableBuilder]:
    try:
        if shareable(blocks.stream):
            try:
                return read_shared(blocks, tell)
            except NotShareableError:
                blocks.start_again()
        return _read_all(EventStream(blocks), blocks, tell)
    except NotATraceError as error:
        if not is_perfetto(error.start):
            raise
        blocks.start_again()
        return _read_all(PerfettoStream(blocks), blocks, tell)


def _read_all(events: Stream, blocks: TextBlocks, tell: ReportBytes) -> tuple[Stream, TableBuilder]:
    builder = TableBuilder()
    for chunk in events:
        builder.add(chunk)
        tell(blocks.byte_count)
    return events, builder


def _reuse_freed_memory() -> None:
    """Makes glibc reuse freed memory for chunks and their arrays, instead of getting zeroed pages from the system each
    time.

    glibc serves blocks from its heap up to the size of the largest block that was freed (mallopt(3), M_MMAP_THRESHOLD).
    No effect with other allocators.
    """
    np.empty(_REUSED_BYTES, np.uint8)  # its pages are never touched


def _clock_ns(start_ns: int | None, header: dict[str, Any]) -> int | None:
    """Time of the first event on the machine's clock. Times count from `baseTimeNanoseconds`; in older files
    from 1970.
    """
    base = whole(header.get("baseTimeNanoseconds", 0), _LATEST_NS)
    return None if start_ns is None or base is None else whole(start_ns + base, _LATEST_NS)


def _rank(header: dict[str, Any]) -> tuple[int | None, int | None]:
    info = header.get("distributedInfo")
    if not isinstance(info, dict):
        return None, None
    return whole(info.get("rank"), _MOST_RANKS), whole(info.get("world_size"), _MOST_RANKS)
