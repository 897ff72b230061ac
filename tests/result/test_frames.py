"""`result.frames`: the document's rows with the columns, dtypes and units that its tables declare."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.traces import GetExample

from traceopt.result.document import Check, Result
from traceopt.result.frames import TABLES
from traceopt.result.sections import rank_rows, timeline_rows, work_rows

ROOT = Path(__file__).resolve().parents[2]
ROWS = {  # the rows of the document that become a frame as they are
    "breakdown": work_rows.BreakdownPart,
    "idle": work_rows.IdleCause,
    "kernels": work_rows.Kernel,
    "ops": work_rows.Op,
    "gemms": work_rows.Gemm,
    "shaped_ops": work_rows.ShapedOperator,
    "modules": work_rows.ModuleRow,
    "module_classes": work_rows.ModuleClass,
    "collectives": rank_rows.Collective,
    "copies": work_rows.Copy,
    "ranks": rank_rows.RankRow,
    "memory": work_rows.MemoryPoint,
    "memory_parts": work_rows.MemoryPart,
    "stalls": timeline_rows.Stall,
    "checks": Check,
}
PLACE = ["file", "line", "last_line", "function", "begins"]
UNITS = {"_us": "µs", "us_per_step": "per step", "_share": "0..1", "_bytes": "bytes", "calls_per_step": "per step"}


@pytest.fixture(params=["five_faults", "straggler", "memory_pressure", "cpu_only", "healthy"])
def result(example: GetExample, request: pytest.FixtureRequest) -> Result:
    return example(request.param).result


@pytest.mark.parametrize("name", TABLES)
def test_columns_and_dtypes_are_those_declared(result: Result, name: str) -> None:
    frame = getattr(result.frames, name)
    columns = dict(TABLES[name].columns)
    if name == "steps" and result.step.series is not None:
        columns |= {f"{part.name}_us": ("float64", f"{part.label}, µs") for part in result.step.series.parts}
    assert {column: str(dtype) for column, dtype in frame.dtypes.items()} == {
        column: dtype for column, (dtype, _) in columns.items()
    }
    assert frame.attrs["columns"] == {column: meaning for column, (_, meaning) in columns.items()}


@pytest.mark.parametrize("name", ROWS)
def test_no_field_of_the_document_is_left_out(name: str) -> None:
    named = ROWS[name].__struct_fields__
    wanted = [*(field for field in named if field != "location"), *(PLACE if "location" in named else [])]
    assert sorted(TABLES[name].columns) == sorted(wanted)


def test_units_are_those_of_the_names() -> None:
    for table in TABLES.values():
        for column, (_, meaning) in table.columns.items():
            for ending, unit in UNITS.items():
                assert not column.endswith(ending) or unit in meaning, column


def test_rows_are_those_of_the_document(result: Result) -> None:
    frames = result.frames
    assert list(frames.kernels["name"]) == [kernel.name for kernel in result.kernels]
    assert list(frames.kernels["us_per_step"]) == [kernel.us_per_step for kernel in result.kernels]
    assert list(frames.findings["code"]) == [finding.code for finding in result.findings]
    assert list(frames.steps["us"]) == result.step.per_step_us
    parts = [column for column in frames.steps if column not in TABLES["steps"].columns]
    assert list(frames.steps[parts].sum(axis=1)) == pytest.approx(result.step.per_step_us, rel=1e-4)
    assert list(frames.steps.index[frames.steps["typical"]]) == result.step.typical_steps
    assert list(frames.flame["name"]) == [result.flame.frames[n.frame] for n in result.flame.nodes if result.flame]
    assert frames.breakdown["share"].sum() == pytest.approx(1, abs=1e-3)
    assert len(frames.spans) == sum(len(lane.spans) for lane in result.timeline.lanes if result.timeline)


def test_what_was_not_measured_is_missing(example: GetExample) -> None:
    frames = example("launch_bound").result.frames
    unpriced = frames.findings[frames.findings["impact"] == "info"]
    assert len(unpriced) > 0
    assert unpriced["saving_us"].isna().all()
    assert unpriced["file"].isna().all()
    assert example("cpu_only").result.frames.ops["gpu_us_per_step"].isna().all()


def test_frames_are_for_counting(example: GetExample) -> None:
    """The example of docs/notebooks.md."""
    result = example("misaligned_vocab").result
    gemms = result.frames.gemms
    lost = gemms[~gemms["aligned"].fillna(True)].groupby(["file", "line"])["us_per_step"].sum()
    assert dict(lost) == {("model.py", 52): pytest.approx(sum(g.us_per_step for g in result.gemms if not g.aligned))}
