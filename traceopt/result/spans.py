"""Every span of the shown steps, as columns: for the timeline that zooms, which draws more than a bar per event.

`columns` is packed (`packing.pack_columns`): the columns of COLUMNS, then those of STREAM_COLUMNS. A column of COLUMNS
has a value for every span, lane after lane, sorted by start; a column of STREAM_COLUMNS has one for every span of the
lanes of kind "stream". Codes point into the lists of the table. timeline.js has the decoder.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Struct

from traceopt.result.field_notes import note
from traceopt.result.finding import Location

COLUMNS = (
    "start",  # ns since the span before on the same lane started; of the first, since the table's zero
    "duration",  # ns
    "name",  # code
    "category",  # code
    "place",  # code + 1; 0: not known
    "detail",  # code + 1; 0: none
)
STREAM_COLUMNS = (
    "operator",  # code of its name + 1; 0: not known
    "operator_detail",  # code + 1; 0: none
    "launch_thread",  # index of the lane + 1; 0: not known, or not shown
    "launch_delay",  # ns from the start of the launch call to the start of the work, + 1; 0: not known
)


LaneKind = Literal["activity", "thread", "stream"]


class StepWindow(Struct, frozen=True):
    """A step whose spans are in the table."""

    step: Annotated[int, note("index into per_step_us")]
    name: Annotated[str, note("name of the step")]
    start_us: Annotated[float, note("start since the table's zero", "us")]
    duration_us: Annotated[float, note("duration", "us")]


class SpanLane(Struct, frozen=True):
    """A row of spans: what a thread did in words, its events, or the work of a stream."""

    kind: Annotated[
        LaneKind,
        note('"activity": exclusive activities of a thread; "thread": its nested events; "stream": work of the GPU'),
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
    """Spans of consecutive steps around the shown one, as many steps as fit."""

    steps: Annotated[list[StepWindow], note("the steps whose spans are in the table")]
    lanes: Annotated[list[SpanLane], note("threads, then streams")]
    names: Annotated[list[str], note("names of spans, as recorded")]
    labels: Annotated[list[str], note("short forms of the names of kernels; empty where the name is short")]
    categories: Annotated[list[str], note("what spans are: as in Span, and runtime, python, annotation")]
    places: Annotated[list[Location], note("lines of the user's or a model's code")]
    details: Annotated[list[str], note("shapes and types of operators, sizes of copies, launch dimensions of kernels")]
    stalls: Annotated[list[Stall], note("stretches of these steps without GPU work, since the table's zero")]
    columns: Annotated[str, note("the spans, packed: traceopt/result/spans.py describes the format")]
