"""TQ004 cold-start: warm up before recording."""

from __future__ import annotations

from support.quality import notes, on_a_gpu, steps
from support.traces import GetExample

from traceopt.analyzer.facts import Facts
from traceopt.testing import events as small_traces


class TestColdStart:
    def test_fires_on_context_and_code_loading(self, example: GetExample) -> None:
        assert "not a steady-state step" in notes(example("cold_start").facts)["TQ004"]
        assert notes(example("cold_start", fixed=True).facts) == {}

    def test_silent_on_a_short_allocation(self) -> None:
        def allocating(at: float, us: float) -> Facts:
            call = small_traces.runtime("cudaMalloc", at, us, 0)
            return on_a_gpu([*steps(3, 4_000), small_traces.op("aten::empty", at, us), call])

        assert "TQ004" not in notes(allocating(4_500, 4_000))
        long = allocating(14_500, 14_500)
        assert long.quality.cold_share > 0.1
        assert "TQ004" in notes(long)


def test_graph_capture() -> None:
    def captured(us: float) -> Facts:
        calls = [
            small_traces.runtime("cudaStreamBeginCapture", 1_000, 5, 90),
            small_traces.runtime("cudaStreamEndCapture", 1_000 + us, 5, 91),
            small_traces.runtime("cudaGraphInstantiate", 1_010 + us, 5, 92),
        ]
        return on_a_gpu([*steps(), *calls])

    assert "captured for 20% of the window" in notes(captured(6_000))["TQ004"]
    assert "TQ004" not in notes(captured(500))
