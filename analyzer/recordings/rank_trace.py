"""Reads the recording of one rank into a trace."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from traceopt.analyzer.reading.nsight_files import read_nsight
from traceopt.analyzer.reading.sources import TraceSource
from traceopt.analyzer.reading.trace_reader import read_trace
from traceopt.analyzer.recordings.cycle_pairs import RankRecording
from traceopt.analyzer.recordings.joined_cycles import can_replace, join_cycles
from traceopt.analyzer.tables.trace import Trace, no_trace
from traceopt.errors import InputError, one_line

OTHER_STEPS = "the steps of the two cycles differ too much, so lines of code are unknown"
VARYING_STEPS = "the steps run the same operators in varying numbers, so only the cycle with lines of code is analyzed"

CountBytes = Callable[[int], None]


def read_recording(recording: RankRecording, warnings: list[str], count_bytes: CountBytes | None = None) -> Trace:
    """`_read_rank`, with the name of an inference engine instead of its rank."""
    trace = _read_rank(recording, warnings, count_bytes)
    if recording.engine is None:
        return trace
    return replace(trace, meta=replace(trace.meta, rank=None, world_size=None, engine=recording.engine))


def _read_rank(recording: RankRecording, warnings: list[str], count_bytes: CountBytes | None = None) -> Trace:
    """Reads one rank's trace. If one of its two cycles cannot be read, adds a warning and uses the other. If the cycles
    cannot be joined because loops run a varying number of times, adds a warning and uses the one with lines of code,
    unless its steps take far longer.

    `count_bytes` is called with the number of bytes read since its last call. Without a trace it returns an
    empty one. Raises InputError if nothing can be read.
    """
    if not recording.has_trace:
        return no_trace(recording.source.label)
    if recording.detail is None:
        return _read(recording.source, count_bytes)
    traces = []
    for source in (recording.source, recording.detail):
        try:
            traces.append(_read(source, count_bytes))
        except InputError as error:
            if source.named:
                raise
            problem = error
            warnings.append(one_line(str(error)))
    if not traces:
        raise problem
    if len(traces) == 1:
        return traces[0]
    joined = join_cycles(*traces)
    if not len(traces[1].python) or len(joined.python):
        return joined
    use_detail = can_replace(traces[1], traces[0])
    warnings.append(f"{recording.source.label}: {VARYING_STEPS if use_detail else OTHER_STEPS}")
    return traces[1] if use_detail else joined


def _read(source: TraceSource, count_bytes: CountBytes | None) -> Trace:
    if source.process is not None:
        hints = {"rank_hint": source.rank_hint, "world_size_hint": source.world_size_hint}
        trace = read_nsight(source, source.process, **hints)
        if count_bytes is not None:
            count_bytes(source.size_bytes)
        return trace
    with source.open() as stream:
        counted = 0

        def tell(_: int = 0) -> None:
            nonlocal counted
            if count_bytes is not None:
                position = stream.tell()
                count_bytes(position - counted)
                counted = position

        trace = read_trace(
            stream, source.label, rank_hint=source.rank_hint, world_size_hint=source.world_size_hint, progress=tell
        )
        tell()
        return trace
