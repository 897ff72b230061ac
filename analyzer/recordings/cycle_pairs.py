"""Pairs the timing cycle and the detail cycle that `traceopt run` records for each rank."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence

from msgspec import Struct

from traceopt.analyzer.reading.sources import TraceSource
from traceopt.errors import InputError

_HEAD_BYTES = 4096
_MANY = 16
_KEY = '"traceopt": {"cycle": '


class RankRecording(Struct, frozen=True):
    """A file to analyze. `detail` is the file of the same process with shapes, frames and memory, whose times are
    distorted.
    """

    source: TraceSource
    detail: TraceSource | None = None

    @property
    def sources(self) -> list[TraceSource]:
        return [self.source] if self.detail is None else [self.source, self.detail]


def find_recordings(sources: Sequence[TraceSource]) -> list[RankRecording]:
    """The recordings, in the order of the sources. A detail cycle is paired with the timing cycle of its worker, if
    there is exactly one of each.
    """
    by_worker: dict[tuple[str, str], list[TraceSource]] = {}
    for source in sources:
        if source.worker is not None:
            by_worker.setdefault((source.folder, source.worker), []).append(source)
    details: dict[str, TraceSource] = {}  # by the label of the timing cycle
    several = [files for files in by_worker.values() if len(files) > 1]
    names = _cycle_names([source for files in several for source in files])
    for files in several:
        timing = [source for source in files if names[source.label] == "timing"]
        detail = [source for source in files if names[source.label] == "detail"]
        if len(timing) == len(detail) == 1:
            details[timing[0].label] = detail[0]
    joined = {source.label for source in details.values()}
    return [RankRecording(source, details.get(source.label)) for source in sources if source.label not in joined]


def _cycle_names(sources: Sequence[TraceSource]) -> dict[str, str | None]:
    """The cycle name of each source, by label. Read in parallel, because remote files are slow one after the other."""
    if len(sources) < _MANY:
        return {source.label: cycle_name(source) for source in sources}
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(_MANY) as threads:
        return dict(zip((source.label for source in sources), threads.map(cycle_name, sources), strict=True))


def cycle_name(source: TraceSource) -> str | None:
    """The cycle name that `traceopt run` wrote at the start of the file; None for other traces."""
    try:
        start = source.head(_HEAD_BYTES)
        if start.startswith(b"\x1f\x8b"):
            start = zlib.decompressobj(wbits=31).decompress(start, _HEAD_BYTES)
    except (OSError, InputError, zlib.error):
        return None
    text = start.decode("utf-8", "replace")
    at = text.find(_KEY)
    if at < 0:
        return None
    try:
        cycle, _ = json.JSONDecoder().raw_decode(text, at + len(_KEY))
    except ValueError:
        return None
    name = cycle.get("name") if isinstance(cycle, dict) else None
    return name if isinstance(name, str) else None
