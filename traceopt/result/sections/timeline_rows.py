"""The spans of a step, as lanes and as packed tables, and the flame graph."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Struct

from traceopt.result.field_notes import note
from traceopt.result.finding import Location

COLUMNS = (
    "start",  # ticks since the span before on the same lane started; of the first, since the table's zero
    "duration",  # ticks
    "name",  # code
    "category",  # code
    "place",  # code + 1; 0: not known
    "detail",  # code + 1; 0: none
)

STREAM_COLUMNS = (
    "operator",  # code of its name + 1; 0: not known
    "operator_detail",  # code + 1; 0: none
    "launch_thread",  # index of the lane + 1; 0: not known, or not shown
    "launch_delay",  # ticks from the start of the launch call to the start of the work, + 1; 0: not known
)

LaneKind = Literal["activity", "thread", "idle", "stream"]


class Span(Struct, frozen=True):
    """A bar on a lane of the timeline."""

    start_us: Annotated[float, note("time since the step began", "us")]
    duration_us: Annotated[float, note("duration", "us")]
    name: Annotated[str, note("name of the event")]
    category: Annotated[
        str,
        note(
            "what it is: compute, comm, copy on a GPU; loader, input, wait, logging, checkpoint, gc, cpu on the host; "
            "forward, backward, optimizer in a CPU-only run"
        ),
    ]


class Occupancy(Struct, frozen=True):
    """How full the parts of a lane are with spans of one category."""

    category: Annotated[str, note("what the spans are, as in Span")]
    shares: Annotated[list[float], note("of each of equally long parts of the step, the time that spans fill", "share")]


class Lane(Struct, frozen=True):
    """A thread or a stream on the timeline."""

    key: Annotated[str, note("key of the lane")]
    name: Annotated[str, note("thread or stream")]
    detail: Annotated[str, note("what runs there")]
    spans: Annotated[list[Span], note("the longest spans, in order of time")]
    total: Annotated[int, note("how many spans lie in the step")]
    occupancy: Annotated[
        list[Occupancy], note("how full each part of the step is with all of these spans; empty for a few spans")
    ] = []


class StepWindow(Struct, frozen=True):
    """A step whose spans are in the table."""

    step: Annotated[int, note("index into per_step_us")]
    name: Annotated[str, note("name of the step")]
    start_us: Annotated[float, note("start since the table's zero", "us")]
    duration_us: Annotated[float, note("duration", "us")]


class SpanLane(Struct, frozen=True):
    """A row of spans: what a thread did in words, its events, gaps without GPU work, or the work of a stream."""

    kind: Annotated[
        LaneKind,
        note(
            '"activity": exclusive activities of a thread; "thread": its nested events; "idle": gaps between work of '
            'the GPU that are too short for `stalls`; "stream": work of the GPU'
        ),
    ]
    name: Annotated[str, note("thread or stream")]
    detail: Annotated[str, note("number of the thread or stream")]
    count: Annotated[int, note("spans in the table")]
    left_out: Annotated[
        int, note("shorter spans of these steps that are not in the table, because it would be too large")
    ]


class Stall(Struct, frozen=True):
    """A stretch of the shown step without GPU work."""

    start_us: Annotated[float, note("time since the step began", "us")]
    duration_us: Annotated[float, note("duration", "us")]
    cause: Annotated[str, note("key of the part in the breakdown")]
    label: Annotated[str, note("the cause in words")]
    location: Annotated[Location | None, note("line of the user's code that the host ran")] = None


class SpanTable(Struct, frozen=True):
    """Every span of consecutive steps around the shown one, as many steps as fit.

    `columns` is packed (`packing.pack_columns`): the columns of COLUMNS, then those of STREAM_COLUMNS. A column of
    COLUMNS has a value for every span, lane after lane, sorted by start; a column of STREAM_COLUMNS has one for every
    span of the lanes of kind "stream". Codes point into the lists of the table. spans.js of the report has the decoder.
    """

    steps: Annotated[list[StepWindow], note("the steps whose spans are in the table")]
    lanes: Annotated[list[SpanLane], note("threads, then streams")]
    names: Annotated[list[str], note("names of spans, as recorded")]
    labels: Annotated[list[str], note("short forms of the names of kernels; empty where the name is short")]
    categories: Annotated[list[str], note("what spans are: as in Span, and runtime, python, annotation")]
    places: Annotated[list[Location], note("lines of the user's or a model's code")]
    details: Annotated[list[str], note("shapes and types of operators, sizes of copies, launch dimensions of kernels")]
    stalls: Annotated[list[Stall], note("stretches of these steps without GPU work, since the table's zero")]
    columns: Annotated[str, note("the spans, packed: traceopt/result/sections/timeline_rows.py describes the format")]
    tick_ns: Annotated[int, note("unit of the times in `columns`", "ns")] = 1


class Timeline(Struct, frozen=True):
    """One typical step as lanes of bars."""

    step: Annotated[str, note("name of the step")]
    duration_us: Annotated[float, note("duration of the step", "us")]
    lanes: Annotated[list[Lane], note("threads and streams")]
    stalls: Annotated[list[Stall], note("stretches without GPU work")]
    table: Annotated[
        SpanTable | None, note("every span of this step and the steps around it; null in a report that cannot zoom")
    ] = None


FlameKind = Literal["user", "library", "annotation", "operator", "runtime", "kernel"]


class FlameNode(Struct, frozen=True):
    """One frame, operator, call or kernel below another."""

    parent: Annotated[int, note("index of the caller's node; -1: none")]
    frame: Annotated[int, note("index of its name")]
    kind: Annotated[FlameKind, note("what it is; user: a Python frame of the user's code")]
    total_us: Annotated[float, note("host time, callees included", "us")]
    self_us: Annotated[float, note("host time, callees excluded", "us")]
    gpu_us: Annotated[
        float, note("time of the GPU work that it and its callees launched, in forward and backward", "us")
    ]
    category: Annotated[str, note('what the timeline calls it, if that says more than `kind`: "loader", "wait"')] = ""


class FlameGraph(Struct, frozen=True):
    """The call tree of the main thread in the shown step."""

    step: Annotated[str, note("name of the step")]
    duration_us: Annotated[float, note("duration of the step, as in the timeline", "us")]
    gpu_us: Annotated[float | None, note("time of the GPU work that the step launched; null: no GPU", "us")]
    other_gpu_us: Annotated[float | None, note("the part of it whose calling line is not known", "us")]
    left_out: Annotated[int, note("nodes that are too small to be seen")]
    frames: Annotated[list[str], note("names of frames, operators, calls and kernels")]
    nodes: Annotated[list[FlameNode], note("callers come before callees")]
    backward_gpu_us: Annotated[
        float | None,
        note("the part of gpu_us that a backward pass launched; it counts for the forward operators' lines", "us"),
    ] = None
