"""Finds the records of a structured log that say something about a run, without parsing the rest.

A record is a line `V0804 12:34:15.529000 1142857 torch/_dynamo/utils.py:1626] {JSON}`, followed by lines that begin
with a tab if it has a payload (torch/_logging/_internal.py, `trace_structured`). Most of a log are dumps of graphs and
code, so only the first bytes of each record are looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import DecodeError, Struct, ValidationError
from msgspec.json import Decoder

from traceopt.analyzer.reading.decompression import TextBlocks
from traceopt.analyzer.reading.limits import most_text_bytes
from traceopt.analyzer.reading.sources import TraceSource

MOST_RECORD_BYTES = 16 << 20
MOST_RECORDS = 200_000  # kept of one file
_BLOCK_BYTES = 4 << 20
_PREFIX_BYTES = 400  # "V0804 12:34:15.529000 1142857 " and the path of a Python file
_KERNELS = (b'{"inductor_output_code":', b'{"artifact": {"name": "inductor_provenance_tracking_kernel_stack_traces"')
_METRICS = (b'{"compilation_metrics":', b'{"bwd_compilation_metrics":', b'{"compilation_metrics_runtime":')
_REASONS = (b'{"artifact": {"name": "dynamo_graph_break_reason"', b'{"artifact": {"name": "recompile_reasons"')
_EVENT = b'{"chromium_event":'
_RECORDING = b'"CUDAGraphNode.record"'
_START = b"\nV"


class LogRecord(Struct):
    """A record of interest; `metrics` are forward, backward or runtime ones. `payload` is its text without the tabs."""

    name: str
    frame: str | None
    number: int
    rank: int | None
    process: str
    metrics: dict[str, Any] | None
    payload: str


class RecordReader(Struct):
    """Iterates over the records of interest of one file. Afterwards, `damaged` counts records of interest that could
    not be read, `seen` all records, and `damage` says what is wrong with the file as a whole; None if nothing is.
    """

    source: TraceSource
    seen: int = 0
    damaged: int = 0
    damage: str | None = None

    def __iter__(self) -> Iterator[LogRecord]:
        kept = 0
        with self.source.open() as stream:
            blocks = TextBlocks(stream, _BLOCK_BYTES, most_text_bytes())
            for raw in _records(blocks):
                self.seen += 1
                record = self._parsed(raw)
                if record is None:
                    continue
                if kept == MOST_RECORDS:
                    self.damage = f"it has more than {MOST_RECORDS:,} records about compilations; the rest is ignored"
                    return
                kept += 1
                yield record
            self.damage = blocks.damage

    def _parsed(self, raw: bytes) -> LogRecord | None:
        """None for a record that is of no interest, or damaged."""
        at = raw.find(b"] {", 0, _PREFIX_BYTES) + 2
        if at < 2:
            self.damaged += 1
            return None
        wanted = raw.startswith((*_METRICS, *_REASONS, *_KERNELS), at)
        if not wanted and not (raw.startswith(_EVENT, at) and _RECORDING in raw):
            return None
        head, _, payload = raw[at:].partition(b"\n")
        try:
            return _record(_HEAD.decode(head), raw[:at], payload)
        except (DecodeError, ValidationError, UnicodeDecodeError, RecursionError):
            self.damaged += 1
            return None


class _Artifact(Struct):
    name: str


class _Head(Struct):
    """The JSON of a record. Dynamo's numbers are null outside of a compilation."""

    compilation_metrics: dict[str, Any] | None = None
    bwd_compilation_metrics: dict[str, Any] | None = None
    compilation_metrics_runtime: dict[str, Any] | None = None
    artifact: _Artifact | None = None
    inductor_output_code: dict[str, Any] | None = None
    frame_id: int | str | None = None
    frame_compile_id: int | None = None
    compiled_autograd_id: int | None = None
    rank: int | None = None


_HEAD: Decoder[_Head] = Decoder(_Head)


def _record(head: _Head, prefix: bytes, payload: bytes) -> LogRecord:
    for name in ("compilation_metrics", "bwd_compilation_metrics", "compilation_metrics_runtime"):
        if (metrics := getattr(head, name)) is not None:
            break
    else:
        code = "output_code" if head.inductor_output_code is not None else "graph_recording"
        name, metrics = head.artifact.name if head.artifact is not None else code, None
    frame = None if head.frame_id is None else str(head.frame_id)[:20]
    if frame is not None and head.compiled_autograd_id is not None:
        frame = f"!{head.compiled_autograd_id}/{frame}"
    text = payload.replace(b"\n\t", b"\n").removeprefix(b"\t").decode("utf-8", "replace")
    process = prefix.split(b" ")[2].decode("ascii", "replace") if prefix.count(b" ") > 2 else ""
    return LogRecord(name, frame, head.frame_compile_id or 0, head.rank, process, metrics, text)


def _records(blocks: TextBlocks) -> Iterator[bytes]:
    """The bytes of each record, without its last newline; the parts of a record beyond the limit are dropped."""
    waiting = b"\n"
    for block in blocks:
        text = waiting + block
        begin = text.find(_START)
        while begin >= 0 and (end := text.find(_START, begin + 1)) >= 0:
            yield text[begin + 1 : end]
            begin = end
        waiting = text[begin:] if begin >= 0 else text[-1:]
        if len(waiting) > MOST_RECORD_BYTES:
            yield waiting[1:MOST_RECORD_BYTES]
            waiting = waiting[-1:]
    if waiting.startswith(_START):
        yield waiting[1:].rstrip(b"\n")
