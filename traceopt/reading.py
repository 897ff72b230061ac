"""From the sources of a recording to its trace."""

from __future__ import annotations

from collections.abc import Callable

from traceopt.analyzer.cycles import Recording
from traceopt.analyzer.joined import join_cycles
from traceopt.analyzer.reader import read_trace
from traceopt.analyzer.sources import Source
from traceopt.analyzer.trace import Trace
from traceopt.errors import InputError, one_line

Progress = Callable[[str], None]


def read_recording(recording: Recording, warnings: list[str], progress: Progress | None) -> Trace:
    """One rank's trace; a cycle that cannot be read is told, and the other is taken alone.

    Raises InputError when nothing of it can be read.
    """
    if recording.detail is None:
        return _read(recording.source, progress)
    traces = []
    for source in (recording.source, recording.detail):
        try:
            traces.append(_read(source, progress))
        except InputError as error:
            if source.named:
                raise
            problem = error
            warnings.append(one_line(str(error)))
    if not traces:
        raise problem
    return join_cycles(*traces) if len(traces) > 1 else traces[0]


def _read(source: Source, progress: Progress | None) -> Trace:
    def tell(byte_count: int) -> None:
        if progress is not None:
            progress(f"reading {source.label}: {byte_count / 1e6:,.0f} MB")

    with source.open() as stream:
        return read_trace(
            stream,
            source.label,
            rank_hint=source.rank_hint,
            world_size_hint=source.world_size_hint,
            progress=tell,
        )
