"""The trace events that traceopt reads, as msgspec types. Other fields are skipped without being decoded.

Two decoders serve every PyTorch version since 1.8 (2021). In the first, the event's `cat` selects the type, which has
only the fields that the table of this category keeps; it knows the frequent categories. If it meets anything else, the
second decodes everything again: there `ph` selects the type and the category is an ordinary string. Values that do not
fit these types (a string instead of a number, an unknown `ph`) go through `lenient`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import cache, reduce
from operator import or_
from typing import Any, ClassVar, Literal

import msgspec
from msgspec import Raw, Struct, field

from traceopt.analyzer.tables.schema import GpuTable, OpTable, RuntimeTable, SyncTable
from traceopt.analyzer.vocabulary import event_categories as cat

NONE = -1.0  # "not in the event", for numbers that cannot be negative
NO_TIME = math.nan
NO_TRIPLE = (NONE, NONE, NONE)
NO_TEXT = Raw()

_Number = float
_NumberOrText = float | str | None


class SliceArgs(Struct, gc=False, frozen=True):
    """`args` of complete events: kernels, copies, runtime calls, operators, Python frames."""

    correlation: _NumberOrText = NONE
    external: _NumberOrText = field(name="External id", default=NONE)
    stream: _NumberOrText = NONE
    device: _NumberOrText = NONE
    bytes: _NumberOrText = NONE
    grid: tuple[_Number, _Number, _Number] | str | None = NO_TRIPLE
    block: tuple[_Number, _Number, _Number] | str | None = NO_TRIPLE
    registers: _NumberOrText = field(name="registers per thread", default=NONE)
    shared_memory: _NumberOrText = field(name="shared memory", default=NONE)
    occupancy: _NumberOrText = field(name="est. achieved occupancy %", default=NONE)
    collective: Raw = field(name="Collective name", default=NO_TEXT)
    collective_elements: _NumberOrText = field(name="In msg nelems", default=NONE)
    collective_dtype: Raw = field(name="dtype", default=NO_TEXT)
    group_size: _NumberOrText = field(name="Group size", default=NONE)
    process_group: Raw = field(name="Process Group Name", default=NO_TEXT)
    process_group_ranks: Raw = field(name="Process Group Ranks", default=NO_TEXT)
    collective_sequence: _NumberOrText = field(name="Seq", default=NONE)
    graph: _NumberOrText = field(name="graph id", default=NONE)
    graph_node: _NumberOrText = field(name="graph node id", default=NONE)
    annotation: Raw = NO_TEXT
    annotation_name: Raw = field(name="name", default=NO_TEXT)
    dims: Raw = field(name="Input Dims", default=NO_TEXT)
    types: Raw = field(name="Input type", default=NO_TEXT)
    concrete: Raw = field(name="Concrete Inputs", default=NO_TEXT)
    stack: Raw = field(name="Call stack", default=NO_TEXT)
    sequence: _NumberOrText = field(name="Sequence number", default=NONE)
    forward_thread: _NumberOrText = field(name="Fwd thread id", default=NONE)
    awaited_stream: _NumberOrText = field(name="wait_on_stream", default=NONE)
    event_record: _NumberOrText = field(name="wait_on_cuda_event_record_corr_id", default=NONE)
    event_index: _NumberOrText = field(name="Ev Idx", default=NONE)
    copy_kind: _NumberOrText = field(name="copy kind", default=None)
    source_kind: _NumberOrText = field(name="src kind", default=None)
    target_kind: _NumberOrText = field(name="dst kind", default=None)
    memory_kind: _NumberOrText = field(name="memory kind", default=None)


class InstantArgs(Struct, gc=False, frozen=True):
    """`args` of instants; only `[memory]` events have them."""

    bytes: _Number = field(name="Bytes", default=NONE)
    address: _Number = field(name="Addr", default=NONE)
    allocated: _Number = field(name="Total Allocated", default=NONE)
    reserved: _Number = field(name="Total Reserved", default=NONE)
    device_type: _Number = field(name="Device Type", default=NONE)
    device: _Number = field(name="Device Id", default=NONE)


_NO_SLICE_ARGS = SliceArgs()
_NO_INSTANT_ARGS = InstantArgs()


class Slice(Struct, gc=False, tag_field="ph", tag="X"):
    """A complete event. Times are microseconds, as in the file."""

    cat: str = ""
    name: str = ""
    pid: _NumberOrText = NONE
    tid: _NumberOrText = NONE
    ts: _Number = NO_TIME
    dur: _Number = 0.0
    args: SliceArgs = _NO_SLICE_ARGS


class FlowStart(Struct, gc=False, tag_field="ph", tag="s"):
    ph: ClassVar[str] = "s"
    cat: str = ""
    id: _NumberOrText = NONE
    pid: _NumberOrText = NONE
    tid: _NumberOrText = NONE
    ts: _Number = NO_TIME


class FlowEnd(FlowStart, gc=False, tag="f"):
    ph: ClassVar[str] = "f"


class Instant(Struct, gc=False, tag_field="ph", tag="i"):
    name: str = ""
    pid: _NumberOrText = NONE
    tid: _NumberOrText = NONE
    ts: _Number = NO_TIME
    args: InstantArgs = _NO_INSTANT_ARGS


class Meta(Struct, gc=False, tag_field="ph", tag="M"):
    name: str = ""
    pid: _NumberOrText = NONE
    tid: _NumberOrText = NONE
    args: Raw = NO_TEXT


class PhaseReading(Struct, gc=False, tag_field="ph", tag="C"):
    """A counter event: a reading of hardware counters if its category says so."""

    cat: str = ""
    name: Any = ""
    pid: Any = None
    ts: Any = NO_TIME
    args: Any = None


class Ignored(Struct, gc=False):
    """An event of a phase that traceopt does not read."""


_IGNORED = tuple(
    msgspec.defstruct(f"Ignored_{ord(phase)}", [], bases=(Ignored,), tag_field="ph", tag=phase, gc=False)
    for phase in "tIBEbneSTpPNODRcvV()"
)
_ANY: Any = reduce(or_, _IGNORED, Slice | FlowStart | FlowEnd | Instant | Meta | PhaseReading)


class Complete(Struct, gc=False):
    """Base of the types of known categories; for some categories the count is all that is needed."""

    category: ClassVar[str]
    ph: Literal["X"]


class SpanEvent(Complete, gc=False):
    name: str = ""
    pid: _NumberOrText = NONE
    tid: _NumberOrText = NONE
    ts: _Number = NO_TIME
    dur: _Number = 0.0


class Flow(Struct, gc=False):
    ph: Literal["s", "f"]
    id: _NumberOrText = NONE
    pid: _NumberOrText = NONE
    tid: _NumberOrText = NONE
    ts: _Number = NO_TIME


class Point(Struct, gc=False):
    ph: Literal["i"]
    name: str = ""
    pid: _NumberOrText = NONE
    tid: _NumberOrText = NONE
    ts: _Number = NO_TIME
    args: InstantArgs = _NO_INSTANT_ARGS


class Reading(Struct, gc=False):
    """A reading of hardware counters: `args` maps a metric to its value, or "" to the value of the metric `name`."""

    ph: Literal["C"]
    name: Any = ""
    pid: Any = None
    ts: Any = NO_TIME
    args: Any = None


class CounterRange(Complete, gc=False):
    """A range of CUPTI's range profiler: `args` maps a metric to its value. Its times are invented, so they are not
    read.
    """

    category: ClassVar[str] = cat.COUNTER_RANGE_CATEGORY
    name: Any = ""
    args: Any = None


class Arrow(Flow, gc=False):
    """One end of a flow from a launch to its work. Where there are correlation ids, they hold the same."""


COPY_FIELDS = ("copy_kind", "source_kind", "target_kind", "memory_kind")
_OP_ARGS = (*OpTable.of_args(), "event_index")
_ARGS: dict[str, tuple[str, ...]] = {  # the fields of SliceArgs that each table keeps
    cat.GPU: (*GpuTable.of_args(), *COPY_FIELDS, "external"),
    cat.RUNTIME: (*RuntimeTable.of_args(), "external"),
    cat.OP: _OP_ARGS,
    cat.ANNOTATION: _OP_ARGS,
    cat.SYNC: (*SyncTable.of_args(), "external"),
}
_fields = cache(msgspec.structs.fields)


def _span_with(columns: Iterable[str]) -> type[Struct]:
    """A Span with some of the arguments of a Slice."""
    chosen = [f for f in _fields(SliceArgs) if f.name in columns]
    arguments = [(f.name, f.type, field(name=f.encode_name, default=f.default)) for f in chosen]
    args = msgspec.defstruct("Args", arguments, gc=False, frozen=True)
    return msgspec.defstruct("SpanWithArgs", [("args", args, args())], bases=(SpanEvent,), gc=False)


def _known() -> Any:
    """The union of the types of all known categories."""
    bases: dict[str, type[Struct]] = {table: _span_with(columns) for table, columns in _ARGS.items()}
    bases |= {cat.PYTHON: SpanEvent, cat.OVERHEAD: SpanEvent, cat.IGNORED: Complete}
    of_category = {category: bases[table] for category, table in cat.TABLE_OF_CATEGORY.items()}
    of_category |= dict.fromkeys(cat.FOREIGN_DEVICE_CATEGORIES, Complete)
    of_category |= dict.fromkeys(cat.ARROWS, Arrow)
    of_category |= dict.fromkeys(cat.FORWARD_BACKWARD_FLOWS, Flow)
    of_category |= dict.fromkeys(cat.INSTANTS, Point)
    of_category[cat.HARDWARE_COUNTERS] = Reading
    of_category[cat.COUNTER_RANGE_CATEGORY] = CounterRange
    types = (
        msgspec.defstruct(
            base.__name__, [], bases=(base,), tag_field="cat", tag=category, gc=False, namespace={"category": category}
        )
        for category, base in of_category.items()
    )
    return reduce(or_, types)


class _Loose(Struct, gc=False):
    """Any event."""

    ph: Any = ""
    cat: Any = ""
    name: Any = ""
    args: Any = None


Event = (
    Slice | FlowStart | FlowEnd | Instant | Meta | PhaseReading | Ignored | Complete | Flow | Point | Reading | Arrow
)
_KNOWN: Any = _known()
_decode_known: Callable[[bytes | memoryview], list[Event]] = msgspec.json.Decoder(list[_KNOWN]).decode
_decode_any: Callable[[bytes | memoryview], list[Event]] = msgspec.json.Decoder(list[_ANY]).decode
_decode_loose: Callable[[bytes | memoryview], list[_Loose]] = msgspec.json.Decoder(list[_Loose]).decode
_RANGE = cat.COUNTER_RANGE_CATEGORY.encode()
decode_event: Callable[[bytes | Raw], Event] = msgspec.json.Decoder(_ANY).decode


def decode_events(array: bytes | memoryview) -> list[Event]:
    """The events of a JSON array. Raises what msgspec raises, also for values of unexpected types."""
    try:
        return _decode_known(array)
    except msgspec.ValidationError:
        events = _decode_any(array)
    return _with_ranges(events, array) if _RANGE in bytes(array) else events


def _with_ranges(events: list[Event], array: bytes | memoryview) -> list[Event]:
    """The events, ranges with their metrics, which a Slice does not keep."""
    others = [event for event in events if not (isinstance(event, Slice) and event.cat == cat.COUNTER_RANGE_CATEGORY)]
    if len(others) == len(events):
        return events
    known = (one for one in _decode_loose(array) if one.ph == "X" and one.cat == cat.COUNTER_RANGE_CATEGORY)
    return [*others, *(CounterRange("X", one.name, one.args) for one in known)]


_BY_PHASE: dict[str, type[Struct]] = {
    "X": Slice,
    "s": FlowStart,
    "f": FlowEnd,
    "i": Instant,
    "M": Meta,
    "C": PhaseReading,
}


def _time(value: object) -> float:
    """Microseconds from a number or a numeric string; NO_TIME otherwise."""
    try:
        time = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return NO_TIME
    return time if math.isfinite(time) else NO_TIME


def number(value: object) -> float:
    """The number, also from a numeric string; NONE for anything else."""
    time = _time(value)
    return NONE if math.isnan(time) else time


def lenient(raw: object) -> Event | None:
    """An event from plain decoded JSON with values of unexpected types; None if it is not an event."""
    if not isinstance(raw, dict) or not isinstance(raw.get("ph"), str):
        return None
    kind = _BY_PHASE.get(raw["ph"])
    if kind is None:
        return Ignored()
    args = raw.get("args")
    values: dict[str, Any] = {}
    for column in _fields(kind):
        value = raw.get(column.encode_name)
        if column.name == "args" or value is None:
            continue
        if column.name in ("cat", "name"):
            values[column.name] = value if isinstance(value, str) else bytes(_raw(value)).decode()
        elif column.name in ("ts", "dur"):
            values[column.name] = _time(value)
        else:
            values[column.name] = value if isinstance(value, str) else number(value)
    if isinstance(args, dict):
        if kind is Slice:
            values["args"] = _args(SliceArgs, args)
        elif kind is Instant:
            values["args"] = _args(InstantArgs, args)
        elif kind is Meta:
            values["args"] = _raw(args)
        elif kind is PhaseReading:
            values["args"] = args
    return kind(**values)  # type: ignore[return-value]


def _raw(value: object) -> Raw:
    """The JSON text of a decoded value; NO_TEXT if it is nested too deeply or too large to encode."""
    try:
        return Raw(msgspec.json.encode(value))
    except (ValueError, OverflowError, RecursionError):
        return NO_TEXT


def _args(kind: type[Struct], raw: dict[str, Any]) -> Struct:
    values: dict[str, Any] = {}
    for column in _fields(kind):
        value = raw.get(column.encode_name)
        if value is None:
            continue
        if column.type is Raw:
            values[column.name] = _raw(value)
        elif column.name in ("grid", "block"):
            values[column.name] = triple(value)
        elif column.name in COPY_FIELDS and isinstance(value, str):
            values[column.name] = value
        else:
            values[column.name] = number(value)
    return kind(**values)


def triple(value: object) -> tuple[float, float, float]:
    """Three numbers from a list, or NO_TRIPLE (Triton has written `"grid": "grid(128,)"`)."""
    if isinstance(value, (list, tuple)) and len(value) == 3:
        x, y, z = (number(v) for v in value)
        return (x, y, z)
    return NO_TRIPLE
