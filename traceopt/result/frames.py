"""The tables of a result as pandas frames: the rows of the JSON document, each column with its meaning and unit.

Columns follow from the fields of the document. A place in the code is four columns: file, line, function and last_line.
What was not measured is missing (NaN, NA), never 0. `frame.attrs["columns"]` says what each column means;
docs/frames.md is made from the same tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
from traceopt.result.sections.timeline_rows import FlameNode, Span, Stall
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
    """`about` says what a row is, and their order. Columns are the fields of `row`, or `only` some of them, and others
    before and after these.
    """

    about: str
    row: type[Struct] | None = None
    only: tuple[str, ...] = ()
    before: Columns = {}
    after: Columns = {}

    @cached_property
    def columns(self) -> Columns:
        fields = _columns(self.row) if self.row is not None else {}
        return {**self.before, **({name: fields[name] for name in self.only} or fields), **self.after}


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


TABLES: Mapping[str, FrameTable] = {
    "findings": FrameTable(
        "What the rules found: first the plan in its order, then the rest by what each saves alone.",
        Finding,
        after={
            **_columns(
                Saving, low_us="saving_low_us", est_us="saving_us", high_us="saving_high_us", share="saving_share"
            ),
            **_columns(Fix, text="fix", patch="patch"),
            "ranks": (TEXT, 'ranks that have it: "0, 3"'),
            **_columns(Location),
        },
    ),
    "plan": FrameTable("The fixes worth making, in order. Each saving assumes those above.", PlanRow),
    "breakdown": FrameTable("Exclusive parts of the typical step, which add up to it.", BreakdownPart),
    "idle": FrameTable("Idle time of the GPU by its cause.", IdleCause),
    "steps": FrameTable(
        "The measured steps, in order. Each part of the step has one more column, named as in the breakdown: "
        "`compute_us`, `data_loading_us`.",
        before={
            "step": (WHOLE, "number of the step, from 0"),
            "name": (TEXT, "name of the step"),
            "us": (NUMBER, "duration, µs"),
            "typical": (FLAG, "whether it counts for the typical step"),
            "evaluated": (FLAG, "whether it holds an evaluation, as far as traceopt run recorded it"),
            "saved": (FLAG, "whether it saves a checkpoint, as far as traceopt run recorded it"),
            "peak_memory_bytes": (WHOLE, "peak of the device memory in tensors, bytes"),
        },
    ),
    "serving": FrameTable("Steps of a serving engine (vLLM, SGLang) by phase, most time first.", ServingPhase),
    "kernels": FrameTable("GPU work by kernel name, longest first; at most 200 names.", Kernel),
    "launches": FrameTable(
        "How the kernels were launched, longest first: fewer columns of the same kernels.",
        Kernel,
        only=("name", *(column.key for column in LAUNCHES.columns if column.key in Kernel.__struct_fields__)),
    ),
    "ops": FrameTable(
        "CPU operators by name, by the GPU time they launched (without a GPU by their own); at most 200 names.", Op
    ),
    "gemms": FrameTable("Matmuls by shape, D[M,N] = A[M,K] B[K,N], longest first; at most 200 shapes.", Gemm),
    "shaped_ops": FrameTable("Convolutions and attention by shape, longest first; at most 200 shapes.", ShapedOperator),
    "modules": FrameTable(
        "The model as a tree of nn.Modules, callers first; `parent` is the number of the row that calls it.", ModuleRow
    ),
    "module_classes": FrameTable("The same modules by class, longest first.", ModuleClass),
    "flame": FrameTable(
        "The call tree of the main thread in the shown step, callers first; `parent` is the number of the row that "
        "calls it.",
        FlameNode,
        only=tuple(name for name in FlameNode.__struct_fields__ if name != "frame"),
        before={"name": (TEXT, "name of the frame, operator, call or kernel")},
    ),
    "collectives": FrameTable("Collectives by name, longest first.", Collective),
    "process_groups": FrameTable(
        "Collectives by process group, most exposed first; empty if the trace does not name the groups.",
        CommunicationGroup,
        after={"ranks": (TEXT, 'its ranks: "0, 3"; empty: not recorded')},
    ),
    "overlaps": FrameTable("What runs while each process group communicates.", GroupOverlapRow),
    "pipeline": FrameTable("The stages of the pipeline of the shown rank.", PipelineRow),
    "experts": FrameTable("The experts of each rank.", ExpertRow),
    "expert_layers": FrameTable("The layers with experts, and the rank that gets most tokens.", ExpertLayerRow),
    "copies": FrameTable("Copies by kind, longest first.", Copy),
    "ranks": FrameTable("A row for each file that was read.", RankRow),
    "slow_ranks": FrameTable(
        "Ranks that were slow in some steps of the run, most expensive first.",
        SlowRanks,
        before={"ranks": (TEXT, 'the ranks: "0, 3"')},
    ),
    "run_ranks": FrameTable(
        "Each rank in each stretch of the run's steps.",
        before={
            "ranks": (TEXT, 'the rank, or several neighboring ones: "0, 1"'),
            "first_step": (WHOLE, "first step of the stretch"),
            "longer": (NUMBER, "what a step takes beyond the median of the other ranks, as a part of that"),
        },
    ),
    "memory": FrameTable("Device memory over the shown step, thinned to minima and maxima.", MemoryPoint),
    "memory_parts": FrameTable("What the memory holds at its peak.", MemoryPart),
    "spans": FrameTable(
        "The timeline of the shown step: the longest spans of each lane, in order of time.",
        Span,
        before={"lane": (TEXT, "thread or stream")},
    ),
    "stalls": FrameTable("Stretches of the shown step without GPU work.", Stall),
    "checks": FrameTable("What each rule answered.", Check),
}


class Frames(Struct, frozen=True):
    """The frames of one result, made when asked for. TABLES says what their rows and columns are."""

    result: Result

    @property
    def findings(self) -> DataFrame:
        return _frame("findings", map(_finding, self.result.findings))

    @property
    def plan(self) -> DataFrame:
        return _rows("plan", self.result.plan)

    @property
    def breakdown(self) -> DataFrame:
        return _rows("breakdown", self.result.breakdown)

    @property
    def idle(self) -> DataFrame:
        return _rows("idle", self.result.gpu.idle_by_cause)

    @property
    def steps(self) -> DataFrame:
        return _steps(self.result.step)

    @property
    def serving(self) -> DataFrame:
        return _rows("serving", self.result.serving.phases if self.result.serving is not None else [])

    @property
    def kernels(self) -> DataFrame:
        return _rows("kernels", self.result.kernels)

    @property
    def launches(self) -> DataFrame:
        return _rows("launches", self.result.kernels)

    @property
    def ops(self) -> DataFrame:
        return _rows("ops", self.result.ops)

    @property
    def gemms(self) -> DataFrame:
        return _rows("gemms", self.result.gemms)

    @property
    def shaped_ops(self) -> DataFrame:
        return _rows("shaped_ops", self.result.shaped_ops)

    @property
    def modules(self) -> DataFrame:
        return _rows("modules", self.result.modules)

    @property
    def module_classes(self) -> DataFrame:
        return _rows("module_classes", self.result.module_classes)

    @property
    def flame(self) -> DataFrame:
        flame = self.result.flame
        nodes = [] if flame is None else [{**asdict(node), "name": flame.frames[node.frame]} for node in flame.nodes]
        return _frame("flame", nodes)

    @property
    def collectives(self) -> DataFrame:
        return _rows("collectives", self.result.communication.collectives)

    @property
    def process_groups(self) -> DataFrame:
        rows = self.result.communication.groups
        return _frame("process_groups", ({**asdict(row), "ranks": _listed(row.ranks)} for row in rows))

    @property
    def overlaps(self) -> DataFrame:
        return _rows("overlaps", self.result.communication.overlaps)

    @property
    def pipeline(self) -> DataFrame:
        return _rows("pipeline", self.result.communication.pipeline)

    @property
    def experts(self) -> DataFrame:
        return _rows("experts", self.result.communication.experts)

    @property
    def expert_layers(self) -> DataFrame:
        return _rows("expert_layers", self.result.communication.expert_layers)

    @property
    def copies(self) -> DataFrame:
        return _rows("copies", self.result.copies)

    @property
    def ranks(self) -> DataFrame:
        return _rows("ranks", self.result.ranks)

    @property
    def slow_ranks(self) -> DataFrame:
        return _frame(
            "slow_ranks", ({**asdict(row), "ranks": _listed(row.ranks)} for row in _run_ranks(self.result).slow)
        )

    @property
    def run_ranks(self) -> DataFrame:
        run = _run_ranks(self.result)
        return _frame(
            "run_ranks",
            (
                {"ranks": _listed(row.ranks), "first_step": step, "longer": longer}
                for row in run.rows
                for step, longer in zip(run.first_steps, row.longer, strict=True)
            ),
        )

    @property
    def memory(self) -> DataFrame:
        return _rows("memory", self.result.memory.curve)

    @property
    def memory_parts(self) -> DataFrame:
        return _rows("memory_parts", self.result.memory.composition)

    @property
    def spans(self) -> DataFrame:
        lanes = self.result.timeline.lanes if self.result.timeline is not None else []
        return _frame("spans", ({"lane": lane.name, **asdict(span)} for lane in lanes for span in lane.spans))

    @property
    def stalls(self) -> DataFrame:
        return _rows("stalls", self.result.timeline.stalls if self.result.timeline is not None else [])

    @property
    def checks(self) -> DataFrame:
        return _rows("checks", self.result.checks)


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


def _steps(step: Step) -> DataFrame:
    """The parts of a step are columns; steps that `series` does not hold lack them."""
    series, typical = step.series, set(step.typical_steps)
    rows: list[dict[str, Any]] = [
        {"step": index, "us": us, "typical": index in typical} for index, us in enumerate(step.per_step_us)
    ]
    if series is None:
        return _frame("steps", rows)
    evaluated, saved = set(series.evaluated), set(series.saved)
    for index, name in enumerate(series.names):
        row = rows[series.first + index]
        row |= {"name": name, "evaluated": index in evaluated, "saved": index in saved}
        row |= {f"{part.name}_us": part.us[index] for part in series.parts}
        if series.peak_memory_bytes:
            row["peak_memory_bytes"] = series.peak_memory_bytes[index]
    return _frame("steps", rows, {f"{part.name}_us": (NUMBER, f"{part.label}, µs") for part in series.parts})


def _listed(ranks: Iterable[int]) -> str:
    return ", ".join(map(str, ranks))


def _rows(table: str, rows: Iterable[Struct]) -> DataFrame:
    return _frame(table, ({**asdict(row), **_place(getattr(row, "location", None))} for row in rows))


def _place(location: Any) -> dict[str, Any]:
    return {name: getattr(location, name, None) for name in Location.__struct_fields__}


def _frame(name: str, rows: Iterable[Mapping[str, Any]], more: Columns | None = None) -> DataFrame:
    """`more`: columns that only this result has."""
    from pandas import DataFrame, Series

    columns, cells = {**TABLES[name].columns, **(more or {})}, list(rows)
    frame = DataFrame(
        {column: Series([row.get(column) for row in cells], dtype=dtype) for column, (dtype, _) in columns.items()}
    )
    frame.attrs["columns"] = {column: meaning for column, (_, meaning) in columns.items()}
    return frame
