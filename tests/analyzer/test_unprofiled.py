"""Times corrected for the profiler: real traces of an H100, whose runs also measured steps without a profiler."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.recorded_facts import finding

from benchmarks.savings.captures import CAPTURES, traces
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.reading.source_search import find_traces
from traceopt.analyzer.recordings.cycle_pairs import find_recordings
from traceopt.analyzer.recordings.rank_trace import read_recording
from traceopt.analyzer.tables.trace import Trace
from traceopt.analyzer.unprofiled import HIDDEN_COST_NS, MOST_COST_NS, MOST_DEVICE_COST_NS, without_profiler

SLOWED = ("item_each_step", "explicit_synchronize", "memory_pressure", "python_mask")
LIKE_RECORDED = ("fp32_matmul", "nchw_conv", "pageable_copies", "slow_loader")
HIDDEN = ("fp32_matmul", "misaligned_vocabulary", "unfused_attention", "healthy")


def recorded(paths: list[str]) -> Facts:
    [recording] = find_recordings(find_traces(paths))
    return Facts(read_recording(recording, []))


def changed(name: str, folder: Path, change: Callable[[dict[str, Any]], None]) -> Facts:
    """The facts of a capture whose documents were changed first."""
    paths = []
    for path in map(Path, traces(name, "plain")):
        document = json.loads(gzip.decompress(path.read_bytes()))
        change(document)
        paths.append(folder / path.name)
        paths[-1].write_bytes(gzip.compress(json.dumps(document).encode(), 1))
    return recorded(list(map(str, paths)))


def measured_ms(name: str) -> float:
    rows = json.loads((CAPTURES / "measured.json").read_text())["pairs"][name]
    return float(rows["plain"]["step_us"]) / 1e3


@pytest.mark.parametrize("name", SLOWED)
def test_the_step_is_the_one_that_was_measured_without_a_profiler(name: str) -> None:
    before = recorded(traces(name, "plain"))
    after = without_profiler(before)
    assert before.step_ns / 1e6 > 1.1 * measured_ms(name)
    assert after.step_ns / 1e6 == pytest.approx(measured_ms(name), rel=0.05)
    assert 500 <= (after.trace.meta.event_cost_ns or 0) <= MOST_COST_NS
    assert after.trace.meta.recorded_step_ns == before.step_ns
    assert without_profiler(after) is after, "corrected once"


@pytest.mark.parametrize("name", SLOWED)
def test_the_gpu_does_the_same_work_and_the_host_keeps_its_order(name: str) -> None:
    before = recorded(traces(name, "plain"))
    after = without_profiler(before)
    for old, new in zip(work_of(before.trace), work_of(after.trace), strict=True):
        assert old[:2] == new[:2]
        assert old[2] - MOST_DEVICE_COST_NS <= new[2] <= old[2]
    for stream in np.unique(after.trace.gpu.stream):
        mine = after.trace.gpu.take(np.flatnonzero(after.trace.gpu.stream == stream))
        assert (mine.start[1:] >= mine.end[:-1] - 1_000).all(), "a stream runs one after the other"
    for table in ("ops", "runtime", "annotations", "python"):
        old, new = getattr(before.trace, table), getattr(after.trace, table)
        assert (old.name == new.name).all()
        assert (np.diff(new.start) >= 0).all()
        assert (new.duration >= 0).all()
    assert host_ns(after) < host_ns(before)


def host_ns(facts: Facts) -> int:
    """What the host does between its calls, without waiting for the GPU: a faster host waits longer."""
    return int(facts.replay_graph.rows.host.sum())


def work_of(trace: Trace) -> list[tuple[int, int, int]]:
    gpu = trace.gpu
    return sorted(zip(gpu.correlation.tolist(), gpu.name.tolist(), gpu.duration.tolist(), strict=True))


@pytest.mark.parametrize("name", SLOWED)
def test_work_starts_after_its_launch(name: str) -> None:
    """Where a call lies between two launches is interpolated, to some microseconds."""
    after = without_profiler(recorded(traces(name, "plain")))
    launch = after.links.launch
    known = launch >= 0
    late = after.trace.gpu.start[known] - after.trace.runtime.start[launch[known]]
    assert np.count_nonzero(late < 0) <= 0.002 * len(late)
    assert late.min() > -50_000


@pytest.mark.parametrize("name", LIKE_RECORDED)
def test_steps_that_were_not_slowed_stay_as_recorded(name: str) -> None:
    facts = recorded(traces(name, "plain"))
    assert without_profiler(facts).step_ns == pytest.approx(facts.step_ns, rel=0.02)


@pytest.mark.parametrize("name", HIDDEN)
def test_a_busy_gpu_hides_the_cost(name: str) -> None:
    """The host's own time is shorter: else it would seem to limit what a fix of the GPU's work gains."""
    before = recorded(traces(name, "plain"))
    after = without_profiler(before)
    assert before.captured.stretch is not None
    assert before.captured.stretch < 1.1
    assert after.trace.meta.event_cost_ns == HIDDEN_COST_NS
    assert host_ns(after) < 0.9 * host_ns(before)
    assert after.step_ns / 1e6 == pytest.approx(measured_ms(name), rel=0.015)


def several_ranks(document: dict[str, Any]) -> None:
    document["distributedInfo"] = {"backend": "nccl", "rank": 0, "world_size": 2}


def no_ledger(document: dict[str, Any]) -> None:
    del document["traceopt"]["ledger"]


def other_steps(document: dict[str, Any]) -> None:
    """The steps that were not recorded took a tenth: no cost of events explains that."""
    ledger = document["traceopt"]["ledger"]
    start = min(window["warmup_from"] for window in ledger["windows"])
    ledger["step_us"][:start] = [us / 10 for us in ledger["step_us"][:start]]


@pytest.mark.parametrize("change", [several_ranks, no_ledger, other_steps])
def test_where_the_profiler_does_not_explain_it_nothing_is_corrected(
    change: Callable[[dict[str, Any]], None], tmp_path: Path
) -> None:
    facts = changed("item_each_step", tmp_path, change)
    assert without_profiler(facts) is facts


def test_without_measured_steps_a_range_covers_what_recording_may_have_cost(tmp_path: Path) -> None:
    """By the recording alone, the host is the limit whether it waits or not."""
    facts = changed("item_each_step", tmp_path, no_ledger)
    saving = finding(facts, "HS001").saving
    rows = json.loads((CAPTURES / "measured.json").read_text())["pairs"]["item_each_step"]
    gain = 1 - rows["fixed"]["step_us"] / rows["plain"]["step_us"]
    assert saving is not None
    assert 5 * saving.est_us < gain * facts.step_ns / 1e3 < saving.high_us
    assert "the range covers up to 7.0 µs an event" in saving.basis
