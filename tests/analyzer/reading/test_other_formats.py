"""Files that are no PyTorch traces are named for what they are, in one line."""

from __future__ import annotations

import gzip
import json
import pickle
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from traceopt.analyzer.reading.other_formats import told_apart
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
    "trace.pftrace": (b"\n\x20" + b"\1" * 90, "export_chrome_trace() ends in .json or .json.gz"),
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
