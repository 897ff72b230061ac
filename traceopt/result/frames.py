"""The tables of a result as pandas frames: the rows of the JSON document, each column with its unit.

A place in the code is four columns: file, line, last_line and function. What was not measured is missing (NaN, NA),
never 0.
`frame.attrs["columns"]` says what each column means; docs/frames.md is made from the same tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import asdict

if TYPE_CHECKING:
    from pandas import DataFrame

    from traceopt.result.document import Result
    from traceopt.result.finding import Finding

TEXT, NUMBER, WHOLE, FLAG = "string", "float64", "Int64", "boolean"  # pandas' names; all can be missing

Columns = Mapping[str, tuple[str, str]]  # name: (dtype, unit or meaning)

_PLACE: Columns = {
    "file": (TEXT, "file of the user's code"),
    "line": (WHOLE, "its line, from 1"),
    "last_line": (WHOLE, "where it may be any line up to this one"),
    "function": (TEXT, "the function around it"),
}
_CALLS: Columns = {
    "calls_per_step": (NUMBER, "calls a step"),
    "us_per_step": (NUMBER, "µs a step"),
}
_MOVED: Columns = {
    **_CALLS,
    "exposed_us_per_step": (NUMBER, "µs a step with no compute beside it"),
    "bytes_per_step": (NUMBER, "bytes a step"),
    "gb_per_s": (NUMBER, "10⁹ bytes a second"),
}


class Table(Struct, frozen=True):
    """`about` says what a row is, and their order."""

    about: str
    columns: Columns


TABLES: Mapping[str, Table] = {
    "findings": Table(
        "What the rules found, most valuable first. Savings overlap: do not add them up.",
        {
            "code": (TEXT, "of the rule"),
            "name": (TEXT, "of the rule"),
            "title": (TEXT, "what to change"),
            "impact": (TEXT, "high, medium, low, or info without a saving"),
            "confidence": (TEXT, "high, medium or low"),
            "effort": (TEXT, "of the change"),
            "risk": (TEXT, "of the change"),
            "saving_low_us": (NUMBER, "µs a step, at least"),
            "saving_us": (NUMBER, "µs a step, expected"),
            "saving_high_us": (NUMBER, "µs a step, at most"),
            "saving_share": (NUMBER, "of the step, 0..1"),
            "why": (TEXT, "the measured reason"),
            "fix": (TEXT, "the change in words"),
            "patch": (TEXT, "unified diff of the user's file"),
            "ranks": (TEXT, '"0, 3": those that have it'),
            **_PLACE,
        },
    ),
    "breakdown": Table(
        "Exclusive parts of the mean step, which sum to it.",
        {
            "name": (TEXT, "key of the part"),
            "label": (TEXT, "the part in words"),
            "busy": (FLAG, "the GPU works; on a CPU-only run the model does"),
            "us_per_step": (NUMBER, "µs a step"),
            "share": (NUMBER, "of the step, 0..1"),
            "raw_us_per_step": (NUMBER, "µs a step, with what is hidden behind other parts"),
        },
    ),
    "idle": Table(
        "Idle time of the GPU by its cause.",
        {
            "cause": (TEXT, "key of the cause"),
            "label": (TEXT, "the cause in words"),
            "us_per_step": (NUMBER, "µs a step"),
            "share": (NUMBER, "of the step window, 0..1"),
        },
    ),
    "steps": Table(
        "The measured steps, in order.",
        {"step": (WHOLE, "from 0"), "us": (NUMBER, "µs")},
    ),
    "kernels": Table(
        "GPU work by kernel name, longest first; at most 200 names.",
        {
            "name": (TEXT, "as the profiler recorded it"),
            "kind": (TEXT, "gemm, attention, elementwise, memcpy, ..."),
            **_CALLS,
            "mean_us": (NUMBER, "µs a call"),
            "share": (NUMBER, "of the GPU's busy time, 0..1"),
            "tensor_core": (FLAG, "runs on Tensor Cores; missing: unknown, or no work for them"),
            "op": (TEXT, "operator that launched the longest call"),
            **_PLACE,
        },
    ),
    "ops": Table(
        "CPU operators by name, by the GPU time they launched (without a GPU by their own); at most 200 names.",
        {
            "name": (TEXT, "of the operator"),
            "calls_per_step": (NUMBER, "calls a step"),
            "gpu_us_per_step": (NUMBER, "µs a step of the GPU work it launched"),
            "cpu_self_us_per_step": (NUMBER, "µs a step of its own on the CPU"),
            "share": (NUMBER, "of the GPU's busy time; without a GPU of the step; 0..1"),
            **_PLACE,
        },
    ),
    "gemms": Table(
        "Matrix products by shape, D[M,N] = A[M,K] B[K,N], longest first; at most 200 shapes.",
        {
            "op": (TEXT, "operator"),
            "m": (WHOLE, "rows of the result"),
            "n": (WHOLE, "columns of the result"),
            "k": (WHOLE, "summed dimension"),
            "batch": (WHOLE, "products a call"),
            "dtype": (TEXT, "of the operands"),
            "calls": (NUMBER, "calls a step"),
            "us_per_step": (NUMBER, "µs a step"),
            "tflops": (NUMBER, "10¹² FLOP a second, 2·M·N·K·batch FLOP a call"),
            "peak_share": (NUMBER, "of the hardware's peak for the dtype, 0..1"),
            "aligned": (FLAG, "N and K are what Tensor Cores need"),
            "tensor_core": (FLAG, "runs on Tensor Cores"),
            **_PLACE,
        },
    ),
    "collectives": Table(
        "Collectives by name, longest first.", {"name": (TEXT, "of the collective"), **_MOVED, **_PLACE}
    ),
    "copies": Table(
        "Copies by kind, longest first.", {"kind": (TEXT, '"HtoD pageable", "DtoH pinned", ...'), **_MOVED}
    ),
    "ranks": Table(
        "A row for each file that was read.",
        {
            "rank": (WHOLE, "missing where the file does not say"),
            "path": (TEXT, "of the trace"),
            "step_median_us": (NUMBER, "µs"),
            "gpu_busy_share": (NUMBER, "of the step window, 0..1"),
            "dataloader_stall_us": (NUMBER, "µs a step"),
            "exposed_communication_us": (NUMBER, "µs a step"),
            "verdict": (TEXT, "how far the trace can be trusted: good, limited or unusable"),
            "waited_for_us": (NUMBER, "µs that the others wait for this one in the median step"),
        },
    ),
    "memory": Table(
        "Device memory over the shown step, thinned to minima and maxima.",
        {
            "us": (NUMBER, "µs since the step began"),
            "allocated_bytes": (WHOLE, "bytes in tensors"),
            "reserved_bytes": (WHOLE, "bytes held by the allocator"),
        },
    ),
    "memory_parts": Table(
        "What the memory holds at its peak.",
        {"name": (TEXT, "of the part"), "bytes": (WHOLE, "bytes")},
    ),
    "spans": Table(
        "The timeline of the shown step: the longest spans of each lane, in order of time.",
        {
            "lane": (TEXT, "thread or stream"),
            "name": (TEXT, "of the event"),
            "category": (TEXT, "compute, comm, copy, loader, cpu or wait"),
            "start_us": (NUMBER, "µs since the step began"),
            "duration_us": (NUMBER, "µs"),
        },
    ),
    "stalls": Table(
        "Stretches of the shown step without GPU work.",
        {
            "cause": (TEXT, "key of the part in the breakdown"),
            "label": (TEXT, "the cause in words"),
            "start_us": (NUMBER, "µs since the step began"),
            "duration_us": (NUMBER, "µs"),
            **_PLACE,
        },
    ),
    "checks": Table(
        "What each rule answered.",
        {
            "code": (TEXT, "of the rule"),
            "name": (TEXT, "of the rule"),
            "title": (TEXT, "what to change if it fires"),
            "status": (TEXT, "found, passed, not_checked, not_applicable or error"),
            "reason": (TEXT, "why"),
        },
    ),
}


class Frames(Struct, frozen=True):
    """The frames of one result, made when asked for. TABLES says what their rows and columns are."""

    result: Result

    @property
    def findings(self) -> DataFrame:
        return _frame("findings", map(_finding, self.result.findings))

    @property
    def breakdown(self) -> DataFrame:
        return _rows("breakdown", self.result.breakdown)

    @property
    def idle(self) -> DataFrame:
        return _rows("idle", self.result.gpu.idle_by_cause)

    @property
    def steps(self) -> DataFrame:
        return _frame("steps", ({"step": index, "us": us} for index, us in enumerate(self.result.step.per_step_us)))

    @property
    def kernels(self) -> DataFrame:
        return _rows("kernels", self.result.kernels)

    @property
    def ops(self) -> DataFrame:
        return _rows("ops", self.result.ops)

    @property
    def gemms(self) -> DataFrame:
        return _rows("gemms", self.result.gemms)

    @property
    def collectives(self) -> DataFrame:
        return _rows("collectives", self.result.communication.collectives)

    @property
    def copies(self) -> DataFrame:
        return _rows("copies", self.result.copies)

    @property
    def ranks(self) -> DataFrame:
        return _rows("ranks", self.result.ranks)

    @property
    def memory(self) -> DataFrame:
        return _rows("memory", self.result.memory.curve)

    @property
    def memory_parts(self) -> DataFrame:
        return _rows("memory_parts", self.result.memory.composition)

    @property
    def spans(self) -> DataFrame:
        lanes = self.result.timeline.lanes if self.result.timeline is not None else []
        return _frame("spans", ({"lane": lane.name, **_fields(span)} for lane in lanes for span in lane.spans))

    @property
    def stalls(self) -> DataFrame:
        return _rows("stalls", self.result.timeline.stalls if self.result.timeline is not None else [])

    @property
    def checks(self) -> DataFrame:
        return _rows("checks", self.result.checks)


def _finding(finding: Finding) -> dict[str, Any]:
    row = _fields(finding) | _place(finding.locations[0] if finding.locations else None)
    row |= {"fix": finding.fix.text, "patch": finding.fix.patch, "ranks": ", ".join(map(str, finding.ranks))}
    if finding.saving is not None:
        saving = finding.saving
        row |= {"saving_low_us": saving.low_us, "saving_us": saving.est_us, "saving_high_us": saving.high_us}
        row |= {"saving_share": saving.share}
    return row


def _rows(table: str, rows: Iterable[Any]) -> DataFrame:
    return _frame(table, ({**_fields(row), **_place(getattr(row, "location", None))} for row in rows))


def _fields(row: Any) -> dict[str, Any]:
    return asdict(row)


def _place(location: Any) -> dict[str, Any]:
    return {name: getattr(location, name, None) for name in _PLACE}


def _frame(name: str, rows: Iterable[Mapping[str, Any]]) -> DataFrame:
    from pandas import DataFrame, Series

    columns, cells = TABLES[name].columns, list(rows)
    frame = DataFrame(
        {column: Series([row.get(column) for row in cells], dtype=dtype) for column, (dtype, _) in columns.items()}
    )
    frame.attrs["columns"] = {column: meaning for column, (_, meaning) in columns.items()}
    return frame
