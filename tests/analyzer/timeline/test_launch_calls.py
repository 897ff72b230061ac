"""The calls that launch GPU work: each once, how far into its step, and from which user function."""

from __future__ import annotations

import numpy as np
import pytest
from support.facts import facts_of

from traceopt.analyzer.facts import Facts
from traceopt.testing.events import Json, annotation, kernel, op, python, runtime, span


def step(number: int) -> list[Json]:
    """Four kernels and a fill, launched 100 us apart; the last call launches a graph of two kernels."""
    at = 1_000 * number
    launches = [runtime("cudaLaunchKernel", at + 100 * i, 5, 10 * number + i) for i in (1, 2, 3)]
    kernels = [kernel("gemm", at + 100 * i + 20, 50, 10 * number + i) for i in (1, 2, 3)]
    graph = [
        runtime("cudaGraphLaunch", at + 400, 5, 10 * number + 4),
        kernel("a", at + 420, 50, 10 * number + 4),
        kernel("b", at + 480, 50, 10 * number + 4),
    ]
    fill = [
        runtime("cudaMemsetAsync", at + 600, 5, 10 * number + 6),
        span("gpu_memset", "Memset", at + 620, 5, 7, device=0, stream=7, correlation=10 * number + 6),
    ]
    return [annotation(f"ProfilerStep#{number}", at, 1_000), *launches, *kernels, *graph, *fill]


def two_steps(*events: Json) -> Facts:
    return facts_of(op("aten::zeros", 0, 10), *step(1), *step(2), *events, steps=0)


def test_each_call_once() -> None:
    facts = two_steps(kernel("launched before the trace", 1_010, 50, 99))
    names = facts.trace.runtime.name
    assert len(facts.launch_calls.calls) == len(names) == 10
    assert len(facts.launch_calls.kernel_calls) == 8


def test_how_far_into_the_step() -> None:
    time = np.array([0, 1_000, 1_250, 1_900, 2_350, 5_000]) * 1_000
    shares = two_steps().launch_calls.share_before(time)  # five kernels a step, two of them from one call
    assert shares.tolist() == pytest.approx([np.nan, 0.0, 0.4, 1.0, 0.6, np.nan], nan_ok=True)


def test_the_function_that_launches() -> None:
    frames = [
        python("train.py(1): main", 0, 3_000),
        *(python("train.py(9): step", 1_000 * i + 50, 600) for i in (1, 2)),
        *(python("train.py(20): head", 1_000 * i + 90, 50) for i in (1, 2)),
    ]
    facts = two_steps(*frames)
    found = {share: facts.launch_calls.function_with_share(share) for share in (0.1, 0.8, 1.0)}
    names = {share: facts.trace.names[facts.slices.name[row]] for share, row in found.items() if row is not None}
    assert names == {0.1: "train.py(20): head", 0.8: "train.py(9): step", 1.0: "train.py(9): step"}
    assert two_steps().launch_calls.function_with_share(0.1) is None
