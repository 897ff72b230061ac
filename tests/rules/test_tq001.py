"""TQ001 no-gpu-events: record GPU activity."""

from __future__ import annotations

import pytest
from support.quality import notes, on_a_gpu, steps
from support.traces import GetExample

from traceopt.testing import events as small_traces


class TestNoGpuEvents:
    @pytest.mark.parametrize("step", ["cpu_only", "healthy"])
    def test_a_cpu_only_run_differs_from_a_gpu_run(self, example: GetExample, step: str) -> None:
        found = notes(example(step).facts)
        assert ("CPU-only run" in found.get("TQ001", "")) == (step == "cpu_only")

    def test_fires_on_launches_without_kernels(self) -> None:
        events = [event for event in steps() if event["cat"] != "kernel"]
        assert "3 kernel launches but no kernel" in notes(on_a_gpu(events))["TQ001"]

    def test_a_counter_run_has_no_durations(self) -> None:
        events = [event for event in steps() if event["cat"] != "kernel"]
        events.append(small_traces.span("cuda_profiler_range", "__cuda_kernel", 0, 10))
        assert "Hardware counters" in notes(on_a_gpu(events))["TQ001"]

    def test_work_outside_the_steps(self) -> None:
        events = [event for event in steps() if event["cat"] != "kernel"]
        events += [small_traces.kernel("k", 100_000, 10, 999)]
        assert "lie outside the measured steps" in notes(on_a_gpu(events))["TQ001"]

    def test_silent_on_a_gpu_run(self) -> None:
        assert "TQ001" not in notes(on_a_gpu([*steps()]))
