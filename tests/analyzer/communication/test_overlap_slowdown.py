"""Kernels under a collective compared with the same kernels alone."""

from __future__ import annotations

from traceopt.analyzer.facts import Facts
from traceopt.testing.events import annotation, kernel, read


def test_extra_time_of_overlapped_runs() -> None:
    """`slow` takes 100 us alone and 150 us under the collective; `same` never runs alone."""
    events = [
        annotation("ProfilerStep#0", 0, 2_000),
        kernel("slow", 0, 100, 1),
        kernel("slow", 110, 100, 2),
        kernel("ncclDevKernel_AllReduce_Sum_f32", 1_000, 500, 3, stream=20),
        kernel("slow", 1_000, 150, 4),
        kernel("slow", 1_160, 150, 5),
        kernel("same", 1_320, 80, 6),
    ]
    (one,) = Facts(read(events)).overlapped_kernels
    assert (len(one.rows), one.runs_alone) == (2, 2)
    assert (one.alone_ns, one.overlapped_ns) == (100_000, 150_000)
    assert (one.overlap_ns, one.excess_ns, one.slowdown) == (300_000, 100_000, 1.5)
