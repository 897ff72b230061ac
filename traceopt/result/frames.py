"""The tables of a result as pandas frames: the rows of the JSON document, each column with its meaning and unit.

Columns follow from the fields of the document. A place in the code is five columns: those of Location.
What was not measured is missing (NaN, NA), never 0. `frame.attrs["columns"]` says what each column means;
docs/frames.md is made from the same tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin

from msgspec import Struct
from msgspec.structs import asdict

from traceopt.result.document import Check
from traceopt.result.field_notes import field_notes
from traceopt.result.finding import Finding, Fix, Location, Saving
from traceopt.result.sections.rank_rows import (
    Collective,
    CommunicationGroup,
    ExpertLayerRow,
    ExpertRow,
    GroupOverlapRow,
    PipelineRow,
    RankRow,
    RunRanks,
    SlowRanks,
)
from traceopt.result.sections.step import ServingPhase, Step
from traceopt.result.sections.timeline_rows import FlameGraph, FlameNode, Span, Stall, Timeline
from traceopt.result.sections.work_rows import (
    BreakdownPart,
    Copy,
    Gemm,
    IdleCause,
    Kernel,
    MemoryPart,
    MemoryPoint,
    ModuleClass,
    ModuleRow,
    Op,
    PlanRow,
    ShapedOperator,
)
from traceopt.result.tables.step_tables import LAUNCHES
from traceopt.result.words.effort_and_risk import Effort, Risk

if TYPE_CHECKING:
    from pandas import DataFrame

    from traceopt.result.document import Result

TEXT, NUMBER, WHOLE, FLAG = "string", "float64", "Int64", "boolean"  # pandas' names; all can be missing
_DTYPES = {str: TEXT, Effort: TEXT, Risk: TEXT, float: NUMBER, int: WHOLE, bool: FLAG}

Columns = Mapping[str, tuple[str, str]]  # name: (dtype, meaning with unit)


class FrameTable(Struct, frozen=True, dict=True):
    """A frame. `about` says what a row is, and their order. `rows` gives those of a result: structs, or their cells by
    column. Columns are the fields of `row`, or `only` some of them, and others before and after these; `more` gives
    those that only this result has.
    """

    about: str
    rows: Callable[[Result], Iterable[Any]]
    row: type[Struct] | None = None
    only: tuple[str, ...] = ()
    before: Columns = {}
    after: Columns = {}
    more: Callable[[Result], Columns] = lambda _: {}

    @cached_property
    def columns(self) -> Columns:
        fields = _columns(self.row) if self.row is not None else {}
        return {**self.before, **({name: fields[name] for name in self.only} or fields), **self.after}

    def __get__(self, frames: Frames, of: type[Frames]) -> DataFrame:
        from pandas import DataFrame, Series

        columns, cells = {**self.columns, **self.more(frames.result)}, list(map(_cells, self.rows(frames.result)))
        frame = DataFrame(
            {column: Series([row.get(column) for row in cells], dtype=dtype) for column, (dtype, _) in columns.items()}
        )
        frame.attrs["columns"] = {column: meaning for column, (_, meaning) in columns.items()}
        return frame


def _columns(row: type[Struct], **renamed: str) -> Columns:
    """The fields of a row that are one value, and its place. `renamed`: only these fields, under another name."""
    columns: dict[str, tuple[str, str]] = {}
    for name, field in field_notes(row).items():
        types = [argument for argument in (get_args(field.type) or (field.type,)) if argument is not type(None)]
        if name == "location":
            columns |= _columns(Location)
        elif not renamed or name in renamed:
            dtype = TEXT if _is_literal(field.type) or _is_literal(types[0]) else _DTYPES.get(types[0])
            if dtype is not None and get_origin(field.type) in (None, Literal, Union, UnionType):
                columns[renamed.get(name, name)] = dtype, field.words
    return columns


def _is_literal(type_: Any) -> bool:
    return get_origin(type_) is Literal


class Frames(Struct, frozen=True):
    """The frames of one result, made when asked for."""

    result: Result

    findings = FrameTable(
        "What the rules found: first the plan in its order, then the rest by what each saves alone.",
        lambda result: map(_finding, result.findings),
        Finding,
        after={
            **_columns(
                Saving, low_us="saving_low_us", est_us="saving_us", high_us="saving_high_us", share="saving_share"
            ),
            **_columns(Fix, text="fix", patch="patch"),
            "ranks": (TEXT, 'ranks that have it: "0, 3"'),
            **_columns(Location),
        },
    )
    plan = FrameTable(
        "The fixes worth making, in order. Each saving assumes those above.", lambda result: result.plan, PlanRow
    )
    breakdown = FrameTable(
        "Exclusive parts of the typical step, which add up to it.", lambda result: result.breakdown, BreakdownPart
    )
    idle = FrameTable("Idle time of the GPU by its cause.", lambda result: result.gpu.idle_by_cause, IdleCause)
    steps = FrameTable(
        "The measured steps, in order. Each part of the step has one more column, named as in the breakdown: "
        "`compute_us`, `data_loading_us`.",
        lambda result: _steps(result.step),
        before={
            "step": (WHOLE, "number of the step, from 0"),
            "name": (TEXT, "name of the step"),
            "us": (NUMBER, "duration, µs"),
            "typical": (FLAG, "whether it counts for the typical step"),
            "evaluated": (FLAG, "whether it holds an evaluation, as far as traceopt run recorded it"),
            "saved": (FLAG, "whether it saves a checkpoint, as far as traceopt run recorded it"),
            "peak_memory_bytes": (WHOLE, "peak of the device memory in tensors, bytes"),
        },
        more=lambda result: _parts(result.step),
    )
    serving = FrameTable(
        "Steps of a serving engine (vLLM, SGLang) by phase, most time first.",
        lambda result: result.serving.phases if result.serving is not None else [],
        ServingPhase,
    )
    kernels = FrameTable(
        "GPU work by kernel name, longest first; at most 200 names.", lambda result: result.kernels, Kernel
    )
    launches = FrameTable(
        "How the kernels were launched, longest first: fewer columns of the same kernels.",
        lambda result: result.kernels,
        Kernel,
        only=("name", *(column.key for column in LAUNCHES.columns if column.key in Kernel.__struct_fields__)),
    )
    ops = FrameTable(
        "CPU operators by name, by the GPU time they launched (without a GPU by their own); at most 200 names.",
        lambda result: result.ops,
        Op,
    )
    gemms = FrameTable(
        "Matmuls by shape, D[M,N] = A[M,K] B[K,N], longest first; at most 200 shapes.",
        lambda result: result.gemms,
        Gemm,
    )
    shaped_ops = FrameTable(
        "Convolutions and attention by shape, longest first; at most 200 shapes.",
        lambda result: result.shaped_ops,
        ShapedOperator,
    )
    modules = FrameTable(
        "The model as a tree of nn.Modules, callers first; `parent` is the number of the row that calls it.",
        lambda result: result.modules,
        ModuleRow,
    )
    module_classes = FrameTable(
        "The same modules by class, longest first.", lambda result: result.module_classes, ModuleClass
    )
    flame = FrameTable(
        "The call tree of the main thread in the shown step, callers first; `parent` is the number of the row that "
        "calls it.",
        lambda result: _flame(result.flame) if result.flame is not None else [],
        FlameNode,
        only=tuple(name for name in FlameNode.__struct_fields__ if name != "frame"),
        before={"name": (TEXT, "name of the frame, operator, call or kernel")},
    )
    collectives = FrameTable(
        "Collectives by name, longest first.", lambda result: result.communication.collectives, Collective
    )
    process_groups = FrameTable(
        "Collectives by process group, most exposed first; empty if the trace does not name the groups.",
        lambda result: map(_of_ranks, result.communication.groups),
        CommunicationGroup,
        after={"ranks": (TEXT, 'its ranks: "0, 3"; empty: not recorded')},
    )
    overlaps = FrameTable(
        "What runs while each process group communicates.",
        lambda result: result.communication.overlaps,
        GroupOverlapRow,
    )
    pipeline = FrameTable(
        "The stages of the pipeline of the shown rank.", lambda result: result.communication.pipeline, PipelineRow
    )
    experts = FrameTable("The experts of each rank.", lambda result: result.communication.experts, ExpertRow)
    expert_layers = FrameTable(
        "The layers with experts, and the rank that gets most tokens.",
        lambda result: result.communication.expert_layers,
        ExpertLayerRow,
    )
    copies = FrameTable("Copies by kind, longest first.", lambda result: result.copies, Copy)
    ranks = FrameTable("A row for each file that was read.", lambda result: result.ranks, RankRow)
    slow_ranks = FrameTable(
        "Ranks that were slow in some steps of the run, most expensive first.",
        lambda result: map(_of_ranks, _run_ranks(result).slow),
        SlowRanks,
        before={"ranks": (TEXT, 'the ranks: "0, 3"')},
    )
    run_ranks = FrameTable(
        "Each rank in each stretch of the run's steps.",
        lambda result: _stretches(_run_ranks(result)),
        before={
            "ranks": (TEXT, 'the rank, or several neighboring ones: "0, 1"'),
            "first_step": (WHOLE, "first step of the stretch"),
            "longer": (NUMBER, "what a step takes beyond the median of the other ranks, as a part of that"),
        },
    )
    memory = FrameTable(
        "Device memory over the shown step, thinned to minima and maxima.",
        lambda result: result.memory.curve,
        MemoryPoint,
    )
    memory_parts = FrameTable(
        "What the memory holds at its peak.", lambda result: result.memory.composition, MemoryPart
    )
    spans = FrameTable(
        "The timeline of the shown step: the longest spans of each lane, in order of time.",
        lambda result: _spans(result.timeline) if result.timeline is not None else [],
        Span,
        before={"lane": (TEXT, "thread or stream")},
    )
    stalls = FrameTable(
        "Stretches of the shown step without GPU work.",
        lambda result: result.timeline.stalls if result.timeline is not None else [],
        Stall,
    )
    checks = FrameTable("What each rule answered.", lambda result: result.checks, Check)


TABLES: Mapping[str, FrameTable] = {
    name: table for name, table in vars(Frames).items() if isinstance(table, FrameTable)
}


def _run_ranks(result: Result) -> RunRanks:
    run = result.whole_run.ranks if result.whole_run is not None else None
    return run or RunRanks(0, [], [], [], [], [], [])


def _finding(finding: Finding) -> dict[str, Any]:
    row = asdict(finding) | _place(finding.locations[0] if finding.locations else None)
    row |= {"effort": str(finding.effort), "risk": str(finding.risk)}
    row |= {"fix": finding.fix.text, "patch": finding.fix.patch, "ranks": _listed(finding.ranks)}
    if finding.saving is not None:
        saving = finding.saving
        row |= {"saving_low_us": saving.low_us, "saving_us": saving.est_us, "saving_high_us": saving.high_us}
        row |= {"saving_share": saving.share}
    return row


def _steps(step: Step) -> list[dict[str, Any]]:
    """The parts of a step are columns; steps that `series` does not hold lack them."""
    series, typical = step.series, set(step.typical_steps)
    rows: list[dict[str, Any]] = [
        {"step": index, "us": us, "typical": index in typical} for index, us in enumerate(step.per_step_us)
    ]
    if series is None:
        return rows
    evaluated, saved = set(series.evaluated), set(series.saved)
    for index, name in enumerate(series.names):
        row = rows[series.first + index]
        row |= {"name": name, "evaluated": index in evaluated, "saved": index in saved}
        row |= {f"{part.name}_us": part.us[index] for part in series.parts}
        if series.peak_memory_bytes:
            row["peak_memory_bytes"] = series.peak_memory_bytes[index]
    return rows


def _parts(step: Step) -> Columns:
    parts = step.series.parts if step.series is not None else []
    return {f"{part.name}_us": (NUMBER, f"{part.label}, µs") for part in parts}


def _flame(flame: FlameGraph) -> Iterator[dict[str, Any]]:
    return ({**asdict(node), "name": flame.frames[node.frame]} for node in flame.nodes)


def _of_ranks(row: CommunicationGroup | SlowRanks) -> dict[str, Any]:
    return {**asdict(row), "ranks": _listed(row.ranks)}


def _stretches(run: RunRanks) -> Iterator[dict[str, Any]]:
    return (
        {"ranks": _listed(row.ranks), "first_step": step, "longer": longer}
        for row in run.rows
        for step, longer in zip(run.first_steps, row.longer, strict=True)
    )


def _spans(timeline: Timeline) -> Iterator[dict[str, Any]]:
    return ({"lane": lane.name, **asdict(span)} for lane in timeline.lanes for span in lane.spans)


def _listed(ranks: Iterable[int]) -> str:
    return ", ".join(map(str, ranks))


def _cells(row: Struct | dict[str, Any]) -> dict[str, Any]:
    return row if isinstance(row, dict) else {**asdict(row), **_place(getattr(row, "location", None))}


def _place(location: Any) -> dict[str, Any]:
    return {name: getattr(location, name, None) for name in Location.__struct_fields__}
