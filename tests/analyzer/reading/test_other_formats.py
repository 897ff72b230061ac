"""Files that are no PyTorch traces are named for what they are, in one line."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from traceopt.analyzer.reading.other_formats import told_apart
from traceopt.analyzer.reading.trace_reader import read_trace
from traceopt.api import analyze
from traceopt.errors import InputError
from traceopt.reports.html.page import render_html


def sqlite(path: Path, table: str) -> None:
    with sqlite3.connect(path) as database:
        database.execute(f"CREATE TABLE {table} (a)")


def checkpoint(path: Path, **options: Any) -> None:
    torch = pytest.importorskip("torch")
    torch.save({"weight": torch.zeros(3)}, path, **options)


CALLS = {
    "report.nsys-rep": (b"\0\1\2" * 300, "is an Nsight Systems report"),
    "old.qdrep": (b"\0\1\2" * 300, "is an Nsight Systems report"),
    "kernel.ncu-rep": (b"NVR\0" * 9, "is an Nsight Compute report"),
    "trace.pftrace": (b"\n\x20" + b"\1" * 90, "is a damaged Perfetto trace"),
    "other.pickle": (pickle.dumps([1, 2]), "is a Python pickle"),
    "execution.json": (b'{"schema": "1.1.1-chakra.0.0.4", "pid": 3, "nodes": []}', "is an execution trace"),
    "memory.raw.gz": (gzip.compress(b"[[-1, 1, 37888, 7], [-1, 1, 512, 7]]"), "is a memory timeline"),
    "profile.json": (b'{"$schema": "https://www.speedscope.app/file-format-schema.json"}', "is a speedscope profile"),
    "devtools.cpuprofile": (b'{"nodes":[{"id":1,"callFrame":{}}]}', "is a CPU profile of Chrome DevTools"),
    "out_results.json": (b'{"rocprofiler-sdk-tool": []}', "is output of rocprofv3"),
    "out.csv": (b'"Kind","Agent_Id","Queue_Id"\n', "is output of rocprof"),
    "events.out.tfevents.1.host": (b"\x18" + b"\0" * 20 + b"\x1a\rbrain.Event:2", "is a TensorBoard event file"),
    "table.txt": (b"-" * 40 + b"\n        Name    Self CPU %\n", "is a printed table"),
    "page.html": (b"<!doctype html><title>404</title>", "is an HTML page"),
    "log.txt": (b"step 1 loss 2.3\n", "it is not JSON"),
    "bad.json": (b'{"traceEvents": nope', "it is not valid JSON"),
    "settings.json": (b'{"a": 1}', "it has no traceEvents list"),
    "weights.safetensors": (b"\x40\0\0\0\0\0\0\0{}", "is a PyTorch checkpoint"),
}


def refused(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        analyze(str(path))
    message = str(caught.value)
    assert "\n" not in message
    assert message.endswith(".")
    return message


@pytest.mark.parametrize("name", CALLS)
def test_files_of_other_tools(name: str, tmp_path: Path) -> None:
    content, says = CALLS[name]
    (tmp_path / name).write_bytes(content)
    assert says in refused(tmp_path / name)


def test_the_command_that_converts_a_report_has_its_name(tmp_path: Path) -> None:
    (tmp_path / "my run.nsys-rep").write_bytes(b"\0\1\2" * 300)
    assert "--output 'my run.sqlite' 'my run.nsys-rep')" in refused(tmp_path / "my run.nsys-rep")


def test_a_pickle_that_is_no_snapshot_is_told_that_snapshots_are_read(tmp_path: Path) -> None:
    (tmp_path / "other.pickle").write_bytes(pickle.dumps({"a": [1, 2]}))
    assert "reads memory snapshots (torch.cuda.memory._dump_snapshot)" in refused(tmp_path / "other.pickle")


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ("CUPTI_ACTIVITY_KIND_KERNEL", "is a database exported by Nsight Systems"),
        ("rocpd_kernel_dispatch", "is a database of rocprof"),
        ("people", "is a SQLite database"),
    ],
)
def test_databases(table: str, says: str, tmp_path: Path) -> None:
    sqlite(tmp_path / "x.sqlite", table)
    assert says in refused(tmp_path / "x.sqlite")


@pytest.mark.parametrize("options", [{}, {"_use_new_zipfile_serialization": False}])
def test_checkpoints(options: dict[str, Any], tmp_path: Path) -> None:
    checkpoint(tmp_path / "model.pt", **options)
    assert "model.pt is a PyTorch checkpoint" in refused(tmp_path / "model.pt")


def test_our_own_files(example: Any, tmp_path: Path) -> None:
    result = example("healthy").result
    (tmp_path / "own.html").write_text(render_html(result))
    (tmp_path / "own.json").write_text(json.dumps({"tool": {"name": "traceopt"}, "verdict": ""}))
    assert "traceopt export" in refused(tmp_path / "own.html")
    assert "traceopt compare" in refused(tmp_path / "own.json")


def test_long_texts_take_no_time() -> None:
    """Each pattern looks at a bounded part of the text."""
    for start in (b"SQLite format 3\0", b"\x80\x04", b'{"schema"', b"{", b"<!doctype html", b"["):
        told_apart("file", start + b' "a' * (1 << 20))


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "it is empty"),
        (b" \n", "it is empty"),
        (gzip.compress(b"", mtime=0), "it is empty"),
        (b"{}", "it has no traceEvents list"),
        (b"null", "it is not JSON"),
        (b"[]", "it has no complete events"),
        (b'{"traceEvents": []}', "it has no complete events"),
        (b'{"traceEvents": [', "it has no complete events"),
        (b'[{"pid": 1}, {"pid": 2}]', "it has no complete events"),
        (b'{"schema": "1.1.1", "pid": 1, "nodes": [{"id": 1, "name": "x"}]}', "is an execution trace (Chakra)"),
        (b"<html>\n<body>404</body></html>", "is an HTML page"),
        (bytes(range(256)) * 9, "it is not JSON"),
        (b"PK\x03\x04" + bytes(100), "it is not JSON"),
        (b"\x1f\x8b" + b"\xff" * 40, "the gzip stream is corrupt"),
        (b"\x1f\x8b", "the gzip stream is truncated"),
        (b"[" * 100_000, "it is not valid JSON"),
        (b'{"traceEvents": nope', "it is not valid JSON"),
        (b'{"traceEvents": [' + b"[" * 100_000, "it has no complete events"),
    ],
)
def test_what_is_no_trace_is_told_in_one_line(data: bytes, says: str) -> None:
    with pytest.raises(InputError) as caught:
        read_trace(io.BytesIO(data), "some/file.json")
    message = str(caught.value)
    assert message.startswith("some/file.json")
    assert says in message
    assert "\n" not in message
    assert len(message) < 200


@pytest.mark.parametrize("pid", ["CPU functions", "CUDA functions"])
def test_the_legacy_autograd_profiler_is_named(pid: str) -> None:
    event = {"name": "aten::mm", "ph": "X", "ts": 434.7, "dur": 4.1, "tid": 1, "pid": pid, "args": {}}
    with pytest.raises(InputError, match=r"was written by the legacy autograd profiler .*, not by torch\.profiler"):
        read_trace(io.BytesIO(json.dumps([event]).encode()), "0_trace.json")


@pytest.mark.parametrize("cat", ["devtools.timeline", "disabled-by-default-devtools.timeline", "blink,v8", "toplevel"])
def test_a_recording_of_chrome_is_named(cat: str) -> None:
    event = {"cat": cat, "name": "RunTask", "ph": "X", "ts": 1, "dur": 2, "tid": 1, "pid": 2, "args": {}}
    document = {"traceEvents": [event], "metadata": {"source": "DevTools"}}
    with pytest.raises(InputError, match="was written by Chrome DevTools"):
        read_trace(io.BytesIO(json.dumps(document).encode()), "Trace-2026.json")


def test_a_chrome_category_beside_those_of_pytorch_is_no_reason_to_refuse() -> None:
    events = [{"cat": cat, "name": "x", "ph": "X", "ts": 1, "dur": 2, "tid": 1, "pid": 2} for cat in ("cpu_op", "v8")]
    assert read_trace(io.BytesIO(json.dumps(events).encode()), "x.json").meta.categories == {"cpu_op": 1, "v8": 1}
