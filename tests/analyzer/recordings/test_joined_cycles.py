"""The timing cycle keeps its times and gets the detail cycle's shapes, frames and memory."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from traceopt.analyzer.facts import Facts
from traceopt.analyzer.reading.source_search import find_sources
from traceopt.analyzer.reading.trace_reader import read_trace
from traceopt.analyzer.recordings.cycle_pairs import find_recordings
from traceopt.analyzer.recordings.joined_cycles import join_cycles
from traceopt.analyzer.recordings.rank_trace import OTHER_STEPS, VARYING_STEPS, read_recording
from traceopt.analyzer.requirements import lacks
from traceopt.analyzer.tables.trace import Trace
from traceopt.analyzer.timeline.marks.marks import find_marks
from traceopt.rules.engine import prepare, run_rules
from traceopt.rules.registry import load_rules
from traceopt.testing.events import MAIN, PID, Json, annotation, document, op, python, read


def step(number: int, start: float, times: list[tuple[str, float, float]], length: float, **args: Any) -> list[Json]:
    """A step with operators at offsets from its start."""
    ops = [op(name, start + at, duration, **args) for name, at, duration in times]
    return [annotation(f"ProfilerStep#{number}", start, length), *ops]


FAST = [("aten::linear", 10, 20), ("aten::addmm", 12, 16), ("aten::relu", 50, 10), ("aten::item", 90, 5)]
SLOW = [("aten::linear", 100, 60), ("aten::addmm", 120, 35), ("aten::relu", 300, 50), ("aten::item", 500, 20)]
SHAPES = {"Input Dims": [[8, 16]], "Input type": ["float"]}
TRAIN, FORWARD, ITEM = "train.py(5): train", "net.py(3): forward", "<built-in method item of Tensor object>"


def memory(time: float, allocated: int) -> Json:
    args = {"Bytes": 8, "Total Allocated": allocated, "Total Reserved": allocated, "Device Type": 0, "Device Id": -1}
    return {"ph": "i", "name": "[memory]", "pid": PID, "tid": MAIN, "ts": time, "args": args}


def timing(*, steps: int = 3) -> Trace:
    return read([event for n in range(steps) for event in step(n, n * 100, FAST, 100)])


def detail(*more: Json) -> Trace:
    frames = [python(TRAIN, 0, 1200), python(FORWARD, 90, 300), python(ITEM, 490, 40)]
    return read([*step(7, 0, SLOW, 600, **SHAPES), *frames, memory(140, 64), *more])


def names_at(trace: Trace, time: int) -> list[str]:
    """The frames that are open at a time."""
    table = trace.python
    return [trace.names[name] for name in table.name[(table.start <= time) & (table.end > time)]]


def test_times_stay_and_operators_get_shapes() -> None:
    plain = timing()
    joined = join_cycles(plain, detail())
    assert np.array_equal(joined.ops.start, plain.ops.start)
    assert np.array_equal(joined.ops.duration, plain.ops.duration)
    assert (plain.ops.dims == -1).all()
    assert {joined.texts[code] for code in joined.ops.dims} == {"[[8, 16]]"}
    assert lacks(Facts(joined), "shapes") is None
    assert joined.meta.detail is not None


def test_every_step_gets_the_frames_round_the_same_operators() -> None:
    joined = join_cycles(timing(), detail())
    start = Facts(joined).steps.start
    for begin in start.tolist():
        assert FORWARD in names_at(joined, begin + 15_000)  # in aten::linear
        assert FORWARD in names_at(joined, begin + 55_000)  # in aten::relu
        assert FORWARD not in names_at(joined, begin + 92_000)
        assert set(names_at(joined, begin + 92_000)) == {TRAIN, ITEM}


def test_a_call_site_is_found_for_the_timing_cycle() -> None:
    facts = Facts(join_cycles(timing(), detail()))
    item = facts.slices.name == facts.trace.names.index("aten::item")
    [site] = {facts.call_sites.sites[site] for site in facts.call_sites.of(np.flatnonzero(item))}
    assert (site.file, site.function) == ("train.py", "train")


def test_the_time_between_operators_runs_evenly() -> None:
    """A frame that spans half the way from relu to item does so in the other cycle, too: 350..500 becomes 60..90."""
    half = python("half.py(1): half", 350, 75)
    joined = join_cycles(timing(steps=1), detail(half))
    row = int(np.flatnonzero(joined.python.name == joined.names.index("half.py(1): half"))[0])
    assert joined.python.start[row] == 60_000
    assert joined.python.duration[row] == 15_000


def test_memory_totals_stand_at_one_time_only() -> None:
    joined = join_cycles(timing(), detail())
    assert joined.memory.allocated.tolist() == [64]
    assert 12_000 < joined.memory.time[0] < 28_000  # in aten::addmm of the first step


def test_a_step_with_other_operators_is_matched_round_them() -> None:
    other = [("aten::linear", 100, 60), ("aten::extra", 170, 5), ("aten::relu", 300, 50), ("aten::item", 500, 20)]
    joined = join_cycles(timing(steps=1), read(step(7, 0, other, 600, **SHAPES)))
    shaped = {joined.names[name] for name, dims in zip(joined.ops.name, joined.ops.dims, strict=True) if dims >= 0}
    assert shaped == {"aten::linear", "aten::relu", "aten::item"}


def test_each_step_borrows_from_the_one_like_it() -> None:
    """One of the detail cycle's steps logs; steps that do not log must not borrow from it."""
    logging = [*SLOW, ("aten::log", 550, 10)]
    both = [*step(7, 0, logging, 600, **SHAPES), *step(8, 600, SLOW, 600, **SHAPES), python("log.py(1): log", 540, 30)]
    joined = join_cycles(timing(), read(both))
    assert "log.py(1): log" not in {joined.names[name] for name in joined.python.name}


def test_a_step_that_does_more_lends_no_frames() -> None:
    """The detail cycle evaluates with the same model in its only step."""
    evaluation = [(name, at + 600 * times, duration) for times in (1, 2) for name, at, duration in SLOW]
    frames = [python(TRAIN, 0, 1800), python("net.py(9): evaluate", 590, 1200), memory(140, 64)]
    joined = join_cycles(timing(), read([*step(7, 0, [*SLOW, *evaluation], 1800, **SHAPES), *frames]))
    assert len(joined.python) == 0
    assert len(joined.memory) == 0
    assert "recorded in other steps" in (lacks(Facts(joined), "stacks") or "")


def rounds(number: int, start: float, count: int, us: float) -> list[Json]:
    """A step of a loop with this many rounds; each operator takes as long."""
    names = ["aten::select", "aten::item", "aten::add"] * count
    return step(number, start, [(name, (2 * at + 1) * us, us) for at, name in enumerate(names)], 800 * us)


@pytest.mark.parametrize(("usual", "borrows"), [((120, 80, 100, 90, 130), True), ((120, 120, 120, 80, 120), False)])
def test_steps_of_another_number_of_rounds_borrow_where_rounds_usually_differ(
    usual: tuple[int, ...], borrows: bool
) -> None:
    """A step of 120 rounds and a detail step of 80: unlike, unless the steps of the run differ that much."""
    plain = read([event for n, count in enumerate(usual) for event in rounds(n, n * 1000, count, 1)])
    joined = join_cycles(plain, read([*rounds(9, 0, 80, 4), python(TRAIN, 0, 3200), python(FORWARD, 3, 900)]))
    assert (FORWARD in names_at(joined, 100_000)) is borrows


def test_steps_of_the_same_operators_in_another_order_borrow() -> None:
    """Half of the operators have no counterpart in order: sequences of other lengths, one after the other."""
    one, two = ["aten::select", "aten::item"], ["aten::add", "aten::mul"]

    def sequences(number: int, lengths: list[int], us: float) -> list[Json]:
        names = [name for at, length in enumerate(lengths) for name in (one, two)[at % 2] * length]
        return step(number, 0, [(name, (2 * at + 1) * us, us) for at, name in enumerate(names)], 900 * us)

    plain, detail = sequences(0, [100, 20, 20, 80], 1), sequences(9, [20, 80, 100, 20], 4)
    joined = join_cycles(read(plain), read([*detail, python(TRAIN, 0, 3600), python(FORWARD, 3, 3000)]))
    assert FORWARD in names_at(joined, 100_000)


def test_a_step_borrows_from_the_one_with_as_many_operators() -> None:
    """Of two detail steps, the first ends early, and the second only begins in another order."""
    ops = [(f"aten::op{n}", 10 * n + 5, 5) for n in range(10)]
    swapped = [("aten::op1", 5, 5), ("aten::op0", 15, 5), *ops[2:]]
    frames = [python("net.py(9): short", 0, 100), python("net.py(9): whole", 100, 100)]
    joined = join_cycles(
        read(step(0, 0, ops, 100)), read([*step(7, 0, ops[:8], 100), *step(8, 100, swapped, 100), *frames])
    )
    assert names_at(joined, 50_000) == ["net.py(9): whole"]


def test_frames_of_operators_that_one_cycle_alone_runs_are_not_lent() -> None:
    """The detail cycle logs after item, the timing cycle does not: its pause there has another cause."""
    long_fast = [*FAST, *((f"aten::op{n}", 60 + n, 1) for n in range(10))]
    long_slow = [*SLOW, *((f"aten::op{n}", 400 + n, 1) for n in range(10))]
    logging = [*long_slow, ("aten::log", 550, 10)]
    frames = [python(TRAIN, 0, 600), python(ITEM, 490, 40), python("log.py(1): log", 540, 30)]
    joined = join_cycles(
        read(step(0, 0, sorted(long_fast, key=lambda one: one[1]), 100)), read([*step(7, 0, logging, 600), *frames])
    )
    assert {joined.names[name] for name in joined.python.name} == {TRAIN, ITEM}


@pytest.mark.parametrize("collects", ["timing", "detail"])
def test_a_garbage_collection_is_no_part_of_the_functions_that_it_interrupts(collects: str) -> None:
    """Whichever cycle has it: `before` takes half of the time from relu to item, and `after` the other half."""
    here, there = FAST, SLOW
    if collects == "timing":
        here = [*FAST[:3], ("traceopt: gc", 65, 10), *FAST[3:]]
        border, lengths = 425, [20_000, 10_000]  # of the frames, in the detail cycle and in the timing cycle
    else:
        there = [*SLOW[:3], ("traceopt: gc", 400, 50), *SLOW[3:]]
        border, lengths = 450, [15_000, 15_000]
    frames = [python("a.py(1): before", 350, border - 350), python("a.py(9): after", border, 500 - border)]
    joined = join_cycles(read(step(0, 0, here, 100)), read([*step(7, 0, there, 600), *frames]))
    assert [joined.names[name] for name in joined.python.name] == ["a.py(1): before", "a.py(9): after"]
    assert joined.python.duration.tolist() == lengths


@pytest.mark.parametrize("op_in", ["timing", "detail"])
def test_a_range_of_another_kind_in_the_other_cycle_lends_nothing(op_in: str) -> None:
    """As Inductor's range, which is an operator in the timing cycle and an annotation in the detail cycle."""
    graph, shape = "## Call CompiledFxGraph", {"Input Dims": [[2]]}
    here, there = (op, annotation) if op_in == "timing" else (annotation, op)
    plain = read([*step(0, 0, FAST, 100), here(graph, 70, 10)])
    joined = join_cycles(plain, detail(there(graph, 400, 50, **shape)))
    shaped = {joined.names[name] for name, dims in zip(joined.ops.name, joined.ops.dims, strict=True) if dims >= 0}
    assert shaped == {name for name, _, _ in FAST}
    assert (joined.annotations.dims == -1).all()
    assert len(joined.ops) == len(plain.ops)


@pytest.mark.parametrize("empty", ["timing", "detail"])
def test_a_cycle_without_operators_does_no_harm(empty: str) -> None:
    bare = read([annotation("ProfilerStep#1", 0, 100)])
    joined = join_cycles(*((bare, detail()) if empty == "timing" else (timing(), bare)))
    assert Facts(joined).steps.count == (1 if empty == "timing" else 3)
    assert (joined.ops.dims == -1).all()


def without_extras(trace: Trace) -> Trace:
    """As in the timing cycle: no shapes, frames, memory."""
    ops, annotations = trace.ops, trace.annotations
    unknown = np.full(len(ops), -1, np.int32)
    none = np.empty(0, np.int64)
    return replace(
        trace,
        ops=replace(ops, dims=unknown, types=unknown, concrete=unknown, stack=unknown),
        annotations=replace(annotations, dims=unknown[: len(annotations)], types=unknown[: len(annotations)]),
        python=trace.python.take(none),
        memory=trace.memory.take(none),
    )


def stretched(trace: Trace, random: np.random.Generator) -> Trace:
    """As recording extras distorts it: the time between two borders of operators is up to four times as long."""
    thread = Facts(trace).steps.thread
    tables = [table.take(np.flatnonzero(table.thread == thread)) for table in (trace.ops, trace.annotations)]
    knots = np.unique(np.concatenate([time for table in tables for time in (table.start, table.end)]))
    slower = np.concatenate((knots[:1], knots[0] + np.cumsum(np.diff(knots) * random.integers(1, 5, len(knots) - 1))))

    def moved(time: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.rint(np.interp(time, knots, slower)).astype(np.int64)

    spans = {
        name: replace(table, start=moved(table.start), duration=moved(table.end) - moved(table.start))
        for name, table in (("ops", trace.ops), ("annotations", trace.annotations), ("python", trace.python))
    }
    return replace(trace, **spans, memory=replace(trace.memory, time=moved(trace.memory.time)))


@given(st.integers(0, 1000))
@settings(max_examples=10)
def test_what_the_extras_stretched_is_put_back(seed: int) -> None:
    """A trace without its extras, joined with a stretched copy of itself, equals itself on the main thread."""
    whole = five_faults()
    joined = join_cycles(without_extras(whole), stretched(whole, np.random.default_rng(seed)))
    assert np.array_equal(joined.ops.dims >= 0, whole.ops.dims >= 0)
    marks = find_marks(whole)
    inside = (whole.python.start >= marks.start[0]) & (whole.python.end <= marks.end[-1])
    inside &= whole.python.thread == marks.thread
    for row in np.flatnonzero(inside).tolist():
        start, end = int(whole.python.start[row]), int(whole.python.end[row])
        close = (abs(joined.python.start - start) <= 1) & (abs(joined.python.end - end) <= 1)
        name = whole.names[whole.python.name[row]]
        assert name in [joined.names[code] for code in joined.python.name[close]]


@cache
def five_faults() -> Trace:
    path = Path(__file__).parents[3] / "fixtures/traces/five_faults.json.gz"
    with path.open("rb") as stream:
        return read_trace(stream, path.name)


def test_a_trace_joined_with_itself_has_the_same_findings() -> None:
    rules = prepare(load_rules(None), select_codes=(), ignore_codes=(), thresholds=None)
    whole = five_faults()
    found, again = (
        [(f.code, f.locations, f.saving) for f in run_rules(rules, Facts(trace), debug=True).findings]
        for trace in (whole, join_cycles(without_extras(whole), whole))
    )
    assert found == again
    assert found


class TestStepsOfDifferentLength:
    """Two cycles that share no more than the first operators of a step."""

    LOOP = ("aten::max", "aten::sub", "aten::lt")

    def read(self, folder: Path, *names: str, step_us: float = 400) -> tuple[Trace, list[str]]:
        """The recording of a timing cycle of six rounds of the loop (300 us), and a detail cycle of these operators."""
        cycles = {"timing": [*self.LOOP * 6], "detail": list(names)}
        for span, (cycle, ops) in enumerate(cycles.items()):
            times = [(name, 10.0 * index, 8.0) for index, name in enumerate(("aten::linear", *ops, "aten::item"))]
            length, frames = (step_us, [python(TRAIN, 0, step_us)]) if cycle == "detail" else (300, [])
            events = [*step(7, 0, times, length), *frames]
            (folder / f"host.{span}.pt.trace.json").write_bytes(document(events, traceopt={"cycle": {"name": cycle}}))
        [recording] = find_recordings(find_sources([str(folder)]).sources)
        warnings: list[str] = []
        return read_recording(recording, warnings), warnings

    def test_the_detail_cycle_is_analyzed_alone_if_its_loop_runs_less_often(self, tmp_path: Path) -> None:
        trace, [warning] = self.read(tmp_path, *reversed(self.LOOP))
        assert len(trace.python)
        assert len(trace.ops) == 5
        assert warning.endswith(VARYING_STEPS)

    @pytest.mark.parametrize(
        ("names", "step_us"), [(("aten::topk", "aten::eq"), 400), (tuple(reversed(LOOP)), 500)], ids=["other", "slow"]
    )
    def test_it_is_not_if_it_does_something_else_or_is_far_slower(
        self, tmp_path: Path, names: tuple[str, ...], step_us: float
    ) -> None:
        trace, [warning] = self.read(tmp_path, *names, step_us=step_us)
        assert not len(trace.python)
        assert len(trace.ops) == 20
        assert warning.endswith(OTHER_STEPS)
