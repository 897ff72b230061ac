"""TQ003 cropped-or-sampled: analyze a complete recording."""

from __future__ import annotations

import io

import pytest
from support.quality import STEP_US, launched, notes, on_a_gpu, steps, why_silent
from support.traces import GetExample

from fixtures import broken
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.reading.trace_reader import read_trace
from traceopt.testing import events as small_traces


class TestCroppedOrSampled:
    def test_fires_on_a_file_that_starts_inside_a_step(self, example: GetExample) -> None:
        assert "starts inside a step" in notes(example("cropped").facts)["TQ003"]
        assert "TQ003" not in notes(example("healthy").facts)

    def test_work_of_earlier_steps(self) -> None:
        earlier = small_traces.kernel("leftover", 5, 5_000, 999)
        facts = on_a_gpu([earlier, *steps(1), *launched(6_000, 3_000, 2)])
        assert facts.quality.lost_launches == 0
        assert "launched before the recording" in notes(facts)["TQ003"]

    def test_numbered_events_are_missing(self) -> None:
        events = [{**e, "args": {**e["args"], "Ev Idx": 10 * i}} for i, e in enumerate(steps())]
        found = notes(on_a_gpu(events))
        assert "sampled" in found["TQ003"]
        whole = [{**e, "args": {**e["args"], "Ev Idx": i}} for i, e in enumerate(steps())]
        assert notes(on_a_gpu(whole)) == {}

    def test_the_first_work_waits_for_some_that_is_not_there(self) -> None:
        late = [small_traces.annotation("ProfilerStep#0", 0, STEP_US), *launched(20, 900, 90, wait_us=8_000)]
        found = notes(on_a_gpu([*late, small_traces.annotation("ProfilerStep#1", STEP_US, STEP_US)]))
        assert (
            "The first 8.0 ms of the recording are before the step: the GPU very likely still ran work"
            in found["TQ003"]
        )
        assert "TQ010" not in found


class TestDroppedEvents:
    def test_launches_without_a_kernel(self) -> None:
        unanswered = [small_traces.runtime("cudaLaunchKernel", 5_000 + 10 * i, 5, 100 + i) for i in range(2)]
        note = notes(on_a_gpu([*steps(), *unanswered]))["TQ003"]
        assert "2 of 5 kernel launches (40%) have no kernel" in note
        assert "busy time is understated and idle time overstated" in note  # also where the GPU is hardly idle

    def test_kernels_without_a_launch(self) -> None:
        orphan = small_traces.kernel("orphan", 9_940, 20, 100)
        found = notes(on_a_gpu([*steps(), orphan]))
        assert "1 of 4 GPU events (25%) have no launch" in found["TQ003"]

    def test_a_capture_launches_nothing(self) -> None:
        captured = [small_traces.runtime("cudaLaunchKernel", 5_000 + 10 * i, 5, 100 + i) for i in range(2)]
        capture = [
            small_traces.runtime("cudaStreamBeginCapture", 4_990, 5, 98),
            small_traces.runtime("cudaStreamEndCapture", 5_100, 5, 99),
        ]
        assert notes(on_a_gpu([*steps(), *captured, *capture])) == {}

    def test_silent_on_a_whole_file(self) -> None:
        assert "0 of 3 kernel launches" in why_silent(on_a_gpu([*steps()]), "TQ003")


def test_events_that_are_not_used_are_counted() -> None:
    unused = [small_traces.span("cuda_event", "cudaEventRecord", 1, 0), small_traces.span("new", "x", 1, 0)]
    facts = on_a_gpu([*steps(), *unused, small_traces.span("Trace", "PyTorch Profiler", 0, 1)])
    assert why_silent(facts, "TQ003").endswith(" 0 were lost. Counted but not used: 1 cuda_event, 1 new.")
    assert why_silent(on_a_gpu([*steps()]), "TQ003").endswith(" 0 were lost.")


class TestTruncatedFile:
    @pytest.mark.parametrize("damage", broken.ENDINGS)
    def test_a_file_without_its_end(self, example: GetExample, damage: broken.Damage) -> None:
        data = damage(example("healthy").path.read_bytes())
        facts = Facts(read_trace(io.BytesIO(data), "x.json"))
        assert f"{facts.trace.meta.event_count:,} events were read" in notes(facts)["TQ003"]

    def test_many_lost_events(self) -> None:
        lost = [{**small_traces.op("aten::add", 1, 1), "ts": "soon"} for _ in range(3)]
        assert "3 were lost" in notes(on_a_gpu([*steps(), *lost]))["TQ003"]

    def test_repaired_events_are_complete(self, example: GetExample) -> None:
        data = broken.raw_backslashes(example("healthy").path.read_bytes())
        facts = Facts(read_trace(io.BytesIO(data), "x.json"))
        assert facts.trace.meta.repaired_events > 0
        assert "repaired" in why_silent(facts, "TQ003")
