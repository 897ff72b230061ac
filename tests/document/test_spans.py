"""The table of spans: it holds every event of its steps, and what each of them is."""

from __future__ import annotations

import numpy as np
import pytest
from support.traces import GetExample

from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.vocabulary.causes.table import IDLE_CAUSES
from traceopt.document.timeline.spans import span_table
from traceopt.result.encoding import packing
from traceopt.result.sections.timeline_rows import COLUMNS, STREAM_COLUMNS, SpanTable
from traceopt.testing.machine import Machine


def columns(table: SpanTable) -> dict[str, I8]:
    """The columns of a table, with absolute starts."""
    data, at = packing.unpack(table.columns), 0
    count = sum(lane.count for lane in table.lanes)
    streams = sum(lane.count for lane in table.lanes if lane.kind == "stream")
    out: dict[str, I8] = {}
    for name in (*COLUMNS, *STREAM_COLUMNS):
        rows, width = count if name in COLUMNS else streams, data[at]
        planes = np.frombuffer(data, np.uint8, rows * width, at + 1).reshape(width, rows).astype(np.int64)
        out[name] = (planes << (8 * np.arange(width))[:, None]).sum(axis=0)
        at += 1 + rows * width
    assert at == len(data)
    out["start"] *= table.tick_ns
    out["duration"] *= table.tick_ns
    out["launch_delay"] = np.where(out["launch_delay"] > 0, (out["launch_delay"] - 1) * table.tick_ns + 1, 0)
    low = 0
    for lane in table.lanes:
        out["start"][low : low + lane.count] = np.cumsum(out["start"][low : low + lane.count])
        low += lane.count
    return out


@pytest.mark.parametrize("scenario", ["five_faults", "cpu_only", "exposed_allreduce"])
def test_every_event_of_the_steps_is_in_the_table(example: GetExample, scenario: str) -> None:
    facts = example(scenario).facts
    table = span_table(facts)
    assert [step.step for step in table.steps] == list(range(facts.recorded_steps.count))
    assert not any(lane.left_out for lane in table.lanes)
    found, steps = columns(table), facts.recorded_steps
    begin, end = min(steps.start[0], steps.host_start[0]), max(steps.end[-1], steps.host_end[-1])
    inside = (facts.slices.start < end) & (facts.slices.end > begin)
    assert sum(lane.count for lane in table.lanes if lane.kind == "thread") == inside.sum()
    work = facts.gpu.work.meets(int(begin), int(end))
    assert sum(lane.count for lane in table.lanes if lane.kind == "stream") == work.sum()
    names = {table.names[code] for code in found["name"]}
    assert {facts.trace.names[code] for code in facts.slices.name[inside]} <= names
    assert table.steps[0].duration_us == pytest.approx(steps.duration[0] / 1e3)


def test_times_of_a_trace_in_microseconds_are_packed_as_such() -> None:
    """Nanoseconds would take two bytes more for each time, and say nothing more."""
    machine = Machine()
    for _ in range(3):
        with machine.step():
            machine.work(103, "load")
            machine.launch(57)
    facts = machine.facts()
    table = span_table(facts)
    assert table.tick_ns % 1000 == 0
    found = columns(table)
    load = found["name"] == table.names.index("load")
    assert set(found["duration"][load]) == {103_000}
    first = sum(lane.count for lane in table.lanes[:-1])
    assert table.lanes[-1].kind == "stream"
    assert set(found["duration"][first:]) == {57_000}


def test_a_kernel_knows_its_launch(example: GetExample) -> None:
    facts = example("five_faults").facts
    table = span_table(facts)
    found = columns(table)
    kernel = int(np.flatnonzero(found["launch_delay"])[0])
    events = [lane.count for lane in table.lanes if lane.kind != "stream"]
    index = sum(events) + kernel
    launched = found["start"][index] - (found["launch_delay"][kernel] - 1)
    lane = int(found["launch_thread"][kernel]) - 1
    assert table.lanes[lane].kind == "thread"
    first = sum(one.count for one in table.lanes[:lane])
    mine = slice(first, first + table.lanes[lane].count)
    calls = np.flatnonzero(found["start"][mine] == launched) + first
    assert any(table.categories[found["category"][call]] == "runtime" for call in calls)
    assert table.names[found["operator"][kernel] - 1].startswith("aten::")


def test_a_table_that_is_too_large_keeps_whole_steps_then_the_longest_spans(example: GetExample) -> None:
    facts = example("five_faults").facts
    every = span_table(facts)
    total = sum(lane.count for lane in every.lanes)
    fewer = span_table(facts, most_spans=total // 2)
    assert 1 <= len(fewer.steps) < len(every.steps)
    assert int(facts.recorded_steps.typical_rows[facts.steps.example]) in [step.step for step in fewer.steps]
    one = span_table(facts, most_spans=100)
    assert sum(lane.count for lane in one.lanes) == 100
    assert sum(lane.left_out for lane in one.lanes) > 0
    assert len(one.steps) == 1
    short = span_table(facts, most_letters=len(every.columns) // 2)
    assert len(short.columns) <= len(every.columns) // 2


def test_stalls_of_all_steps_are_in_the_table(example: GetExample) -> None:
    facts = example("five_faults").facts
    table = span_table(facts)
    assert len({int(stall.start_us // table.steps[0].duration_us) for stall in table.stalls}) >= 3
    assert all(stall.duration_us > 0 for stall in table.stalls)


@pytest.mark.parametrize("scenario", ["five_faults", "launch_bound"])
def test_every_idle_gap_of_the_steps_is_a_stall_or_a_span(example: GetExample, scenario: str) -> None:
    facts = example(scenario).facts
    table = span_table(facts)
    gaps = facts.of_every_step.gaps
    idle_us = float((gaps.end - gaps.start)[np.isin(gaps.step, [step.step for step in table.steps])].sum()) / 1e3
    [number] = [number for number, lane in enumerate(table.lanes) if lane.kind == "idle"]
    first = sum(lane.count for lane in table.lanes[:number])
    mine = slice(first, first + table.lanes[number].count)
    found = columns(table)
    shorter_us = float(found["duration"][mine].sum()) / 1e3
    assert shorter_us > 0
    assert shorter_us + sum(stall.duration_us for stall in table.stalls) == pytest.approx(idle_us, abs=1)
    assert {table.categories[code] for code in found["category"][mine]} <= {cause.key for cause in IDLE_CAUSES}


def test_occupancy_covers_all_spans(example: GetExample) -> None:
    """Also those that are too many to be listed: their lanes showed false gaps before."""
    timeline = example("exposed_allreduce").result.timeline
    assert timeline is not None
    facts = example("exposed_allreduce").facts
    dense = [lane for lane in timeline.lanes if lane.occupancy and lane.name == "GPU compute"]
    for lane in dense:
        shares = np.sum([part.shares for part in lane.occupancy], axis=0)
        index = facts.steps.example
        filled = facts.gpu.compute.within(facts.steps.start[[index]], facts.steps.end[[index]])[0]
        assert shares.mean() * (facts.steps.end[index] - facts.steps.start[index]) == pytest.approx(filled, rel=0.05)
    assert dense
