"""Exports of Nsight Systems: the same findings as from a trace, ranks, versions, and hostile files."""

from __future__ import annotations

import gzip
import re
import sqlite3
import zipfile
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from fixtures.generate import GeneratedTrace, generate, generate_ranks
from fixtures.nsight import RATE_NS, Export
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.nsight.database import MAGIC
from traceopt.analyzer.nsight.ranges import call_name, kernel_name, read_range
from traceopt.analyzer.reading.nsight_files import read_nsight
from traceopt.analyzer.reading.source_search import find_sources
from traceopt.analyzer.reading.sources import TraceSource
from traceopt.analyzer.tables.trace import Trace
from traceopt.api import analyze
from traceopt.errors import InputError
from traceopt.reports.html.page import render_html
from traceopt.reports.text.markdown import render_markdown


def exported(folder: Path, name: str, traces: list[GeneratedTrace]) -> Path:
    return Export([trace.document for trace in traces]).write(folder / name)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("nsight")


@pytest.fixture(scope="module")
def planted(folder: Path) -> Path:
    return exported(folder, "item.sqlite", generate_ranks("item_stall"))


@pytest.fixture(scope="module")
def two_ranks(folder: Path) -> Path:
    return exported(folder, "two.sqlite", generate_ranks("exposed_allreduce"))


def read(source: TraceSource) -> Trace:
    assert source.process is not None
    return read_nsight(source, source.process, rank_hint=source.rank_hint, world_size_hint=source.world_size_hint)


def read_one(path: Path) -> Trace:
    (source,) = find_sources([path]).sources
    return read(source)


@pytest.mark.parametrize("scenario", ["slow_loader", "item_stall"])
def test_a_planted_fault_and_its_fix_are_told_apart(scenario: str, tmp_path: Path) -> None:
    (planted,) = generate_ranks(scenario)
    result = analyze(str(exported(tmp_path, "planted.sqlite", [planted])))
    first = result.findings[0]
    assert first.code in planted.planted.codes
    assert first.saving is not None
    assert first.saving.est_us == pytest.approx(planted.planted.cost_us, rel=0.15)
    fixed = analyze(str(exported(tmp_path, "fixed.sqlite", generate_ranks(scenario, fixed=True))))
    assert not {finding.code for finding in fixed.findings} & set(planted.planted.codes)


def test_a_range_names_the_place_where_python_lines_are_not_recorded(planted: Path) -> None:
    (finding,) = [one for one in analyze(str(planted)).findings if one.code == "HS001"]
    assert any("aten::item" in item.what for item in finding.evidence)
    assert not finding.locations


def test_each_process_is_a_rank(two_ranks: Path) -> None:
    sources = find_sources([two_ranks]).sources
    traces = [read(source) for source in sources]
    assert [source.label.rpartition("/")[2] for source in sources] == ["process0", "process1"]
    assert [trace.meta.rank for trace in traces] == [0, 1]
    assert [trace.meta.world_size for trace in traces] == [2, 2]
    assert [{thread.pid for thread in trace.threads} for trace in traces] == [{1000}, {1001}]
    assert all(len(trace.gpu) for trace in traces)


def test_tables_hold_what_the_trace_holds(planted: Path) -> None:
    trace = read_one(planted)
    (generated,) = generate_ranks("item_stall")
    events = [event for event in generated.document["traceEvents"] if event["ph"] == "X"]
    kernels = sorted((e["ts"], e["name"], e["args"]["grid"]) for e in events if e["cat"] == "kernel")
    rows = np.flatnonzero(trace.gpu.kind == 0)
    assert [trace.names[code] for code in trace.gpu.name[rows]] == [name for _, name, _ in kernels]
    assert trace.gpu.grid[rows].tolist() == [grid for _, _, grid in kernels]
    assert len(trace.ops) == sum(e["cat"] == "cpu_op" for e in events)
    assert len(trace.annotations) == sum(e["cat"] == "user_annotation" for e in events)
    assert len(trace.runtime) == sum(e["cat"] in ("cuda_runtime", "cuda_driver") for e in events)
    assert trace.meta.device_properties()[0]["name"] == "NVIDIA A100-SXM4-40GB"
    assert trace.meta.header["nsight"]["schema"] == "3.25.0"


def test_archives_and_urls_are_read(two_ranks: Path, tmp_path: Path) -> None:
    archive = tmp_path / "exports.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.write(two_ranks, "run/two.sqlite")
        packed.writestr("run/history.db", MAGIC + bytes(5_000))
    found = find_sources([archive])
    assert [source.label.rpartition("exports.zip/")[2] for source in found.sources] == [
        "run/two.sqlite/process0",
        "run/two.sqlite/process1",
    ]
    assert len(found.skipped) == 1
    assert "history.db" in found.skipped[0]
    plain = [read(source) for source in find_sources([two_ranks]).sources]
    assert [len(read(source).gpu) for source in found.sources] == [len(trace.gpu) for trace in plain]
    assert analyze(str(archive)).run.ranks == [0, 1]

    fsspec = pytest.importorskip("fsspec")
    files = fsspec.filesystem("memory")
    files.pipe_file("/nsight/two.sqlite", two_ranks.read_bytes())
    files.pipe_file("/nsight/other.db", b"no database")
    try:
        for url in ("memory://nsight", "memory://nsight/two.sqlite"):
            assert [len(read(source).gpu) for source in find_sources([url]).sources] == [len(t.gpu) for t in plain]
        with pytest.raises(InputError, match=r"other\.db"):
            find_sources(["memory://nsight/other.db"])
    finally:
        files.rm("/nsight", recursive=True)


def test_folders_and_gzip_are_searched(planted: Path, tmp_path: Path) -> None:
    (tmp_path / "report.sqlite.gz").write_bytes(gzip.compress(planted.read_bytes()))
    with sqlite3.connect(tmp_path / "history.db") as other:
        other.execute("CREATE TABLE visits (url TEXT)")
    other.close()
    (source,) = find_sources([tmp_path]).sources
    assert source.label.endswith("report.sqlite.gz")
    assert len(read(source).gpu) == len(read_one(planted).gpu)
    assert not find_sources([tmp_path]).skipped


def test_a_report_that_is_not_converted_is_told(planted: Path, tmp_path: Path) -> None:
    (tmp_path / "run.nsys-rep").write_bytes(b"\x00\x01")
    with pytest.raises(InputError, match="nsys export --type sqlite"):
        find_sources([tmp_path])
    with pytest.raises(InputError, match="nsys export --type sqlite"):
        analyze(str(tmp_path / "run.nsys-rep"))
    (tmp_path / "run.sqlite").write_bytes(planted.read_bytes())
    assert not find_sources([tmp_path]).skipped


def test_older_schemas_without_some_columns_are_read(planted: Path, tmp_path: Path) -> None:
    old = tmp_path / "old.sqlite"
    old.write_bytes(planted.read_bytes())
    with sqlite3.connect(old) as connection:
        for column in ("graphNodeId", "globalPid"):
            connection.execute(f"ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN {column}")
        connection.execute("DROP TABLE TARGET_INFO_GPU")
        connection.execute("DROP TABLE META_DATA_EXPORT")
    connection.close()
    trace = read_one(old)
    assert len(trace.gpu) == len(read_one(planted).gpu)
    assert trace.meta.device_properties() == []


HOSTILE_SCHEMAS = {
    "view": "ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL RENAME TO k; CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS "
    "WITH RECURSIVE r(start) AS (SELECT 1 UNION ALL SELECT start FROM r) SELECT *, start AS end FROM r",
    "trigger": "CREATE TRIGGER t INSERT ON StringIds BEGIN SELECT load_extension('x'); END",
    "generated": "ALTER TABLE CUPTI_ACTIVITY_KIND_RUNTIME ADD COLUMN callchainId AS (zeroblob(900000000))",
    "names": 'CREATE TABLE "x\'; DROP TABLE StringIds; --" ("a""b" INTEGER)',
}


@pytest.mark.parametrize("trick", sorted(HOSTILE_SCHEMAS))
def test_hostile_schemas_do_nothing(trick: str, planted: Path, tmp_path: Path) -> None:
    path = tmp_path / "hostile.sqlite"
    path.write_bytes(planted.read_bytes())
    with sqlite3.connect(path) as connection:
        connection.executescript(HOSTILE_SCHEMAS[trick])
    connection.close()
    before = path.read_bytes()
    trace = read_one(path)
    assert len(trace.runtime) == len(read_one(planted).runtime)
    assert (trace.gpu.kind == 0).any() == (trick != "view")
    assert path.read_bytes() == before


def test_hostile_values_are_counted_or_left_out(planted: Path, tmp_path: Path) -> None:
    path = tmp_path / "values.sqlite"
    path.write_bytes(planted.read_bytes())
    with sqlite3.connect(path) as connection:
        insert = "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, 0, ?, 1, ?, 0)"
        far = 2**63 - 1
        rows = [(-far, far, 1, 1), (5, 1, 1, 1), (far - 1, far, 1, 1), ("x", b"y", 1.5, "z"), (0, 2**61, 1, 1)]
        connection.executemany(insert, rows)
        connection.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET deviceId = ?, gridX = ? WHERE rowid = 1", (far, far))
        connection.execute("UPDATE StringIds SET value = '<script>' || char(27) || '[31m' WHERE id = 0")
    connection.close()
    trace, usual = read_one(path), read_one(planted)
    assert trace.meta.lost_events >= len(rows) - 1
    assert len(trace.gpu) == len(usual.gpu)
    assert trace.duration_ns == usual.duration_ns
    assert trace.gpu.grid.min() == -1


@pytest.mark.parametrize("change", ["DROP TABLE StringIds", "DELETE FROM StringIds WHERE id % 3 = 0"])
def test_an_export_without_its_names_is_refused(change: str, planted: Path, tmp_path: Path) -> None:
    path = tmp_path / "unnamed.sqlite"
    path.write_bytes(planted.read_bytes())
    with sqlite3.connect(path) as connection:
        connection.execute(change)
    connection.close()
    with pytest.raises(InputError, match=r"lacks the names of [0-9,]+ of its [0-9,]+ kernels, calls and ranges"):
        analyze(str(path))


@pytest.mark.parametrize("share", [0.05, 0.5, 0.95])
def test_a_truncated_file_is_one_clear_error(share: float, planted: Path, tmp_path: Path) -> None:
    path = tmp_path / "cut.sqlite"
    text = planted.read_bytes()
    path.write_bytes(text[: int(share * len(text))])
    with pytest.raises(InputError, match=r"cut\.sqlite") as error:
        analyze(str(path))
    assert "\n" not in str(error.value)


def test_flipped_bytes_end_in_a_trace_or_one_error(planted: Path, tmp_path: Path) -> None:
    text = bytearray(planted.read_bytes())
    random = np.random.default_rng(17)
    path = tmp_path / "flipped.sqlite"
    for _ in range(60):
        damaged = bytearray(text)
        for at in random.integers(100, len(text), 20).tolist():
            damaged[at] = int(random.integers(256))
        path.write_bytes(damaged)
        with suppress(InputError):
            for source in find_sources([path]).sources:
                if source.process is not None:
                    read(source)


def with_os_calls(folder: Path, name: str, *, thread: int = 0) -> tuple[Path, int]:
    """Pauses of the collector as waits in the operating system, and their number; `thread` waits instead of the main
    one.
    """
    (trace,) = generate_ranks("gc_pause")
    export = Export([trace.document])
    calls = sorted(row[:4] for row in export.rows["CUPTI_ACTIVITY_KIND_RUNTIME"])
    main = thread or calls[0][3]
    pauses = 0
    for (_, end, _, _), (following, _, _, _) in pairwise(calls):
        if following - end > 10_000_000:
            export.os_call(main, name, end + 1_000, following - 1_000)
            pauses += 1
        export.os_call(main, "poll", end, end + 5_000)
    return export.write(folder / "os.sqlite"), pauses


def test_waits_in_the_operating_system_are_a_cause_of_idle_time(tmp_path: Path) -> None:
    path, pauses = with_os_calls(tmp_path, "sem_timedwait")
    assert pauses
    trace = read_one(path)
    named = [trace.names[code] for code in trace.runtime.name]
    assert (named.count("sem_timedwait"), named.count("poll")) == (pauses, 0)
    result = analyze(str(path))
    assert result.gpu is not None
    assert result.gpu.idle_by_cause[0].cause == "os_wait"
    assert "Waits in the operating system" in result.verdict


@pytest.mark.parametrize("case", ["no wait", "another thread"])
def test_other_calls_of_the_operating_system_are_not_used(case: str, tmp_path: Path) -> None:
    name, thread = ("getpid", 0) if case == "no wait" else ("sem_wait", 5)
    path, pauses = with_os_calls(tmp_path, name, thread=thread)
    assert pauses
    assert name not in {trace.names[code] for trace in [read_one(path)] for code in trace.runtime.name}


def test_a_wait_while_another_thread_launches_is_not_used(tmp_path: Path) -> None:
    path, _ = with_os_calls(tmp_path, "sem_wait")
    with sqlite3.connect(path) as connection:
        waits = connection.execute("SELECT start, end, globalTid FROM OSRT_API WHERE end - start > 10000000").fetchall()
        connection.executemany(
            "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME SELECT ?, ?, 0, ?, 1, nameId, 0 "
            "FROM CUPTI_ACTIVITY_KIND_RUNTIME LIMIT 1",
            [((start + end) // 2, (start + end) // 2 + 5_000, thread + 1) for start, end, thread in waits],
        )
    connection.close()
    trace = read_one(path)
    assert "sem_wait" not in {trace.names[code] for code in trace.runtime.name}


METRICS = {
    "SMs Active [Throughput %]": 80,
    "Tensor Active [Throughput %]": 12,
    "DRAM Read Bandwidth [Throughput %]": 20,
    "DRAM Write Bandwidth [Throughput %]": 10,
    "GPC Clock Frequency [MHz]": 1410,
}


def test_sampled_counters_are_measured_over_the_steps(folder: Path) -> None:
    documents = [trace.document for trace in generate_ranks("slow_loader")]
    path = Export(documents, METRICS).write(folder / "metrics.sqlite")
    trace = read_one(path)
    assert set(np.diff(np.unique(trace.counters.time)).tolist()) == {RATE_NS}
    facts = Facts(trace)
    busy = facts.gpu.area(facts.gpu.work.kind == 0).total / facts.steps.window_ns
    measured = facts.measured_counters
    assert measured is not None
    assert measured.sm_active == pytest.approx(0.8 * busy, rel=0.05)
    assert measured.dram == pytest.approx(0.3 * busy, rel=0.05)
    result = analyze(str(path))
    assert "Hardware counters measured the Tensor Cores active for" in result.verdict
    assert any("which locks the GPU's clocks" in note.text for note in result.quality.notes)
    assert facts.quality.unread == {}


def test_counters_of_another_gpu_or_of_odd_values_are_not_used(folder: Path) -> None:
    documents = [trace.document for trace in generate_ranks("slow_loader")]
    path = Export(documents, {**METRICS, "Tensor Active [Throughput %]": 1_000}).write(folder / "odd.sqlite")
    measured = Facts(read_one(path)).measured_counters
    assert measured is not None
    assert measured.tensor_active is None
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE GPU_METRICS SET typeId = typeId + 7")
        connection.execute("UPDATE TARGET_INFO_GPU_METRICS SET typeId = typeId + 7")
    connection.close()
    assert Facts(read_one(path)).measured_counters is None


def test_ranges_of_emit_nvtx_are_operators() -> None:
    one = read_range("aten::mm, seq = 12, op_id = 345, sizes = [[2, 3], [3, 4]], input_op_ids = [(1, 0)]")
    assert (one.name, one.is_operator, one.dims, one.sequence) == ("aten::mm", True, "[[2, 3], [3, 4]]", 12)
    assert read_range("AddmmBackward0, seq = 3, op_id = 9").is_operator
    assert not read_range("FSDP::pre_forward (layers.0), op_id = 9").is_operator
    assert not read_range("step, the first").is_operator
    assert read_range("x, sizes = [[[[").dims == ""


def test_names_are_spelled_as_kineto_spells_them() -> None:
    assert call_name("cudaLaunchKernel_ptsz_v7000") == "cudaLaunchKernel"
    assert kernel_name("void f<(int)128, (bool)1>(int, T2)") == "void f<128, 1>(int, T2)"


def test_advice_and_words_fit_an_export_without_steps(folder: Path) -> None:
    traces = [generate("exposed_copy", steps=1, profiler_steps=False)]
    result = analyze(str(exported(folder, "window.sqlite", traces)))
    assert (result.step.source, result.run.recorded.nsight) == ("window", True)
    assert "DL004" in {finding.code for finding in result.findings}
    page = re.sub(r"<script.*?</script>|<style.*?</style>", "", render_html(result), flags=re.DOTALL)
    for words in ("per step", "with_stack=True", "profile_memory=True", "traceopt cut", "traceopt view"):
        assert words not in page
    assert "exports of Nsight Systems have no Python stacks" in page
    comment = render_markdown(result)
    assert "per step" not in comment
    reasons = {check.code: check.reason for check in result.checks if check.status == "not_checked"}
    assert reasons["LB006"].startswith("Exports of Nsight Systems have no Python stacks")
