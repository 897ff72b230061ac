"""What the files beside a trace say: one field for each kind, empty where there is no such file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from traceopt.analyzer.companions.compile_log.compile_log import read_compile_log
from traceopt.analyzer.companions.flight_recorder.recording import FlightRecording, read_flight_recorder
from traceopt.analyzer.companions.gpu_samples.samples import GpuSamples, read_gpu_samples
from traceopt.analyzer.companions.graph_stacks import read_graph_stacks
from traceopt.analyzer.companions.measured_rates import MeasuredRates, read_measured_rates
from traceopt.analyzer.companions.memory_snapshot.memory_snapshot import MemorySnapshot, read_memory_snapshot
from traceopt.analyzer.companions.trials import read_trials
from traceopt.analyzer.reading.sources import CompanionFile, TraceSource
from traceopt.analyzer.tables.compilation import Compilation
from traceopt.analyzer.vocabulary.companion_kinds import KindName
from traceopt.errors import InputError, one_line
from traceopt.result.finding import Location
from traceopt.result.trial import Attempt


class Companions(Struct, frozen=True):
    """What was read from the files beside a trace."""

    memory_snapshot: MemorySnapshot | None = None
    compile_log: Compilation | None = None
    flight_recorder: FlightRecording | None = None
    gpu_samples: GpuSamples | None = None
    measured_rates: MeasuredRates | None = None
    graph_stacks: Mapping[int, Location] = {}
    trials: list[Attempt] = []


_Read = Callable[[Sequence[TraceSource], list[str]], Any]

# The function that reads all files of a kind into its field of `Companions`. It adds a warning for a file that it
# cannot use, and raises InputError if none can be used.
_READERS: dict[KindName, _Read] = {
    "memory_snapshot": read_memory_snapshot,
    "compile_log": read_compile_log,
    "flight_recorder": read_flight_recorder,
    "gpu_samples": read_gpu_samples,
    "measured_rates": read_measured_rates,
    "graph_stacks": read_graph_stacks,
    "trials": read_trials,
}


def read_companions(files: Sequence[CompanionFile], warnings: list[str]) -> Companions:
    """Reads the files beside a trace. One that cannot be read is a warning, unless the user named it.

    Raises InputError for a damaged file that the user named.
    """
    known: dict[str, Any] = {}
    for kind, read in _READERS.items():
        sources = [file.source for file in files if file.kind == kind]
        if not sources:
            continue
        try:
            known[kind] = read(sources, warnings)
        except InputError as error:
            if any(source.named for source in sources):
                raise
            warnings.append(one_line(str(error)))
    return Companions(**known)
