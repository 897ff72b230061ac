"""Pairs the timing cycle and the detail cycle that `traceopt run` records for each rank."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from traceopt.analyzer.reading.sources import CompanionFile, TraceSource
from traceopt.analyzer.recordings.heads import Head, read_heads


class RankRecording(Struct, frozen=True):
    """A file to analyze. `detail` is the file of the same process with shapes, frames and memory, whose times are
    distorted. `head` is empty for the only file. `companions` are files recorded beside the trace; if `source` is one
    of them, there is no trace. `engine`: the name of an inference engine's process beside a training ("engine rank 1"),
    whose ranks are not those of the training.
    """

    source: TraceSource
    detail: TraceSource | None = None
    head: Head = Head()
    companions: tuple[CompanionFile, ...] = ()
    engine: str | None = None

    @property
    def has_trace(self) -> bool:
        return all(file.source is not self.source for file in self.companions)

    @property
    def sources(self) -> list[TraceSource]:
        """Every file, each once."""
        traces = [self.source] if self.has_trace else []
        details = [] if self.detail is None else [self.detail]
        return [*traces, *details, *(file.source for file in self.companions)]


def find_recordings(sources: Sequence[TraceSource]) -> list[RankRecording]:
    """The recordings, in the order of the sources. A detail cycle is paired with the timing cycle of its worker, if
    there is exactly one of each.
    """
    heads = read_heads(sources) if len(sources) > 1 else {}
    by_worker: dict[tuple[str, str], list[TraceSource]] = {}
    for source in sources:
        if source.worker is not None:
            by_worker.setdefault((source.folder, source.worker), []).append(source)
    details: dict[str, TraceSource] = {}  # by the label of the timing cycle
    for files in by_worker.values():
        if len(files) > 1:
            timing = [source for source in files if heads[source.label].cycle == "timing"]
            detail = [source for source in files if heads[source.label].cycle == "detail"]
            if len(timing) == len(detail) == 1:
                details[timing[0].label] = detail[0]
    joined = {source.label for source in details.values()}
    return [
        RankRecording(source, details.get(source.label), heads.get(source.label, Head()))
        for source in sources
        if source.label not in joined
    ]
