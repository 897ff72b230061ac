"""What the start of a trace file says about it, without reading the rest: cycle, rank and time."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Sequence

from msgspec import Struct

from traceopt.analyzer.reading.perfetto.perfetto_stream import process_and_start
from traceopt.analyzer.reading.perfetto.wire import is_perfetto
from traceopt.analyzer.reading.sources import TraceSource
from traceopt.errors import InputError

_HEAD_BYTES = 1 << 16
_PERFETTO_HEAD_BYTES = 1 << 20  # one packet with all names comes before the first event
_MANY = 16
_CYCLE = '"traceopt": {"cycle": '
_RANKS = re.compile(r'"distributedInfo"\s*:\s*\{(?P<fields>[^{}]{0,4096})')
_RANK = re.compile(r'"rank"\s*:\s*(\d{1,7})\b')
_WORLD_SIZE = re.compile(r'"world_size"\s*:\s*(\d{1,7})\b')
_BASE = re.compile(r'"baseTimeNanoseconds"\s*:\s*(\d{1,19})\b')
_TIME = re.compile(r'"ts"\s*:\s*"?(\d{1,17}(?:\.\d{1,6})?)')
_PROCESS = re.compile(r'"pid"\s*:\s*"?(\d{1,10})\b')
_CLOCK_S = (1.4e9, 4.6e9)  # since 1970: from 2014 to 2115. Times outside count from the start of a machine


class Head(Struct, frozen=True):
    """None for what the start of the file does not say. `start_s`: time of its first event, in seconds since 1970.
    `process`: its process id.
    """

    cycle: str | None = None  # of `traceopt run`: "timing" or "detail"
    rank: int | None = None
    world_size: int | None = None
    start_s: float | None = None
    process: int | None = None


def read_heads(sources: Sequence[TraceSource]) -> dict[str, Head]:
    """By label. Read in parallel, because remote files are slow one after the other."""
    if len(sources) < _MANY:
        return {source.label: _head(source) for source in sources}
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(_MANY) as threads:
        return dict(zip((source.label for source in sources), threads.map(_head, sources), strict=True))


def _head(source: TraceSource) -> Head:
    if source.process is not None:
        return Head(None, source.rank_hint, source.world_size_hint, source.process.start_s)
    try:
        start = _start(source, _HEAD_BYTES)
        if is_perfetto(start):
            process, start_s = process_and_start(_start(source, _PERFETTO_HEAD_BYTES))
            return Head(start_s=_since_1970(start_s), process=process)
    except (OSError, InputError, zlib.error):
        return Head()
    text = start.decode("utf-8", "replace")
    ranks = _RANKS.search(text)
    fields = ranks["fields"] if ranks else ""
    ranks_of_run = _number(_RANK, fields), _number(_WORLD_SIZE, fields)
    return Head(_cycle_name(text), *ranks_of_run, _start_s(text), _number(_PROCESS, text))


def _start(source: TraceSource, size: int) -> bytes:
    start = source.head(size)
    return zlib.decompressobj(wbits=31).decompress(start, size) if start.startswith(b"\x1f\x8b") else start


def _number(pattern: re.Pattern[str], text: str) -> int | None:
    found = pattern.search(text)
    return int(found[1]) if found else None


def _start_s(text: str) -> float | None:
    events = text.find('"traceEvents"')
    first = _TIME.search(text, max(events, 0))
    base = _BASE.search(text)
    if first is None:
        return None
    return _since_1970(float(first[1]) / 1e6 + (int(base[1]) / 1e9 if base else 0.0))


def _since_1970(start_s: float | None) -> float | None:
    return start_s if start_s is not None and _CLOCK_S[0] <= start_s <= _CLOCK_S[1] else None


def _cycle_name(text: str) -> str | None:
    """The cycle name that `traceopt run` wrote; None for other traces."""
    at = text.find(_CYCLE)
    if at < 0:
        return None
    try:
        cycle, _ = json.JSONDecoder().raw_decode(text, at + len(_CYCLE))
    except ValueError:
        return None
    name = cycle.get("name") if isinstance(cycle, dict) else None
    return name if isinstance(name, str) else None
