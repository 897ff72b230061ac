"""The steps: what marks them on the host, when the device completes them, and which of them are typical."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures.real_traces import TRACES
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.reading.trace_reader import read_trace
from traceopt.analyzer.timeline.marks.marks import EVALUATION, Marks, find_marks
from traceopt.analyzer.timeline.steps import Steps, find_steps, usual_interval
from traceopt.document import sections
from traceopt.document.timeline.timeline import timeline
from traceopt.testing.events import Json, annotation, kernel, op, python, read, runtime, span
from traceopt.testing.machine import GAP_US, LATENCY_US, LAUNCH_US, WAKE_US, Machine

LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
NOTHING = np.empty(0, np.int64)


def work(until: float, tid: int = 1) -> list[Json]:
    return [op("aten::mm", at, 5, tid=tid) for at in np.arange(0, until, 10).tolist()]


def steps_in(*events: Json) -> Steps:
    return Facts(read(events)).recorded_steps


def marked(*borders: int) -> Marks:
    """Marks from each border to the next, ns."""
    edges = np.array(borders, np.int64)
    return Marks("profiler_step", [str(i) for i in range(len(edges) - 1)], edges[:-1], edges[1:], 0)


def lasting(*durations: int) -> Steps:
    """Steps of a host that waits for the device in each of them."""
    return find_steps(marked(*np.cumsum([100, *durations]).tolist()), NOTHING, NOTHING)


def own(partial: object) -> Json:
    """What `traceopt run` adds to a trace."""
    return {"traceopt": {"cycle": {"partial_steps": partial}}}


def test_a_step_that_was_cut_off_does_not_count() -> None:
    events = [*(annotation(f"ProfilerStep#{i}", 100 * i, 100 if i < 3 else 20) for i in range(4)), *work(320)]
    steps = Facts(read(events, **own([1, 3]))).recorded_steps
    assert steps.names == ["ProfilerStep#0", "ProfilerStep#2"]
    assert steps.duration.tolist() == [100_000, 100_000], "no step has the time of the one that was cut off"
    assert sections.step(Facts(read(events, **own([1, 3])))).skipped == 2
    for odd in ([0, 1, 2, 3], "0", [0.0, None, "1", True], None, {"0": 1}):
        assert Facts(read(events, **own(odd))).recorded_steps.count == 4


def test_an_evaluation_is_no_part_of_its_step() -> None:
    """At the start of a step and at its end; an evaluation in the middle of a step leaves none that is whole."""
    events = [*(annotation(f"ProfilerStep#{i}", 100 * i, 100) for i in range(4)), *work(400)]
    places = [(101, 40), (250, 50), (340, 20)]
    evaluations = [annotation(f"{EVALUATION} {i}", start, length) for i, (start, length) in enumerate(places)]
    others = [annotation(f"{EVALUATION} 1", 0, 400, tid=5), annotation(f"{EVALUATION} 7", 10, 50)]
    noted = {"traceopt": {"cycle": {"evaluations": [0, 1, 2, None]}}}
    steps = Facts(read([*events, *evaluations, *others], **noted)).recorded_steps
    assert steps.names == ["ProfilerStep#0", "ProfilerStep#1", "ProfilerStep#2"]
    assert steps.start.tolist() == [0, 141_000, 200_000]
    assert steps.end.tolist() == [100_000, 200_000, 250_000]
    whole = annotation(f"{EVALUATION} 0", 0, 400)
    assert Facts(read([*events, whole], **noted)).recorded_steps.count == 4, "nothing else is there to judge"


def test_profiler_steps() -> None:
    marks = [annotation(f"ProfilerStep#{i}", 10 + 100 * i, 90 + i) for i in range(3)]
    copies = [span("gpu_user_annotation", f"ProfilerStep#{i}", 15 + 100 * i, 99, tid=7) for i in range(3)]
    trace = read([*copies, *marks, *work(320)])
    found = find_marks(trace)
    assert (found.source, found.names) == ("profiler_step", ["ProfilerStep#0", "ProfilerStep#1", "ProfilerStep#2"])
    assert found.start.tolist() == [10_000, 110_000, 210_000]
    assert found.end.tolist() == [100_000, 201_000, 302_000]
    steps = Facts(trace).recorded_steps
    assert (steps.source, steps.names, steps.count) == (found.source, found.names, 3)
    assert steps.start.tolist() == steps.host_start.tolist() == [10_000, 110_000, 210_000]
    assert steps.end.tolist() == steps.host_end.tolist() == [110_000, 210_000, 302_000]  # up to the next mark
    assert steps.duration.tolist() == [100_000, 100_000, 92_000]
    assert steps.span == steps.host_span == (10_000, 302_000)
    assert steps.window.total == steps.host_window.total == steps.window_ns == 292_000


@pytest.mark.parametrize(
    ("durations", "index"), [((90, 80), 0), ((90, 3), 0), ((3, 90), 1), ((3, 90, 80), 1), ((4,), 0)]
)
def test_the_step_to_show_is_close_to_the_mean_and_no_stump(durations: tuple[int, ...], index: int) -> None:
    steps = lasting(*durations).typical
    assert steps.names[steps.example] == str(index)


def test_steps_are_in_order_of_time_and_not_of_name() -> None:
    marks = find_marks(read([annotation(f"ProfilerStep#{i}", 100 * i, 90) for i in (11, 8, 10, 9)]))
    assert marks.names == [f"ProfilerStep#{i}" for i in (8, 9, 10, 11)]
    assert find_marks(read([span("Operator", "ProfilerStep#7", 0, 9)])).names == ["ProfilerStep#7"]  # 2021
    assert find_marks(read([annotation("ProfilerStep #7", 0, 9)])).names == ["ProfilerStep #7"]
    assert find_marks(read([annotation("my ProfilerStep#7", 0, 9)])).source == "window"


def test_a_step_named_twice_counts_once() -> None:
    """Named again by another thread, sometimes before the main thread, or by a second range of the same thread."""
    marks = [annotation(f"ProfilerStep#{i}", 100 * i, 90) for i in range(4)]
    again = [annotation(f"ProfilerStep#{i}", 100 * i - 5 + 8 * (i % 2), 90, tid=2) for i in range(1, 4)]
    twice = [annotation("ProfilerStep#3", 395, 1)]
    found = find_marks(read([*marks, *again, *twice]))
    assert found.names == [f"ProfilerStep#{i}" for i in range(4)]
    assert found.start.tolist() == [0, 100_000, 200_000, 300_000]


def test_steps_without_length_are_none() -> None:
    steps = steps_in(*(annotation(f"ProfilerStep#{i}", 10, 0) for i in range(3)), op("aten::mm", 0, 5))
    assert (steps.source, steps.duration.tolist()) == ("window", [10_000])
    steps = steps_in(*(annotation(LOADER, 5, 0) for _ in range(9)))
    assert (steps.source, steps.duration.tolist()) == ("window", [1])


def test_the_training_thread() -> None:
    launches = [runtime("cudaLaunchKernel", i, 1, i, tid=2) for i in range(9)]
    trace = read(
        [*launches, op("aten::mm", 0, 1), annotation("Optimizer.step#SGD.step", 5, 1), python("f(1): g", 0, 1)]
    )
    assert trace.threads[find_marks(trace).thread].tid == 1  # autograd's thread may launch more
    trace = read([*launches, op("aten::mm", 0, 1)])
    assert trace.threads[find_marks(trace).thread].tid == 2
    trace = read([kernel("k", 0, 1, 1)])
    assert find_marks(trace).thread == -1
    trace = read([annotation("ProfilerStep#1", 0, 9, tid=3), *launches])
    assert trace.threads[find_marks(trace).thread].tid == 3


def test_amounts_by_step() -> None:
    """A time belongs to the step in which it lies; what lies between two typical steps belongs to none."""
    steps = find_steps(marked(10, 25, 30, 40), NOTHING, NOTHING).take(np.array([0, 2]))
    times = np.array([9, 10, 24, 25, 29, 30, 39, 40, 99])
    found = steps.step_of(times)
    assert found.tolist() == [-1, 0, 0, -1, -1, 1, 1, -1, -1]
    assert steps.per_step(found, np.arange(1, 10)).tolist() == [2 + 3, 6 + 7]
    assert steps.per_step(NOTHING, NOTHING).tolist() == [0, 0]
    assert steps.window_ns == 15 + 10


def test_host_and_device_are_in_different_steps() -> None:
    """The device ends the work of the first step 20 ns after the host's second mark."""
    steps = find_steps(marked(0, 100, 200), np.array([90, 190]), np.array([120, 195]))
    times = np.array([0, 99, 100, 119, 120, 199, 200])
    assert steps.host_step_of(times).tolist() == [0, 0, 1, 1, 1, 1, -1]
    assert steps.step_of(times).tolist() == [0, 0, 0, 0, 1, 1, -1]
    area = steps.window
    assert (steps.within(area).tolist(), steps.host_within(area).tolist()) == ([120, 80], [100, 100])
    assert (steps.mean_ns(area), steps.host_mean_ns(area)) == (100, 100)


class TestCompletion:
    """A step ends when the host has reached its mark and the device has done all that was launched before it."""

    def test_a_host_that_runs_ahead(self) -> None:
        """Its marks are 50 us apart; the device needs ten times as long, and has half of a step queued already."""
        machine = Machine()
        machine.launch(250)
        for _ in range(4):
            with machine.step():
                machine.work(25)
                for _ in range(5):
                    machine.launch(99)
        steps = machine.facts().recorded_steps
        assert np.diff(steps.host_start).tolist() == [50_000] * 3
        assert steps.duration.tolist() == [5 * (99 + GAP_US) * 1_000] * 4
        assert steps.start[0] == (LAUNCH_US + LATENCY_US + 250) * 1_000
        assert steps.end[-1] > 4 * steps.host_end[-1]

    def test_a_host_that_waits(self) -> None:
        machine = Machine()
        for _ in range(4):
            with machine.step():
                machine.work(70)
                machine.launch(99)
                machine.synchronize()
        steps = machine.facts().recorded_steps
        assert steps.start.tolist() == steps.host_start.tolist()
        assert steps.end.tolist() == steps.host_end.tolist()
        assert steps.duration.tolist() == [(70 + LAUNCH_US + LATENCY_US + 99 + WAKE_US) * 1_000] * 4

    def test_work_belongs_to_the_step_that_launched_it(self) -> None:
        machine = Machine()
        for name in ("first", "second"):
            with machine.step():
                machine.work(600)
                machine.launch(500, name=name)
        facts = machine.facts()
        steps, gpu = facts.recorded_steps, facts.gpu
        end = int(gpu.work.end[0])
        assert int(steps.host_end[0]) < end < int(steps.host_end[1])
        assert steps.end.tolist() == [end, int(gpu.work.end[1])]
        assert steps.within(gpu.busy).tolist() == [500_000, 500_000]

    def test_two_streams(self) -> None:
        """The last launch is not the last to be complete."""
        machine = Machine()
        for _ in range(2):
            with machine.step():
                machine.launch(900, stream=20)
                machine.launch(10)
                machine.work(80)
        facts = machine.facts()
        assert facts.recorded_steps.end.tolist() == sorted(facts.gpu.work.end[facts.gpu.work.stream == 20].tolist())

    def test_a_step_without_marks_ends_with_its_last_work(self) -> None:
        machine = Machine()
        machine.work(30)
        machine.launch(400)
        steps = machine.facts().recorded_steps
        assert (steps.source, steps.span) == ("window", (0, (30 + LAUNCH_US + LATENCY_US + 400) * 1_000))

    @pytest.mark.parametrize("with_marks", [False, True])
    def test_work_left_over_from_before_the_recording_is_outside(self, with_marks: bool) -> None:
        """Seconds before the first event of the host."""
        machine = Machine()
        stale = [kernel("stale", at, 50, 0) for at in (0, 900_000)]
        machine.now = 3_000_000
        for _ in range(3):
            with machine.step():
                machine.work(10)
                machine.launch(200)
                machine.synchronize()
        events = [e for e in machine.events if with_marks or "ProfilerStep" not in e["name"]]
        facts = Facts(read([*stale, *events]))
        assert facts.recorded_steps.start[0] - facts.trace.ops.start[0] == 0
        assert facts.recorded_steps.window_ns == pytest.approx(3 * 222_000, abs=3_000)
        assert facts.gpu.busy.total == 3 * 200_000

    def test_work_at_the_head_of_a_stream_was_launched_before(self) -> None:
        """Its launch is not in the file, so the first step does not begin before its end."""
        machine = Machine()
        machine.events.append(kernel("earlier", 0, 400, 999))
        machine.ends[7] = 400
        for _ in range(3):
            with machine.step():
                machine.work(10)
                machine.launch(200)
        steps = machine.facts().recorded_steps
        assert (steps.host_start[0], steps.start[0]) == (0, 400_000)
        assert steps.duration.tolist() == [(200 + GAP_US) * 1_000] * 3

    def test_work_whose_launches_were_dropped_belongs_to_the_step_in_which_it_began(self) -> None:
        """Of a file without most launches, also at the head of a stream."""
        machine = Machine()
        for _ in range(3):
            with machine.step():
                for index in range(5):
                    machine.work(10)
                    machine.launch(50, name="gemm" if index == 3 else "orphan")
                machine.synchronize()
        lost = {e["args"]["correlation"] for e in machine.events if e["name"] == "orphan"}
        kept = [e for e in machine.events if "runtime" not in e["cat"] or e["args"]["correlation"] not in lost]
        steps = steps_in(*kept)
        assert steps.start.tolist() == steps.host_start.tolist()
        assert steps.end.tolist() == steps.host_end.tolist()

    def test_a_file_of_the_device_alone_is_one_window(self) -> None:
        steps = steps_in(kernel("a", 10, 20, 1), kernel("b", 50, 30, 2))
        assert (steps.source, steps.span) == ("window", (0, 70_000))


class TestEmptyMarks:
    """A mark that was opened after the last step holds no work."""

    @staticmethod
    def run(*holds_work: bool, gpu: bool) -> Steps:
        machine = Machine()
        for holds in holds_work:
            with machine.step():
                if holds:
                    machine.work(50)
                    if gpu:
                        machine.launch(100)
                        machine.synchronize()
                else:
                    machine.idle(80)
        return machine.facts().recorded_steps

    @pytest.mark.parametrize("gpu", [False, True])
    def test_the_last_is_no_step(self, gpu: bool) -> None:
        assert self.run(True, True, True, False, gpu=gpu).names == [f"ProfilerStep#{i}" for i in range(3)]
        assert self.run(True, False, gpu=gpu).count == 1

    @pytest.mark.parametrize(("launches", "steps"), [(0, 1), (2, 1), (3, 2)])
    def test_the_last_that_holds_next_to_nothing_is_no_step(self, launches: int, steps: int) -> None:
        """Such as the zeroing of gradients."""
        machine = Machine()
        for count in (40, launches):
            with machine.step():
                for _ in range(count):
                    machine.launch(10)
        assert machine.facts().recorded_steps.count == steps

    @pytest.mark.parametrize("gpu", [False, True])
    def test_one_in_the_middle_is_a_step(self, gpu: bool) -> None:
        assert self.run(True, False, True, True, gpu=gpu).count == 4
        assert self.run(False, True, True, gpu=gpu).count == 3

    @pytest.mark.parametrize("gpu", [False, True])
    def test_the_last_of_a_run_with_empty_ones_is_a_step(self, gpu: bool) -> None:
        assert self.run(True, False, True, False, gpu=gpu).count == 4

    def test_a_mark_that_the_device_does_not_notice_belongs_to_the_step_before(self) -> None:
        """The host launches nothing there while the device still works on earlier steps."""
        steps = find_steps(marked(0, 100, 120, 200), np.array([10, 130]), np.array([150, 190]))
        assert steps.names == ["0", "2"]
        assert (steps.start.tolist(), steps.end.tolist()) == ([0, 150], [150, 200])
        assert (steps.host_start.tolist(), steps.host_end.tolist()) == ([0, 120], [120, 200])


class TestTypicalSteps:
    """All but those that are unusual once, and those at the beginning and the end that are start-up, or cut."""

    @pytest.mark.parametrize(
        ("durations", "left_out"),
        [
            ((100, 101, 99, 102, 100), ()),
            ((100, 101, 300, 102, 100), (2,)),  # one slow step
            ((100, 101, 300, 102, 100, 300, 99), ()),  # two: they recur
            ((100, 101, 300, 99, 102, 300), ()),  # also if the second is the last step
            ((300, 101, 99, 102, 100), (0,)),  # start-up
            ((100, 101, 99, 102, 300), (4,)),
            ((300, 101, 99, 102, 100, 400), (0, 5)),
            ((300, 101, 99, 300, 102, 100, 300, 99), (0,)),  # start-up, and two that recur
            ((100, 101, 99, 102, 20), (4,)),  # cut by the end of the recording
            ((20, 101, 99, 102, 20), (0, 4)),
            ((100, 101, 20, 99, 102), (2,)),
            ((20, 100, 101, 300, 99, 102), (0, 3)),
            ((100, 200, 100, 200, 100, 200), ()),  # every second step loads
            ((100, 200, 100, 200, 100), ()),
            ((200, 100, 200, 100, 200), ()),
            ((100, 110, 115, 90, 105), ()),  # slower, but not by far
            ((100, 300), ()),  # too few to compare
            ((100,), ()),
        ],
    )
    def test_which_are_left_out(self, durations: tuple[int, ...], left_out: tuple[int, ...]) -> None:
        steps = lasting(*durations)
        assert sorted(set(range(len(durations))) - set(steps.typical_rows.tolist())) == list(left_out)
        assert steps.typical.duration.tolist() == [d for i, d in enumerate(durations) if i not in left_out]
        assert steps.typical.names == [str(i) for i in range(len(durations)) if i not in left_out]

    @pytest.mark.parametrize(
        ("steps", "first_us", "last_us", "behind_us", "typical"),
        [
            (6, 100, 0, 0, [0, 1, 2, 3, 4, 5]),
            (6, 50, 0, 0, [1, 2, 3, 4, 5]),  # the recording began inside the first
            (6, 100, 30, 0, [0, 1, 2, 3, 4]),  # the profiler stopped at the end of the last
            (6, 100, 8, 0, [0, 1, 2, 3, 4, 5]),
            (6, 100, 0, 90, [1, 2, 3, 4, 5]),  # the device was behind by more than between steps
            (4, 50, 30, 0, [1, 2]),
            (3, 50, 30, 0, [0, 1, 2]),  # too few to do without
        ],
    )
    def test_the_first_and_the_last_may_be_cut_by_the_profiler(
        self, steps: int, first_us: int, last_us: int, behind_us: int, typical: list[int]
    ) -> None:
        machine = Machine()
        if behind_us:
            machine.events.append(kernel("earlier", 0, behind_us, 999))
            machine.ends[7] = behind_us
        for index in range(steps):
            with machine.step():
                for _ in range((first_us if index == 0 else 100) // 10):
                    machine.work(10)
                machine.launch(90)
                machine.synchronize()
                machine.idle(last_us if index == steps - 1 else 0)
        assert machine.facts().recorded_steps.typical_rows.tolist() == typical

    @pytest.mark.parametrize("steps", [1, 2, 3, 5])
    def test_a_last_one_whose_events_end_half_way(self, steps: int) -> None:
        machine = Machine()
        for index in range(steps):
            with machine.step():
                for _ in range(10 if index < steps - 1 else 5):
                    machine.work(10)
                    machine.launch(30)
                machine.idle(0 if index < steps - 1 else 300)
        assert machine.facts().recorded_steps.typical_rows.tolist() == list(range(max(1, steps - 1)))

    def test_figures_are_means_over_them(self) -> None:
        """A pause of one step is not in the parts, the tables or the idle time of the others."""

        def run(pause_us: float) -> Facts:
            machine = Machine()
            for index in range(7):
                with machine.step():
                    machine.work(100 + index % 2)
                    machine.launch(200)
                    if index == 3:
                        with machine.python("train.py(9): save"):
                            machine.idle(pause_us)
                        machine.launch(50, name="once")
                    machine.synchronize()
            return machine.facts()

        usual, paused = run(0), run(9_000)
        assert paused.recorded_steps.typical_rows.tolist() == [0, 1, 2, 4, 5, 6]
        assert paused.step_ns == np.delete(paused.recorded_steps.duration, 3).mean()
        assert paused.step_ns < usual.recorded_steps.duration.mean() < paused.recorded_steps.duration.mean() / 2
        assert paused.gpu.busy.total == 6 * 200_000
        assert paused.gpu.busy.total + paused.gpu.idle.total == paused.steps.window_ns
        assert paused.of_every_step.gpu.busy.total == 7 * 200_000 + 50_000
        assert sections.step(paused).typical_us == pytest.approx(paused.step_ns / 1e3, abs=0.001)
        assert sections.step(paused).typical_steps == [0, 1, 2, 4, 5, 6]
        parts = sections.breakdown(paused)
        assert sum(part.us_per_step for part in parts) == pytest.approx(paused.step_ns / 1e3, abs=0.001 * len(parts))
        assert timeline(paused).duration_us in sections.step(paused).per_step_us[:3]


@st.composite
def runs(draw: st.DrawFn) -> tuple[Marks, np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Marks, and when work was launched and ended."""
    borders = np.cumsum(draw(st.lists(st.integers(1, 50), min_size=2, max_size=9)))
    launched = draw(st.lists(st.integers(-20, 300), max_size=30))
    ended = [at + draw(st.integers(1, 120)) for at in launched]
    return marked(*borders.tolist()), np.array(launched, np.int64), np.array(ended, np.int64)


@given(runs())
def test_steps_follow_each_other(run: tuple[Marks, Any, Any]) -> None:
    marks, launched, ended = run
    steps = find_steps(marks, launched, ended)
    assert steps.count >= 1
    assert (steps.start[1:] == steps.end[:-1]).all()
    assert (steps.host_start[1:] == steps.host_end[:-1]).all()
    assert (steps.host_end > steps.host_start).all()
    assert (steps.end >= steps.host_end).all()
    assert (steps.duration > 0).all()
    if (ended[launched < marks.start[0]] >= steps.end[-1]).any():
        return  # the device only completes what was launched before the first mark
    for end, mark in zip(steps.end, steps.host_end, strict=True):
        assert (ended[launched < mark] <= end).all()
        assert end == mark or end in ended[launched < mark]
    typical = steps.typical
    assert 1 <= typical.count <= steps.count
    assert set(typical.names) <= set(steps.names)
    assert (np.diff(steps.typical_rows) > 0).all()


@st.composite
def programs(draw: st.DrawFn) -> Machine:
    machine = Machine()
    action = st.tuples(st.sampled_from(["work", "launch", "sync", "copy", "idle"]), st.integers(1, 400))
    repeated = draw(st.lists(action, min_size=1, max_size=5))
    if draw(st.booleans()):
        machine.launch(draw(st.integers(1, 900)))
    for _ in range(draw(st.integers(1, 7))):
        with machine.step():
            for what, us in [*repeated, *draw(st.lists(action, max_size=2))]:
                match what:
                    case "work":
                        machine.work(us)
                    case "launch":
                        machine.launch(us, stream=7 if us % 3 else 20)
                    case "sync":
                        machine.synchronize()
                    case "copy":
                        machine.copy_to_host(us)
                    case "idle":
                        machine.idle(us)
            machine.work(1)
    return machine


@settings(max_examples=60)
@given(programs())
def test_parts_sum_to_the_typical_steps(machine: Machine) -> None:
    facts = machine.facts()
    steps = facts.steps
    assert facts.step_ns == steps.duration.mean()
    if facts.has_gpu:
        idle = facts.idle.by_step.sum(axis=1)
        assert (steps.within(facts.gpu.busy) + idle == steps.duration).all()
    parts = sections.breakdown(facts)
    assert sum(part.us_per_step for part in parts) == pytest.approx(facts.step_ns / 1e3, abs=0.001 * (len(parts) + 1))
    assert sum(part.share for part in parts) == pytest.approx(1, abs=1e-5)


@pytest.mark.real_traces
@pytest.mark.parametrize(
    ("file", "step_us"),
    [
        ("public/luatil_3060_05.json.gz", 22_900),  # the host never waits; its marks are 2.1 ms apart
        ("public/aph_a4000.json.gz", None),  # work left over from seconds earlier
    ],
)
def test_steps_of_real_jobs(file: str, step_us: float | None) -> None:
    with (TRACES / file).open("rb") as stream:
        facts = Facts(read_trace(stream, file))
    if step_us is not None:
        assert facts.step_ns / 1e3 == pytest.approx(step_us, rel=0.02)
    began = min(int(table.start.min()) for table in (facts.trace.ops, facts.trace.runtime) if len(table))
    assert facts.recorded_steps.span[0] >= began


@pytest.mark.parametrize(
    ("steps", "interval"),
    [
        ([3, 8, 13, 15], (5, 2 / 3)),
        ([0, 2, 9], (2, 0.5)),  # equally frequent: the shorter one
        ([4], (0, 0.0)),
        ([], (0, 0.0)),
    ],
)
def test_the_usual_interval_between_steps(steps: list[int], interval: tuple[int, float]) -> None:
    assert usual_interval(np.array(steps, np.int64)) == interval
