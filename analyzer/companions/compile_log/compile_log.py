"""Reads a TORCH_TRACE folder: every compilation, graph break and recompilation of a process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import DecodeError
from msgspec.json import decode

from traceopt.analyzer.companions.compile_log.kernel_sources import STACKS, KernelSources
from traceopt.analyzer.companions.compile_log.log_records import LogRecord, RecordReader
from traceopt.analyzer.reading.limits import TooLargeError
from traceopt.analyzer.reading.sources import TraceSource
from traceopt.analyzer.tables.compilation import (
    Compilation,
    Compiled,
    FrameKey,
    GraphBreak,
    merged_breaks,
    merged_skips,
    with_functions,
)
from traceopt.analyzer.tables.compile_metrics import compiled_row, graph_skip, phases_of
from traceopt.analyzer.vocabulary.torch_compile import parse_break
from traceopt.errors import InputError


def read_compile_log(files: Sequence[TraceSource], warnings: list[str]) -> Compilation:
    """What the logs say together. A file that cannot be read is a warning.

    Raises InputError if none can be read, or if the user named one that cannot.
    """
    logs: list[_Log] = []
    for file in files:
        try:
            logs.append(_read(file, len(logs), warnings))
        except InputError as error:
            if file.named or len(files) == 1:
                raise
            warnings.append(str(error))
    if not logs:
        raise InputError(f"none of {len(files)} logs of torch.compile can be read")
    compiled = [row for log in logs for row in log.compiled]
    recordings = sum(log.recordings.total() for log in logs)
    return Compilation(
        source="log",
        compiled=tuple(compiled),
        breaks=merged_breaks(one for log in logs for one in log.breaks),
        phases_ns=_sum(log.phases_ns for log in logs),
        graph_skips=merged_skips(skip for row in compiled if (skip := graph_skip(row)) is not None),
        graph_recordings=recordings,
        graph_rerecordings=recordings - sum(len(log.recordings) for log in logs),
        processes=len(logs),
        kernels={name: source for log in logs for name, source in log.kernels.found().items()},
    )


def _read(file: TraceSource, process: int, warnings: list[str]) -> _Log:
    reader = RecordReader(file)
    try:
        log = _Log(reader, process)
    except TooLargeError as error:
        raise InputError(f"{file.label}: {error}") from error
    if not reader.seen:
        raise InputError(f"{file.label} has no record of torch.compile; record one with TORCH_TRACE=folder")
    if reader.damaged:
        warnings.append(f"{file.label}: {reader.damaged:,} damaged records were ignored")
    if reader.damage is not None:
        warnings.append(f"{file.label}: {reader.damage}")
    return log


class _Log:
    """The records of one process, gathered."""

    def __init__(self, records: Iterable[LogRecord], process: int) -> None:
        self.compiled: list[Compiled] = []
        self.breaks: list[GraphBreak] = []
        self.phases_ns: Counter[str] = Counter()
        self.recordings: Counter[tuple[FrameKey, bool]] = Counter()
        self.kernels = KernelSources()
        self._guards: dict[FrameKey, str] = {}
        for record in records:
            self._add(record, FrameKey(record.frame, record.number, process))
        self.compiled = with_functions(self.compiled)

    def _add(self, record: LogRecord, key: FrameKey) -> None:
        if record.metrics is not None:
            self.phases_ns.update(phases_of(record.metrics))
            if record.name == "compilation_metrics":
                self.compiled.append(compiled_row(record.metrics, key, guard=self._guards.pop(key, None)))
            elif record.name == "bwd_compilation_metrics":
                self.compiled.append(compiled_row(record.metrics, key, backward=True))
        elif record.name == "recompile_reasons":
            self._guards[key] = _latest_reason(record.payload)
        elif record.name == "dynamo_graph_break_reason":
            text, site = parse_break(record.payload)
            self.breaks.append(GraphBreak(text, site, 1, () if record.frame is None else (record.frame,)))
        elif record.name == "output_code":
            self.kernels.add_code(record.payload)
        elif record.name == STACKS:
            self.kernels.add_stacks(record.payload)
        elif '"ph": "B"' in record.payload:
            self.recordings[key, '"is_backward": true' in record.payload] += 1


def _latest_reason(payload: str) -> str:
    """Why the compiled code that was tried first did not fit: the payload is one reason, or a JSON list of them."""
    try:
        reasons = decode(payload)
    except DecodeError:
        return payload
    return next((reason for reason in reasons if isinstance(reason, str)), "") if isinstance(reasons, list) else payload


def _sum(counts: Iterable[Counter[str]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for count in counts:
        total.update(count)
    return dict(total)
