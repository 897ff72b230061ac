"""Logs of torch.compile (TORCH_TRACE): planted faults, cut and damaged logs, several processes."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import traceopt
from traceopt.analyzer.companions.compile_log.compile_log import read_compile_log
from traceopt.analyzer.reading.source_search import find_sources
from traceopt.analyzer.reading.sources import TraceSource
from traceopt.analyzer.tables.compilation import Compilation
from traceopt.cli import cli
from traceopt.errors import InputError
from traceopt.reports.html.page import render_html
from traceopt.reports.text.markdown import render_markdown
from traceopt.result.finding import Finding

FIXTURES = Path(__file__).parents[3] / "fixtures" / "compile_logs"
PREFIX = "V1122 22:16:34.522000 22100 torch/_dynamo/utils.py:2350] "


@cache
def fixture(name: str) -> str:
    return gzip.decompress((FIXTURES / f"{name}.log.gz").read_bytes()).decode()


def write(folder: Path, text: str, name: str = "dedicated_log_torch_trace_abc.log") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def read_text(folder: Path, *texts: str) -> tuple[Compilation, list[str]]:
    warnings: list[str] = []
    paths = [write(folder, text, f"log{index}.log") for index, text in enumerate(texts)]
    return read_compile_log([TraceSource(str(path), None, path.name) for path in paths], warnings), warnings


def record(head: dict[str, Any], payload: str = "") -> str:
    lines = "".join(f"\t{line}\n" for line in payload.splitlines())
    return f"{PREFIX}{json.dumps(head)}\n{lines}"


def metrics(frame: int, number: int, **values: Any) -> str:
    head = {"co_name": "forward", "co_filename": "/home/user/train.py", "co_firstlineno": 4, "duration_us": 2_000_000}
    return record({"compilation_metrics": head | values, "frame_id": frame, "frame_compile_id": number, "attempt": 0})


def findings_of(path: Path) -> dict[str, Finding]:
    return {finding.code: finding for finding in traceopt.analyze(str(path)).findings}


def test_planted_faults_are_told_apart_with_their_lines(tmp_path: Path) -> None:
    """The script is fixtures/compile_logs/train.py; torch wrote both logs."""
    lines = (FIXTURES / "train.py").read_text().splitlines()
    found = findings_of(write(tmp_path, fixture("breaks")))
    assert {code: str(one.locations[0]) for code, one in found.items()} == {
        "LB008": "~/project/train.py:23",
        "LB004": "~/project/train.py:25",
    }
    assert "graph_break()" in lines[22]
    assert "x * factor" in lines[24]
    assert "self.scale == 0" in found["LB004"].why
    assert "recompile limit" in found["LB004"].why
    assert findings_of(write(tmp_path, fixture("fixed"))) == {}


def test_all_formats_show_the_log(tmp_path: Path) -> None:
    result = traceopt.analyze(str(write(tmp_path, fixture("breaks"))))
    known = result.torch_compile
    assert known is not None
    assert (known.source, known.compilations, known.pieces_per_step) == ("log", 9, None)
    assert [(one.count, one.in_steps) for one in known.breaks] == [(1, None)]
    [again] = known.recompilations
    assert (again.function, again.count, again.kind, len(again.other_values)) == ("forward", 7, "number", 5)
    assert known.us == pytest.approx(sum(phase.us for phase in known.phases))
    assert "torch.compile gave up on forward()" in result.verdict
    assert 'id="breaks-table"' in render_html(result)
    assert "1 graph break" in render_markdown(result)
    answer = CliRunner().invoke(cli, ["analyze", str(tmp_path), "--no-html"])
    assert answer.exit_code == 0
    assert "train.py:25" in answer.stdout


def test_a_folder_of_logs_is_one_run_and_a_log_of_another_program_is_none(tmp_path: Path) -> None:
    write(tmp_path, fixture("breaks"), "first.log")
    write(tmp_path, fixture("fixed"), "second.log")
    write(tmp_path, "epoch 1 loss 0.3\n", "train.log")
    found = find_sources([str(tmp_path)])
    assert [file.source.label.split("/")[-1] for file in found.companions] == ["first.log", "second.log"]
    known = traceopt.analyze(str(tmp_path)).torch_compile
    assert known is not None
    assert (known.processes, known.compilations) == (2, 10)


def test_a_compressed_log_is_read_like_a_plain_one(tmp_path: Path) -> None:
    for folder in (tmp_path / "plain", tmp_path / "gzip"):
        folder.mkdir()
    write(tmp_path / "plain", fixture("breaks"))
    compressed = tmp_path / "gzip" / "dedicated_log_torch_trace_abc.log.gz"
    compressed.write_bytes((FIXTURES / "breaks.log.gz").read_bytes())
    (tmp_path / "gzip" / "other.log.gz").write_bytes(gzip.compress(b"another program"))
    plain = traceopt.analyze(str(tmp_path / "plain")).torch_compile
    assert plain is not None
    assert traceopt.analyze(str(tmp_path / "gzip")).torch_compile == plain
    assert traceopt.analyze(str(compressed)).torch_compile == plain


def test_a_cut_log_is_read_up_to_the_cut(tmp_path: Path) -> None:
    whole, _ = read_text(tmp_path, fixture("breaks"))
    half, warnings = read_text(tmp_path, fixture("breaks")[: len(fixture("breaks")) // 2])
    assert 0 < half.count < whole.count
    assert len(warnings) <= 1


def test_damaged_records_are_counted_and_the_rest_is_read(tmp_path: Path) -> None:
    damaged = PREFIX + '{"compilation_metrics": {"co_name": "for\n'
    known, warnings = read_text(tmp_path, damaged + metrics(0, 0) + "V no header\n" + metrics(1, 0))
    assert known.count == 2
    assert warnings == ["log0.log: 2 damaged records were ignored"]


@pytest.mark.parametrize(
    "head",
    [
        {"compilation_metrics": {"co_name": 5, "co_filename": ["x"], "duration_us": -1, "fail_reason": {}}},
        {"compilation_metrics": {"duration_us": 1e400, "recompile_reason": "\x00\ud800 (HINT: " * 99}},
        {"compilation_metrics": {"co_name": "f" * 10**6, "co_filename": "g" * 10**6, "co_firstlineno": 10**30}},
        {"artifact": {"name": "recompile_reasons"}, "frame_id": -5, "frame_compile_id": 0},
        {"artifact": {"name": "dynamo_graph_break_reason"}, "frame_id": "!0/1"},
    ],
)
def test_odd_values_are_no_error(tmp_path: Path, head: dict[str, Any]) -> None:
    known, _ = read_text(tmp_path, record(head, '[5, {"a": []}]') + metrics(0, 0))
    assert known.count >= 1
    assert all(len(one.function or "") <= 300 for one in known.compiled)


def test_a_file_without_records_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^log0\.log has no record of torch\.compile; record one with TORCH_TRACE"):
        read_text(tmp_path, "nothing\n")


def test_a_huge_record_does_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("traceopt.analyzer.companions.compile_log.log_records.MOST_RECORD_BYTES", 1 << 20)
    huge = record({"inductor_output_code": {}}, "x" * (9 << 20))
    known, _ = read_text(tmp_path, metrics(0, 0) + huge + metrics(1, 0))
    assert known.count == 2


def test_times_by_phase_leave_out_the_parts_inside(tmp_path: Path) -> None:
    nested = {
        "dynamo_cumulative_compile_time_us": 10_000,
        "aot_autograd_cumulative_compile_time_us": 8_000,
        "inductor_cumulative_compile_time_us": 5_000,
        "inductor_code_gen_cumulative_compile_time_us": 4_000,
        "triton_compile_time_us": 3_000,
    }
    before_2_6 = {"entire_frame_compile_time_s": 0.010, "backend_compile_time_s": 0.008}
    known, _ = read_text(tmp_path, metrics(0, 0, **nested))
    assert list(known.phases_ns.values()) == [2_000_000, 3_000_000, 1_000_000, 1_000_000, 3_000_000]
    known, _ = read_text(tmp_path, metrics(0, 0, **before_2_6))
    assert known.phases_ns == {"dynamo": 2_000_000, "aot_autograd": 8_000_000}


def test_frames_of_two_processes_are_not_the_same(tmp_path: Path) -> None:
    """In each, the backward pass of the frame that was compiled again is compiled later."""
    backward = record({"bwd_compilation_metrics": {"duration_us": 1_000_000}, "frame_id": 0, "frame_compile_id": 1})
    one = metrics(0, 0) + metrics(0, 1, recompile_reason="0/0: x == 1") + backward
    known, _ = read_text(tmp_path, one, one)
    [again] = known.recompilations
    assert (known.count, again.count, again.total_ns) == (4, 2, 6_000_000_000)


def test_generated_kernels_have_operators_and_lines(tmp_path: Path) -> None:
    """The form of torch 2.9 to 2.13. A name that stands for other operators in another graph has none."""

    def code(*kernels: tuple[str, str]) -> str:
        text = "".join(
            f"# Topologically Sorted Source Nodes: [x], Original ATen: [{operators}]\n"
            f"{name} = async_compile.triton('{name}', '''\nimport triton\n''')\n"
            for name, operators in kernels
        )
        calls = "    # Topologically Sorted Source Nodes: [y], Original ATen: [aten.mm]\n    extern_kernels.mm(a)\n"
        return record({"inductor_output_code": {"filename": "x.py"}}, text + calls)

    stack = '  File "/home/user/train.py", line 7, in forward\n    x = x.relu()\n'
    stacks = {"triton_relu_0:1": [stack], "extern_kernels.mm:2": [stack], "triton_mul_1:3": 5, "x": [5]}
    log = record({"artifact": {"name": "inductor_provenance_tracking_kernel_stack_traces"}}, json.dumps(stacks))
    first = code(("triton_relu_0", "aten.relu, aten.add"), ("triton_mul_1", "aten.mul"))
    known, _ = read_text(tmp_path, first + code(("triton_mul_1", "aten.div")) + log)
    assert known.kernels.keys() == {"triton_relu_0"}
    source = known.kernels["triton_relu_0"]
    assert (source.operators, source.site and source.site.line) == ("aten.relu, aten.add", 7)


def test_recorded_and_skipped_cuda_graphs(tmp_path: Path) -> None:
    """Built from the source of torch 2.13: no machine with a GPU recorded this log."""

    def recording(frame: int) -> str:
        event = {"name": "CUDAGraphNode.record", "ph": "B", "args": {"compile_id": f"{frame}/0", "is_backward": False}}
        return record({"chromium_event": {}, "frame_id": frame, "frame_compile_id": 0}, json.dumps(event, indent=0))

    skipped = 'skipping cudagraphs due to mutated inputs (1 instances). Found from : \n File "/home/user/train.py", line 9, in forward\n    x += 1'  # noqa: E501
    known, _ = read_text(
        tmp_path, metrics(0, 0, cudagraph_skip_reason=skipped) + recording(1) + recording(1) + recording(2)
    )
    assert (known.graph_recordings, known.graph_rerecordings) == (3, 1)
    [skip] = known.graph_skips
    assert (skip.reason, skip.site and skip.site.line) == ("mutated inputs (1 instances)", 9)
