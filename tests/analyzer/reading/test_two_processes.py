"""Two processes read the same as one: the same rows with the same codes, or they leave it to one."""

from __future__ import annotations

import gzip
import io
import json
import os
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from same_traces import assert_same_trace

from fixtures.generate import generate
from traceopt.analyzer.reading import trace_reader, two_processes
from traceopt.analyzer.reading.decompression import TextBlocks
from traceopt.analyzer.reading.event_types import decode_events
from traceopt.analyzer.reading.trace_reader import read_trace
from traceopt.analyzer.reading.two_processes import read_shared, shareable

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes many chunks from little text."""
    monkeypatch.setattr(trace_reader, "TextBlocks", partial(TextBlocks, block_bytes=1 << 15))


@pytest.fixture
def went_well(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Lets files of any size be shared; has an entry for each attempt, whether it succeeded."""
    went: list[bool] = []

    def noting(*args: Any) -> Any:
        went.append(False)
        found = read_shared(*args)
        went[-1] = True
        return found

    monkeypatch.setattr(trace_reader, "shareable", lambda stream: isinstance(stream, io.BufferedReader))
    monkeypatch.setattr(trace_reader, "read_shared", noting)
    return went


def assert_same(path: Path) -> None:
    """Two processes read the same as one."""
    with path.open("rb") as stream:
        shared = read_trace(stream, "trace")
    alone = read_trace(io.BytesIO(path.read_bytes()), "trace")
    assert_same_trace(shared, alone)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("scenario", ["exposed_allreduce", "memory_pressure", "gc_pause"])
def test_two_read_what_one_reads(scenario: str, tmp_path: Path, went_well: list[bool]) -> None:
    assert_same(generate(scenario).write(tmp_path / "trace.json.gz"))
    assert went_well == [True]


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("kind", ["damaged", "no UTF-8", "text ids", "no times at first", "ends early"])
def test_what_is_unusual_is_read_by_one(kind: str, tmp_path: Path, went_well: list[bool]) -> None:
    trace = generate("healthy")
    path, document = tmp_path / "trace.json.gz", trace.document
    if kind == "text ids":
        operators = [event for event in trace.events if event.get("cat") == "cpu_op"]
        operators[len(operators) // 2]["tid"] = "worker 7"
    elif kind == "no times at first":
        meta = {"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "args": {"name": "python"}}
        document = {**document, "traceEvents": [*[meta] * 2000, *trace.events]}
    elif kind == "ends early":
        document = {**document, "after": [{"a": 1}, {"b": "x" * 200_000}]}
    text = json.dumps(document, indent=1)
    if kind == "damaged":
        middle = text.index('"ts"', len(text) // 2)
        text = text[:middle] + text[middle + 3 :]
    data = text.encode()
    if kind == "no UTF-8":
        middle = data.index(b'"cat"', len(data) // 2)  # a broken key hides its value
        data = data[: middle + 2] + b"\xff" + data[middle + 3 :]
    path.write_bytes(gzip.compress(data, 1))
    assert_same(path)
    assert went_well == [False]


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("chunk", [0, 1])  # it is given two before its first answer, however slow it is
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_helper_that_is_killed_loses_nothing(
    number: int, chunk: int, tmp_path: Path, went_well: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It dies in one of its chunks."""
    alone = os.getpid()
    decoded: list[int] = []

    def deadly(*args: Any) -> Any:
        decoded.append(os.getpid())
        if os.getpid() != alone and decoded.count(os.getpid()) > chunk:
            os.kill(os.getpid(), number)
        return decode_events(*args)

    monkeypatch.setattr(two_processes, "decode_events", deadly)
    assert_same(generate("healthy").write(tmp_path / "trace.json.gz"))
    assert went_well == [False]


@pytest.mark.usefixtures("small_blocks")
def test_each_decodes_a_part(tmp_path: Path, went_well: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    chunks: list[int] = []

    def noting(reading: two_processes._DecodedChunks, number: int, events: Any) -> None:
        chunks.append(number)
        add(reading, number, events)

    add = two_processes._DecodedChunks.add
    monkeypatch.setattr(two_processes._DecodedChunks, "add", noting)
    assert_same(generate("healthy").write(tmp_path / "trace.json.gz"))
    assert went_well == [True]
    assert chunks[0] == 0
    assert 1 not in chunks  # the helper had it


def test_small_and_packed_files_are_not_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(b"{" + b" " * 2_000)
    packed = tmp_path / "trace.json.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    with path.open("rb") as stream:
        assert not shareable(stream)
        monkeypatch.setattr(two_processes, "SHARED_FROM_BYTES", 1_000)
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
        assert shareable(stream)
        with packed.open("rb") as gzipped:
            assert shareable(gzipped)
            assert gzipped.tell() == 0
        assert not shareable(io.BytesIO(stream.read()))
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
        assert not shareable(stream)
