"""TQ008 graph-capture: capture graphs before recording."""

from __future__ import annotations

from support.quality import notes, on_a_gpu, steps

from traceopt.analyzer.facts import Facts
from traceopt.testing import events as small_traces


def test_fires_on_a_long_capture_and_is_silent_on_a_short_one() -> None:
    def captured(us: float) -> Facts:
        calls = [
            small_traces.runtime("cudaStreamBeginCapture", 1_000, 5, 90),
            small_traces.runtime("cudaStreamEndCapture", 1_000 + us, 5, 91),
            small_traces.runtime("cudaGraphInstantiate", 1_010 + us, 5, 92),
        ]
        return on_a_gpu([*steps(), *calls])

    assert "captured for 20% of the window" in notes(captured(6_000))["TQ008"]
    assert "TQ008" not in notes(captured(500))
