"""Times that cannot be are corrected where it is certain what they should be, and noted everywhere else."""

from __future__ import annotations

import pytest

from traceopt.analyzer.tables.trace import TimeFault, Trace
from traceopt.testing import Machine
from traceopt.testing.events import Json, kernel, op, read, runtime, span

ON_GPU = ("kernel", "gpu_memcpy")
WAITS = ("cudaDeviceSynchronize", "cudaStreamSynchronize")


def training(steps: int = 4, *, waits: bool = True) -> list[Json]:
    """Steps whose launches find the GPU idle, with a wait for a long kernel at the end of each."""
    machine = Machine()
    for _ in range(steps):
        with machine.step():
            for us in (2.345, 70.252, 30, 3.017, 40):
                machine.work(100.5)
                machine.launch(us)
            machine.launch(3_000)
            if waits:
                machine.synchronize()
            else:
                machine.idle(5_000)
    return machine.events


def changed(events: list[Json], *categories: str, shift_us: float = 0.0, factor: float = 1.0) -> list[Json]:
    """The events with other times: of some categories, or of all."""
    return [
        {**event, "ts": event["ts"] + shift_us, "dur": event["dur"] * factor}
        if not categories or event["cat"] in categories
        else event
        for event in events
    ]


def faults(trace: Trace) -> list[tuple[str, bool, int]]:
    return [(fault.kind, fault.mended, fault.count) for fault in trace.meta.time_faults]


def assert_alike(trace: Trace, whole: Trace, within_ns: int = 0) -> None:
    """Both have the same times."""
    for name in ("gpu", "runtime", "annotations"):
        one, other = getattr(trace, name), getattr(whole, name)
        assert abs(one.start - other.start).max() <= within_ns
        assert (one.duration == other.duration).all()
        assert (one.name == other.name).all()


class TestClock:
    @pytest.mark.parametrize("waits", [True, False], ids=["waits", "launches"])
    @pytest.mark.parametrize("ahead_us", [-50_000, -800, 800, 50_000])
    def test_a_constant_difference_is_corrected(self, ahead_us: float, waits: bool) -> None:
        whole = training(waits=waits)
        trace = read(changed(whole, *ON_GPU, shift_us=ahead_us))
        (fault,) = trace.meta.time_faults
        assert (fault.kind, fault.mended, fault.device) == ("clock", True, 0)
        assert fault.amount_ns == pytest.approx(ahead_us * 1e3, abs=5e3)
        assert_alike(trace, read(whole), within_ns=5_000)

    @pytest.mark.parametrize("call", ["cudaDeviceSynchronize", "cudaStreamSynchronize"])
    def test_without_launches_to_an_idle_gpu_long_waits_show_it(self, call: str) -> None:
        machine = Machine()
        for _ in range(3):
            with machine.step():
                for _ in range(20):
                    machine.launch(500)
                machine.synchronize()
        whole = [event | ({"name": call} if event["name"] in WAITS else {}) for event in machine.events]
        trace = read(changed(whole, *ON_GPU, shift_us=5_000))
        assert_alike(trace, read(whole), within_ns=10_000)

    @pytest.mark.parametrize("waits_at_the_end", [True, False])
    def test_few_launches_to_an_idle_gpu_need_a_wait_to_confirm_them(self, waits_at_the_end: bool) -> None:
        """A short wait at the end, as of the profiler, is over while work that was launched before it goes on."""
        machine = Machine()
        for _ in range(5):
            machine.idle(500)
            machine.launch(100)
        if waits_at_the_end:
            machine.idle(500)
            machine.call("cudaDeviceSynchronize", 20)
        trace = read(changed(machine.events, *ON_GPU, shift_us=5_000))
        assert faults(trace) == [("clock", True, 0)] * waits_at_the_end

    def test_all_work_after_the_last_wait_is_noted(self) -> None:
        """Without a launch to an idle GPU, it is unknown by how much the clock is ahead."""
        machine = Machine()
        machine.work(10)
        for _ in range(20):
            machine.launch(100)
        machine.idle(5_000)
        machine.call("cudaDeviceSynchronize", 20)
        trace = read(changed(machine.events, *ON_GPU, shift_us=5_000))
        assert faults(trace) == [("drift", False, 0)]

    def test_of_one_device_of_two(self) -> None:
        first = training(waits=False)
        second = [
            {**event, "args": {**event["args"], "device": 1, "correlation": event["args"]["correlation"] + 1_000}}
            if event["cat"] in (*ON_GPU, "cuda_runtime")
            else event
            for event in changed(first, shift_us=1e6)
        ]
        trace = read([*first, *changed(second, *ON_GPU, shift_us=-5_000)])
        assert [(fault.device, fault.mended) for fault in trace.meta.time_faults] == [(1, True)]
        assert_alike(trace, read([*first, *second]), within_ns=5_000)

    @pytest.mark.parametrize("slope", [-2e-3, 2e-3, 1e-2])
    def test_a_steady_drift_is_corrected(self, slope: float) -> None:
        whole = training(steps=40)
        trace = read([{**e, "ts": e["ts"] * (1 + slope)} if e["cat"] == "kernel" else e for e in whole])
        assert [(fault.kind, fault.mended) for fault in trace.meta.time_faults] == [("drift", True)]
        assert_alike(trace, read(whole), within_ns=15_000)

    def test_a_clock_that_jumps_is_noted(self) -> None:
        whole = training(steps=40)
        middle = len(whole) // 2
        first = changed(whole[:middle], "kernel", shift_us=-9_000)
        trace = read([*first, *changed(whole[middle:], "kernel", shift_us=-2_000)])
        ((kind, mended, count),) = faults(trace)
        assert (kind, mended) == ("drift", False)
        assert count > 100

    @pytest.mark.parametrize("ahead_us", [-60, 0, 60])
    def test_small_differences_are_left(self, ahead_us: float) -> None:
        """Profilers convert one clock to the other only so well."""
        events = changed(training(), *ON_GPU, shift_us=ahead_us)
        trace = read(events)
        assert not trace.meta.time_faults
        assert trace.gpu.start[0] - trace.runtime.start[0] == (8 + ahead_us) * 1e3

    @pytest.mark.parametrize(("call", "us"), [("cudaGraphLaunch", 5), ("cudaLaunchKernel", 900)])
    def test_work_of_slow_launches_may_start_late(self, call: str, us: float) -> None:
        """Prefill and decode: at first kernels, then graphs that take long to send."""
        slow = [[runtime(call, at, us, at), kernel("k", at + 900, 50, at)] for at in range(1_000_000, 1_100_000, 5_000)]
        assert not read([*training(), *(event for pair in slow for event in pair)]).meta.time_faults

    def test_one_odd_kernel_of_thousands_is_left(self) -> None:
        events = training(steps=500)
        work = [place for place, event in enumerate(events) if event["cat"] == "kernel"]
        events[work[700]] = changed([events[work[700]]], shift_us=-5_000)[0]
        assert not read(events).meta.time_faults


class TestStreamOrder:
    def test_the_unit_of_kernels_alone(self) -> None:
        whole = training()
        trace = read(changed(whole, "kernel", factor=1_000))
        assert faults(trace) == [("unit", True, 24)]
        assert_alike(trace, read(whole))

    @pytest.mark.parametrize("factor", [1e-3, 1e-2, 100])
    def test_another_unit_is_noted(self, factor: float) -> None:
        ((_, mended, _),) = faults(read(changed(training(), "kernel", factor=factor)))
        assert not mended

    def test_durations_are_cut_where_the_next_work_starts(self) -> None:
        whole = training(steps=20)
        events = list(whole)
        work = [place for place, event in enumerate(events) if event["cat"] == "kernel"]
        for place in work[3:40:12]:
            events[place] = changed([events[place]], factor=1_000)[0]
        trace = read(events)
        ((kind, mended, _),) = faults(trace)
        assert (kind, mended) == ("overlap", False)
        assert (trace.gpu.start[1:] >= trace.gpu.end[:-1]).all()

    def test_a_small_part_of_the_time_does_not_matter(self) -> None:
        whole = training(steps=20)
        events = list(whole)
        first = next(place for place, event in enumerate(events) if event["cat"] == "kernel")
        events[first] = changed([events[first]], factor=10_000)[0]
        trace = read(events)
        assert faults(trace) == [("overlap", True, 1)]
        assert trace.gpu.duration[0] == trace.gpu.start[1] - trace.gpu.start[0]

    @pytest.mark.parametrize("correlations", [(1, 1, 1), (1, 2, 3)], ids=["graph", "dependent launch"])
    def test_work_that_may_overlap(self, correlations: tuple[int, int, int]) -> None:
        """Kernels of one graph launch run in parallel; a kernel may start early, but not end before the one before."""
        starts = (100, 110, 120) if correlations[1] == 1 else (100, 190, 280)
        events = [runtime("cudaGraphLaunch", 10 * number, 5, number) for number in set(correlations)]
        events += [kernel("k", start, 100, number) for start, number in zip(starts, correlations, strict=True)]
        assert not read(events).meta.time_faults

    def test_where_many_are_cut_those_that_fit_are_not_trusted(self) -> None:
        """Every twelfth kernel is a thousand times too long; what is cut is little of the time."""
        events = training(steps=60)
        work = [place for place, event in enumerate(events) if event["cat"] == "kernel"]
        for place in work[::12]:
            events[place] = changed([events[place]], factor=1_000)[0]
        assert faults(read(events)) == [("overlap", False, len(work) // 12)]


class TestUnits:
    def test_all_events_in_nanoseconds(self) -> None:
        whole = training(steps=10)
        trace = read([{**event, "ts": event["ts"] * 1_000} for event in changed(whole, factor=1_000)])
        assert faults(trace) == [("unit", True, len(whole))]
        assert_alike(trace, read(whole))

    def test_a_cpu_run_by_its_views(self) -> None:
        """Operators that compute may take milliseconds each."""
        views = [op("aten::t", 100 * at, 2) for at in range(60)]
        for factor, found in ((1, []), (1_000, [("unit", True, 60)])):
            assert (
                faults(read([{**event, "ts": event["ts"] * factor} for event in changed(views, factor=factor)]))
                == found
            )
        assert not read([op("aten::addmm", 10_000 * at, 9_000) for at in range(300)]).meta.time_faults

    def test_all_events_in_seconds_are_noted(self) -> None:
        events = [{**event, "ts": event["ts"] / 1e6} for event in changed(training(), factor=1e-6)]
        ((kind, mended, _),) = faults(read(events))
        assert (kind, mended) == ("unit", False)


class TestFarEvents:
    def far(self, by_us: float, every: int) -> Trace:
        return read([{**e, "ts": e["ts"] + by_us} if at % every == 1 else e for at, e in enumerate(training(20))])

    @pytest.mark.parametrize("by_us", [2**32, -(2**32)])
    def test_an_overflow_is_corrected(self, by_us: float) -> None:
        trace = self.far(by_us, every=3)
        assert [(fault.kind, fault.mended) for fault in trace.meta.time_faults] == [("far", True)]
        assert_alike(trace, read(training(20)))

    @pytest.mark.parametrize(("every", "few"), [(150, True), (20, False)])
    def test_others_are_left_out_and_count_as_lost(self, every: int, few: bool) -> None:
        trace = self.far(71 * 60e6, every)
        ((kind, mended, count),) = faults(trace)
        assert (kind, mended, count) == ("left_out", few, trace.meta.lost_events)
        assert trace.duration_ns < 1e9

    def test_the_amount_is_how_far_they_are(self) -> None:
        (fault,) = self.far(71 * 60e6, every=150).meta.time_faults
        assert isinstance(fault, TimeFault)
        assert fault.amount_ns == pytest.approx(71 * 60e9, rel=0.01)


class TestCopies:
    @pytest.mark.parametrize(
        ("gb_per_s", "capability", "possible"), [(55, 8, True), (480, 8, False), (400, 9, True), (5_000, 9, False)]
    )
    def test_none_is_faster_than_any_link_to_the_host(self, gb_per_s: int, capability: int, possible: bool) -> None:
        copies = [
            span("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 1e6 * place, 1e4, 7, bytes=gb_per_s * 10**7, stream=7)
            for place in range(20)
        ]
        trace = read(copies, deviceProperties=[{"id": 0, "computeMajor": capability}])
        assert faults(trace) == ([] if possible else [("unit", False, 20)])
