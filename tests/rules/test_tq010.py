"""TQ010 queued-idle: find out what delayed queued GPU work."""

from __future__ import annotations

from support.quality import launched, notes, on_a_gpu, steps

from traceopt.analyzer.facts import Facts


def test_fires_on_long_waits_and_is_silent_on_short_ones() -> None:
    def waiting(wait_us: float) -> Facts:
        return on_a_gpu([*steps(3, 4_000), *launched(4_000, 1_000, 50, wait_us=wait_us)])

    assert "already launched" in notes(waiting(5_000))["TQ010"]
    assert "TQ010" not in notes(waiting(500))
