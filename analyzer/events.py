"""The trace events that are read, as msgspec types: what is not named here is skipped without being built.

One decoder serves every PyTorch from 1.8 (2021) on: the event's `ph` picks the type, unknown keys are skipped, and
what the fast types refuse (a string where a number belongs, an unknown `ph`) goes through `lenient`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, reduce
from operator import or_
from typing import Any

import msgspec
from msgspec import Raw, Struct, field

NONE = -1.0  # "not in the event", for numbers that cannot be negative
NO_TIME = math.nan
NO_TRIPLE = (NONE, NONE, NONE)
NO_TEXT = Raw()

_Number = float
_NumberOrText = float | str | None


class SliceArgs(Struct, gc=False, frozen=True):
    """`args` of complete events: kernels, copies, runtime calls, operators, Python frames."""

    correlation: _NumberOrText = NONE
    stream: _NumberOrText = NONE
    device: _NumberOrText = NONE
    bytes: _NumberOrText = NONE
    grid: tuple[_Number, _Number, _Number] | str | None = NO_TRIPLE
    block: tuple[_Number, _Number, _Number] | str | None = NO_TRIPLE
    collective: Raw = field(name="Collective name", default=NO_TEXT)
    collective_elements: _NumberOrText = field(name="In msg nelems", default=NONE)
    collective_dtype: Raw = field(name="dtype", default=NO_TEXT)
    group_size: _NumberOrText = field(name="Group size", default=NONE)
    process_group: Raw = field(name="Process Group Name", default=NO_TEXT)
    process_group_ranks: Raw = field(name="Process Group Ranks", default=NO_TEXT)
    collective_sequence: _NumberOrText = field(name="Seq", default=NONE)
    dims: Raw = field(name="Input Dims", default=NO_TEXT)
    types: Raw = field(name="Input type", default=NO_TEXT)
    concrete: Raw = field(name="Concrete Inputs", default=NO_TEXT)
    stack: Raw = field(name="Call stack", default=NO_TEXT)
    sequence: _NumberOrText = field(name="Sequence number", default=NONE)
    forward_thread: _NumberOrText = field(name="Fwd thread id", default=NONE)
    awaited_stream: _NumberOrText = field(name="wait_on_stream", default=NONE)
    event_record: _NumberOrText = field(name="wait_on_cuda_event_record_corr_id", default=NONE)
    python_id: _NumberOrText = field(name="Python id", default=NONE)
    event_index: _NumberOrText = field(name="Ev Idx", default=NONE)


class InstantArgs(Struct, gc=False, frozen=True):
    """`args` of instants; only `[memory]` carries these."""

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
    cat: str = ""
    id: _NumberOrText = NONE
    pid: _NumberOrText = NONE
    tid: _NumberOrText = NONE
    ts: _Number = NO_TIME


class FlowEnd(Struct, gc=False, tag_field="ph", tag="f"):
    cat: str = ""
    id: _NumberOrText = NONE
    pid: _NumberOrText = NONE
    tid: _NumberOrText = NONE
    ts: _Number = NO_TIME


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


class Ignored(Struct, gc=False):
    """An event of a phase that carries nothing we read."""


_IGNORED = tuple(
    msgspec.defstruct(f"Ignored_{ord(phase)}", [], bases=(Ignored,), tag_field="ph", tag=phase, gc=False)
    for phase in "tICBEbneSTpPNODRcvV()"
)
Event = Slice | FlowStart | FlowEnd | Instant | Meta | Ignored
_ANY: Any = reduce(or_, _IGNORED, Slice | FlowStart | FlowEnd | Instant | Meta)

decode_events: Callable[[bytes], list[Event]] = msgspec.json.Decoder(list[_ANY]).decode
decode_event: Callable[[bytes | Raw], Event] = msgspec.json.Decoder(_ANY).decode

_BY_PHASE: dict[str, type[Struct]] = {"X": Slice, "s": FlowStart, "f": FlowEnd, "i": Instant, "M": Meta}


_fields = cache(msgspec.structs.fields)


def _time(value: object) -> float:
    """Microseconds from a number or a numeric string; NO_TIME otherwise."""
    try:
        time = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return NO_TIME
    return time if math.isfinite(time) else NO_TIME


def number(value: object) -> float:
    """A number, or a numeric string; anything else is NONE."""
    time = _time(value)
    return NONE if math.isnan(time) else time


def lenient(raw: object) -> Event | None:
    """An event from plain decoded JSON whose values have unexpected types; None for what is no event."""
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
    return kind(**values)  # type: ignore[return-value]


def _raw(value: object) -> Raw:
    """A decoded value's JSON text again; none where it is nested or long beyond sense."""
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
        else:
            values[column.name] = number(value)
    return kind(**values)


def triple(value: object) -> tuple[float, float, float]:
    """Three numbers from a list, or NO_TRIPLE (Triton has written `"grid": "grid(128,)"`)."""
    if isinstance(value, (list, tuple)) and len(value) == 3:
        x, y, z = (number(v) for v in value)
        return (x, y, z)
    return NO_TRIPLE
