"""Writes one step of a trace as a small trace of its own, for viewers that are slow on large files.

Three passes over the file: the analyzer's, which finds the steps; one that notes what the step launched; and one that
copies the events. The file's text is never held as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import IO, Any, cast

import msgspec
from msgspec import Raw, Struct, field

from traceopt.analyzer.facts import Facts
from traceopt.analyzer.reading.decompression import TextBlocks
from traceopt.analyzer.reading.event_stream import EventStream
from traceopt.analyzer.reading.event_types import Event
from traceopt.analyzer.reading.limits import most_text_bytes
from traceopt.analyzer.reading.perfetto.wire import is_perfetto
from traceopt.analyzer.reading.sources import TraceSource
from traceopt.analyzer.reading.trace_reader import read_trace
from traceopt.analyzer.tables.json_values import whole
from traceopt.analyzer.tables.trace import Trace
from traceopt.analyzer.vocabulary.event_categories import GPU, RUNTIME, TABLE_OF_CATEGORY
from traceopt.errors import InputError, visible

ROUNDING_US = 0.5  # times in files that count from 1970 are rounded to a quarter of a microsecond
FULL_DURATION = "Full duration (us)"  # argument of events that the step's borders shorten
_LATEST_NS = 2**62
_MOST_LISTED = 5
_DEVICE_ANNOTATION = "gpu_user_annotation"
_LAUNCH_FLOW = "ac2g"
_elements = msgspec.json.Decoder(list[Raw]).decode


class _Args(Struct, frozen=True):
    correlation: Any = None
    external: Any = field(name="External id", default=None)


class _Event(Struct, frozen=True):
    """What decides whether an event belongs to the step. Times are microseconds, as in the file."""

    ph: str = ""
    cat: str = ""
    ts: float | None = None
    dur: float = 0.0
    id: Any = None
    args: _Args = field(default_factory=_Args)

    @property
    def end(self) -> float:
        return (self.ts or 0.0) + self.dur


_event = msgspec.json.Decoder(_Event, strict=False).decode


class Cut(Struct, frozen=True):
    """What was written: the step's name, its events, and how many damaged events were left out."""

    step: str
    events: int
    damaged: int


class _Step(Struct):
    """The time of one step on the host, in the file's microseconds, and what the host launched in it."""

    start: float
    end: float
    launched: set[str] = field(default_factory=set)  # correlation ids
    flow_starts: set[tuple[str, str]] = field(default_factory=set)
    flow_ends: set[tuple[str, str]] = field(default_factory=set)

    def holds(self, ts: float) -> bool:
        return self.start - ROUNDING_US <= ts < self.end - ROUNDING_US

    def note(self, event: _Event) -> None:
        if event.ts is None:
            return
        if event.ph == "X" and TABLE_OF_CATEGORY.get(event.cat) == RUNTIME and self.holds(event.ts):
            if (correlation := _correlation(event)) is not None:
                self.launched.add(correlation)
        elif event.ph in ("s", "f"):
            of_launch = event.cat == _LAUNCH_FLOW and event.ph == "f"
            if self.holds(event.ts) or (of_launch and str(event.id) in self.launched):
                (self.flow_starts if event.ph == "s" else self.flow_ends).add(_flow(event))

    def has(self, event: _Event) -> bool:
        if event.ph == "M":
            return True
        if event.ts is None:
            return False
        if event.ph in ("s", "t", "f"):
            key = _flow(event)
            return key in self.flow_starts and key in self.flow_ends
        return self.holds(event.ts) or self.is_launched(event) or self.shortens(event)

    def is_launched(self, event: _Event) -> bool:
        """Whether it is work of the device that the step launched, whenever it ran."""
        of_device = TABLE_OF_CATEGORY.get(event.cat) == GPU or event.cat == _DEVICE_ANNOTATION
        return of_device and _correlation(event) in self.launched

    def shortens(self, event: _Event) -> bool:
        """Whether it crosses a border of the step."""
        if event.ph != "X" or event.ts is None or self.is_launched(event):
            return False
        inside = event.ts < self.end - ROUNDING_US and event.end > self.start + ROUNDING_US
        return inside and (event.ts < self.start - ROUNDING_US or event.end > self.end + ROUNDING_US)


def cut_step(source: TraceSource, wanted: str, write: Callable[[bytes], object]) -> Cut:
    """Writes the step as the text of a trace: the header, metadata events, what ran in the step on the host, what it
    launched, and what the device still ran from before.

    `wanted` is a step's name, or the number at the end of it. Raises InputError if there is no such step, or if the
    trace is no JSON.
    """
    with source.open() as stream:
        trace = read_trace(stream, source.label)
    with source.open() as stream:
        if is_perfetto(next(iter(TextBlocks(stream)))):
            raise InputError(f"{source.label} is in Perfetto's binary format; only steps of JSON traces can be cut out")
    name, step = _find_step(trace, wanted)
    # Twice, because a flow may end before the launch that it belongs to is known.
    for _ in range(2):
        with source.open() as stream:
            for _raw, event in _Reading(stream).events():
                step.note(event)
    write(msgspec.json.encode(trace.meta.header).rstrip(b"}"))
    write(b'"traceEvents":[' if not trace.meta.header else b',"traceEvents":[')
    count = 0
    with source.open() as stream:
        reading = _Reading(stream)
        for raw, event in reading.events():
            if step.has(event):
                write(b",\n" if count else b"\n")
                write(_shortened(raw, event, step) if step.shortens(event) else bytes(raw))
                count += 1
    write(b"\n]}\n")
    return Cut(name, count, reading.damaged)


class _Reading:
    """The events of a file, as text and decoded. `damaged` counts those that cannot be copied."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream: EventStream = EventStream(TextBlocks(stream, most_bytes=most_text_bytes()), decode=_elements)
        self.damaged = 0

    def events(self) -> Iterator[tuple[Raw, _Event]]:
        for chunk in cast("Iterator[list[Raw | Event]]", iter(self._stream)):
            for raw in chunk:
                if not isinstance(raw, Raw):  # it had to be repaired, so its text is no JSON
                    self.damaged += 1
                    continue
                try:
                    event = _event(raw)
                except msgspec.DecodeError:
                    self.damaged += 1
                else:
                    yield raw, event
        self.damaged += self._stream.lost


def _correlation(event: _Event) -> str | None:
    """The id that a launch and its work have in common, as text: some writers only have an External id."""
    correlation, external = event.args.correlation, event.args.external
    if correlation is None:
        return None if external in (None, 0) else f"External id {external}"
    return None if correlation == 0 else str(correlation)


def _flow(event: _Event) -> tuple[str, str]:
    return event.cat, str(event.id)


def _find_step(trace: Trace, wanted: str) -> tuple[str, _Step]:
    steps = Facts(trace).recorded_steps
    number = re.compile(rf"(?:.*[^0-9])?0*{int(wanted)}") if wanted.isdecimal() else None
    found = [index for index, name in enumerate(steps.names) if name == wanted]
    if not found and number is not None:
        found = [index for index, name in enumerate(steps.names) if number.fullmatch(name)]
    if len(found) != 1:
        names = ", ".join(visible(name) for name in steps.names[:_MOST_LISTED])
        more = steps.count - _MOST_LISTED
        listed = names + (f" and {more:,} more" if more > 0 else "")
        problem = "no step" if not found else "more than one step"
        raise InputError(f"{trace.meta.path} has {problem} {visible(wanted)}; its steps: {listed}")
    start_ns = trace.meta.start_ns
    base_ns = whole(trace.meta.header.get("baseTimeNanoseconds", 0), _LATEST_NS)
    if start_ns is None or base_ns is None:
        raise InputError(f"{trace.meta.path}: its times cannot be read, so no step can be cut out")
    (index,) = found
    origin = start_ns - base_ns
    first, last = int(steps.host_start[index]), int(steps.host_end[index])
    return steps.names[index], _Step((origin + first) / 1000, (origin + last) / 1000)


def _shortened(raw: Raw, event: _Event, step: _Step) -> bytes:
    """The event within the borders of the step. Otherwise a frame around the whole training would hide the step."""
    fields = msgspec.json.decode(raw)
    start, end = max(event.ts or 0.0, step.start), min(event.end, step.end)
    args = fields.get("args")
    note = {FULL_DURATION: event.dur}
    return msgspec.json.encode(
        {**fields, "ts": start, "dur": end - start, "args": {**args, **note} if isinstance(args, dict) else note}
    )
