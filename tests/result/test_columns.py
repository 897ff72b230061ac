"""Columns of tables: their keys are fields of the rows, and their types agree with the units of the fields."""

from __future__ import annotations

import pytest
from msgspec import Struct

from traceopt.result.comparison import (
    ComparedRun,
    CountChange,
    FindingChange,
    MetricChange,
    PartChange,
    RowChange,
    SettingChange,
)
from traceopt.result.field_notes import field_notes
from traceopt.result.finding import Evidence
from traceopt.result.sections.rank_rows import (
    Collective,
    CommunicationGroup,
    ExpertLayerRow,
    ExpertRow,
    GroupOverlapRow,
    PipelineRow,
    ProcessGpu,
    RankRow,
    SlowRanks,
)
from traceopt.result.sections.run import TraceFile
from traceopt.result.sections.step import RlPhaseRow
from traceopt.result.sections.work_rows import (
    Copy,
    CounterRangeRow,
    CpuOperator,
    Gemm,
    Kernel,
    ModuleClass,
    ModuleRow,
    Op,
    ShapedOperator,
)
from traceopt.result.tables import change_tables, rank_tables, step_tables
from traceopt.result.tables.columns import Table
from traceopt.result.trial import TriedChange

ROWS: dict[str, tuple[Table, type[Struct], set[str]]] = {
    table.title: (table, row, derived)
    for table, row, derived in [
        (change_tables.CHANGED_COUNTS, CountChange, {"base_count", "head_count", "count_change"}),
        (change_tables.CHANGED_KERNELS, RowChange, {"short_name", "counted_calls", "status_word"}),
        (change_tables.CHANGED_METRICS, MetricChange, {"base_value", "head_value", "change"}),
        (change_tables.CHANGED_OPERATORS, RowChange, {"counted_calls", "status_word"}),
        (change_tables.CHANGED_PARTS, PartChange, {"base", "head", "change"}),
        (change_tables.CHANGED_SETTINGS, SettingChange, {"base_value", "head_value"}),
        (rank_tables.COLLECTIVES, Collective, set()),
        (
            change_tables.COMPARED_FINDINGS,
            FindingChange,
            {"group_word", "titled", "impact_word", "saved", "short_place"},
        ),
        (change_tables.COMPARED_RUNS, ComparedRun, {"side", "steps_words", "typical", "quality_words"}),
        (step_tables.COPIES, Copy, set()),
        (rank_tables.PROCESS_GROUPS, CommunicationGroup, {"group", "ranks_words", "collectives_words", "latest_words"}),
        (rank_tables.GROUP_OVERLAPS, GroupOverlapRow, set()),
        (rank_tables.EXPERTS, ExpertRow, set()),
        (rank_tables.EXPERT_LAYERS, ExpertLayerRow, set()),
        (rank_tables.PIPELINE, PipelineRow, set()),
        (step_tables.COUNTERS, CounterRangeRow, {"short_name"}),
        (step_tables.CPU_OPERATORS, CpuOperator, set()),
        (step_tables.EVIDENCE, Evidence, set()),
        (step_tables.FILES, TraceFile, set()),
        (step_tables.GEMMS, Gemm, set()),
        (rank_tables.GPUS, ProcessGpu, {"number"}),
        (step_tables.KERNELS, Kernel, {"short_name", "bound_words"}),
        (step_tables.LAUNCHES, Kernel, {"short_name"}),
        (step_tables.MODULES, ModuleRow, set()),
        (step_tables.MODULE_CLASSES, ModuleClass, set()),
        (step_tables.OPERATORS, Op, set()),
        (rank_tables.RANKS, RankRow, {"rank_words", "file"}),
        (step_tables.RL_PHASES, RlPhaseRow, {"title", "idle_share", "process_names"}),
        (rank_tables.SLOW_RANKS, SlowRanks, {"who", "why"}),
        (step_tables.SHAPED_OPERATORS, ShapedOperator, set()),
        (
            change_tables.TUNED,
            TriedChange,
            {"change", "verdict_word", "predicted", "measured", "loss_words", "peak_memory", "round_word"},
        ),
    ]
}
TYPES = {"us": {"ms", "us"}, "share": {"share"}, "bytes": {"MB", "MiB", "KiB"}, "per step": {"count"}}


def test_every_table_is_checked_here() -> None:
    declared = {
        value.title
        for module in (change_tables, rank_tables, step_tables)
        for value in vars(module).values()
        if isinstance(value, Table)
    }
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
