"""Columns of tables: their keys are fields of the rows, and their types agree with the units of the fields."""

from __future__ import annotations

import pytest
from msgspec import Struct

from traceopt.result import tables
from traceopt.result.columns import Table
from traceopt.result.comparison import (
    ComparedRun,
    CountChange,
    FindingChange,
    MetricChange,
    PartChange,
    RowChange,
    SettingChange,
)
from traceopt.result.document import RlPhaseRow, TraceFile
from traceopt.result.field_notes import field_notes
from traceopt.result.finding import Evidence
from traceopt.result.rows import (
    Collective,
    CommunicationGroup,
    Copy,
    CounterRangeRow,
    CpuOperator,
    ExpertRow,
    Gemm,
    GroupOverlapRow,
    Kernel,
    ModuleClass,
    ModuleRow,
    Op,
    PipelineRow,
    ProcessGpu,
    RankRow,
    ShapedOperator,
    SlowRanks,
)
from traceopt.result.trial import TriedChange

ROWS: dict[str, tuple[Table, type[Struct], set[str]]] = {
    table.title: (table, row, derived)
    for table, row, derived in [
        (tables.CHANGED_COUNTS, CountChange, {"base_count", "head_count", "count_change"}),
        (tables.CHANGED_KERNELS, RowChange, {"short_name", "counted_calls", "status_word"}),
        (tables.CHANGED_METRICS, MetricChange, {"base_value", "head_value", "change"}),
        (tables.CHANGED_OPERATORS, RowChange, {"counted_calls", "status_word"}),
        (tables.CHANGED_PARTS, PartChange, {"base", "head", "change"}),
        (tables.CHANGED_SETTINGS, SettingChange, {"base_value", "head_value"}),
        (tables.COLLECTIVES, Collective, set()),
        (
            tables.COMPARED_FINDINGS,
            FindingChange,
            {"group_word", "titled", "impact_word", "saved", "short_place"},
        ),
        (tables.COMPARED_RUNS, ComparedRun, {"side", "steps_words", "typical", "quality_words"}),
        (tables.COPIES, Copy, set()),
        (tables.PROCESS_GROUPS, CommunicationGroup, {"group", "ranks_words", "collectives_words", "latest_words"}),
        (tables.GROUP_OVERLAPS, GroupOverlapRow, set()),
        (tables.EXPERTS, ExpertRow, set()),
        (tables.PIPELINE, PipelineRow, set()),
        (tables.COUNTERS, CounterRangeRow, {"short_name"}),
        (tables.CPU_OPERATORS, CpuOperator, set()),
        (tables.EVIDENCE, Evidence, set()),
        (tables.FILES, TraceFile, set()),
        (tables.GEMMS, Gemm, set()),
        (tables.GPUS, ProcessGpu, {"number"}),
        (tables.KERNELS, Kernel, {"short_name", "bound_words"}),
        (tables.LAUNCHES, Kernel, {"short_name"}),
        (tables.MODULES, ModuleRow, set()),
        (tables.MODULE_CLASSES, ModuleClass, set()),
        (tables.OPERATORS, Op, set()),
        (tables.RANKS, RankRow, {"rank_words", "file"}),
        (tables.RL_PHASES, RlPhaseRow, {"title", "idle_share", "process_names"}),
        (tables.SLOW_RANKS, SlowRanks, {"who", "why"}),
        (tables.SHAPED_OPERATORS, ShapedOperator, set()),
        (
            tables.TUNED,
            TriedChange,
            {"change", "verdict_word", "predicted", "measured", "loss_words", "peak_memory", "round_word"},
        ),
    ]
}
TYPES = {"us": {"ms", "us"}, "share": {"share"}, "bytes": {"MB", "MiB", "KiB"}, "per step": {"count"}}


def test_every_table_is_checked_here() -> None:
    declared = {value.title for value in vars(tables).values() if isinstance(value, Table)}
    assert declared == set(ROWS)


@pytest.mark.parametrize("title", ROWS)
def test_keys_are_fields_and_types_are_those_of_their_units(title: str) -> None:
    table, row, derived = ROWS[title]
    assert {column.key for column in table.columns} - set(row.__struct_fields__) == derived
    fields = field_notes(row)
    for column in table.columns:
        unit = fields[column.key].unit if column.key in fields else None
        assert column.type in TYPES.get(unit or "", {column.type}), column.key


@pytest.mark.parametrize("title", ROWS)
def test_a_column_instead_of_another_follows_it(title: str) -> None:
    keys = [column.key for column in ROWS[title][0].columns]
    for place, column in enumerate(ROWS[title][0].columns):
        assert not column.instead_of or column.instead_of in keys[:place]
