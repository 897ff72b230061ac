"""Files beside a trace: found in the same walk, kept with their run and rank, and read without a trace too."""

from __future__ import annotations

import io
import json
import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import traceopt
from fixtures.generate import generate
from fixtures.memory_snapshots import training
from traceopt.analyzer.companions.restricted_pickle import load
from traceopt.analyzer.reading.source_search import find_sources
from traceopt.cli import cli
from traceopt.errors import InputError
from traceopt.reports.html.page import render_html
from traceopt.reports.text.markdown import render_markdown
from traceopt.result.document import Result

COMPILE_LOGS = Path(__file__).parents[3] / "fixtures" / "compile_logs"
SNAPSHOT = pickle.dumps({"segments": [], "device_traces": [[]], "allocator_settings": {}}, protocol=4)


def write_snapshot(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(SNAPSHOT)
    return path


def write_trace(path: Path, rank: int = 0, world_size: int = 1, start_s: int = 1_770_000_000) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    document: dict[str, Any] = {
        "schemaVersion": 1,
        "distributedInfo": {"rank": rank, "world_size": world_size, "pg_config": [{}], "nccl_version": "2.27"},
        "baseTimeNanoseconds": start_s * 10**9,
        "traceEvents": [
            {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1, "ts": 5.0 + 100 * i, "dur": 50.0}
            for i in range(5)
        ],
    }
    path.write_text(json.dumps(document))
    return path


def test_each_rank_gets_its_own_file(tmp_path: Path) -> None:
    for rank in range(2):
        write_trace(tmp_path / f"trace_rank{rank}.json", rank, 2)
    for name in ("rank1.pickle", "whole.pickle"):
        write_snapshot(tmp_path / name)
    (run,) = traceopt.find_runs(str(tmp_path))
    of_rank = [[Path(file.source.place).name for file in one.companions] for one in run.recordings]
    assert of_rank == [["whole.pickle"], ["rank1.pickle"]]


def test_a_folder_with_every_source_is_one_report(tmp_path: Path) -> None:
    """A trace, a memory snapshot with a leak, a compile log with graph breaks, and samples of a hot GPU."""
    generate("memory_pressure").write(tmp_path / "trace.json.gz")
    leak = training("history")
    leak.write(tmp_path / "snapshot.pickle")
    shutil.copy(COMPILE_LOGS / "breaks.log.gz", tmp_path / "rank_0.log.gz")
    head = {"traceopt_gpu_samples": 1, "host": "host", "gpus": [{"index": 0, "name": "A100", "max_sm_mhz": 1410}]}
    one = {"index": 0, "sm_mhz": 700, "reasons": 0x40, "use_percent": 99, "processes": [[7, 1, True], [9, 1, False]]}
    lines = [head, *({"s": second, "gpus": [one]} for second in range(30))]
    (tmp_path / "host.gpu_samples.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (run,) = traceopt.find_runs(str(tmp_path))
    assert len(run.recordings) == 1
    result = traceopt.analyze(str(tmp_path), debug=True)
    assert result.step.source == "profiler_step"
    assert None not in (result.memory_snapshot, result.torch_compile, result.gpu_samples)
    assert {"MM002", "MM005", "RH001", "RH002"} <= {finding.code for finding in result.findings}
    page = render_html(result)
    assert all(f'id="{section}"' in page for section in ("memory", "memory-snapshot", "compile", "gpu-samples"))


def test_files_stay_with_the_run_in_the_nearest_folder(tmp_path: Path) -> None:
    for index, name in enumerate(("old", "new")):
        write_trace(tmp_path / name / "trace.json", start_s=1_770_000_000 + 86_400 * index)
        write_snapshot(tmp_path / name / "memory" / "peak.pickle")
    for run in traceopt.find_runs(str(tmp_path)):
        ((file,),) = (one.companions for one in run.recordings)
        assert Path(file.source.place).parts[-3] == run.name


def test_a_trace_with_the_same_words_is_no_dump(tmp_path: Path) -> None:
    found = find_sources([str(write_trace(tmp_path / "trace.json"))])
    assert [len(found.sources), len(found.companions)] == [1, 0]


def test_other_files_of_a_folder_are_left_alone(tmp_path: Path) -> None:
    write_trace(tmp_path / "trace.json")
    for name, data in {"model.pkl": pickle.dumps([1]), "train.log": b"epoch 1", "README": b"text"}.items():
        (tmp_path / name).write_bytes(data)
    os.mkfifo(tmp_path / "pipe.log")
    found = find_sources([str(tmp_path)])
    assert (found.companions, found.skipped) == ([], [])


def test_every_format_is_made_without_a_trace(tmp_path: Path) -> None:
    path = write_snapshot(tmp_path / "peak.pickle")
    result = traceopt.analyze(str(path))
    assert result.step.source == "none"
    assert result.step.typical_us is None
    assert {check.status for check in result.checks} <= {"not_applicable", "not_checked", "passed"}
    assert Result.from_json(result.to_json()) == result
    page = render_html(result)
    assert 'id="kernels"' not in page
    assert ">not recorded<" not in page
    assert "no trace" in render_markdown(result)
    answer = CliRunner().invoke(cli, ["analyze", str(tmp_path), "--html", str(tmp_path / "report.html")])
    assert (answer.exit_code, answer.stderr) == (0, "")


def test_commands_that_need_a_trace_say_so(tmp_path: Path) -> None:
    path = write_snapshot(tmp_path / "peak.pickle")
    for command in (["whatif", str(path), "--fix", "DL001"], ["view", str(path)]):
        answer = CliRunner().invoke(cli, command)
        assert answer.exit_code == 2
        assert "is a memory snapshot of PyTorch's CUDA allocator; this command needs a trace" in answer.stderr


class Hostile:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, ("touch traceopt-was-here",)


def _stack_global(module: bytes, name: bytes) -> bytes:
    short = [b"\x8c" + bytes([len(text)]) + text for text in (module, name)]
    return b"\x80\x04" + b"".join(short) + b"\x93."


@pytest.mark.parametrize(
    "data",
    [
        pickle.dumps(Hostile(), protocol=0),
        pickle.dumps(Hostile(), protocol=4),
        pickle.dumps({"segments": [Hostile()]}, protocol=5),
        _stack_global(b"os", b"system"),
        _stack_global(b"builtins", b"eval"),
        b"cos\nsystem\n(S'true'\ntR.",
        b"(S'true'\nios\nsystem\n.",  # INST
        b"\x80\x02\x82\x01.",  # EXT1
        b"\x80\x02Pname\n.",  # a persistent id
        b"\x80\x05\x97.",  # an out-of-band buffer
        b"\x80\x04" + b"\x8e" + (2**62).to_bytes(8, "little"),  # bytes of an impossible length
        b"\x80\x04" + b"]" * 10,  # no STOP
        b"\x80\x04}r\xff\xff\xff\x7f.",  # an impossible place in the memo
        b"\x80\x04h\x05.",  # a place in the memo that is empty
        b"",
        b"\x80\x09.",
    ],
)
def test_pickles_of_strangers_never_execute(data: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"^dump\.pickle cannot be read: .+") as error:
        load(io.BytesIO(data), "dump.pickle")
    assert "\n" not in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_plain_data_is_read() -> None:
    value = {"a": [1, 2.5, None, True, ("x", b"y")], "b": {"c": 2**70}}
    for protocol in range(3, pickle.HIGHEST_PROTOCOL + 1):
        assert load(io.BytesIO(pickle.dumps(value, protocol=protocol)), "x") == value
