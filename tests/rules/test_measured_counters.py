"""Rules and the table of kernels where hardware counters were sampled: they use what was measured, not a model."""

from __future__ import annotations

import io
from collections.abc import Mapping

import msgspec
import numpy as np
import pytest
from support.findings import found
from support.handmade import handmade, product_step

from fixtures.generate import generate
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.reading.trace_reader import read_trace
from traceopt.analyzer.tables.schema import CounterTable
from traceopt.analyzer.tables.trace import Trace
from traceopt.document.tables.tables import kernels

PERIOD_NS = 10_000
SM = "SMs Active [Throughput %]"
TENSOR, DRAM_IN, DRAM_OUT = (
    f"{name} [Throughput %]" for name in ("Tensor Active", "DRAM Read Bandwidth", "DRAM Write Bandwidth")
)
LINK = ("nvlrx__bytes.avg.pct_of_peak_sustained_elapsed", "nvltx__bytes.avg.pct_of_peak_sustained_elapsed")


def sampled(trace: Trace, percents: Mapping[str, float], first: float = 0.0, last: float = 1.0) -> Facts:
    """The trace with samples of these metrics while the GPU works, 0 while it is idle, over a part of its time."""
    times = np.arange(int(first * trace.duration_ns), int(last * trace.duration_ns), PERIOD_NS)
    begun = np.searchsorted(np.sort(trace.gpu.start), times, side="right")
    busy = begun > np.searchsorted(np.sort(trace.gpu.end), times, side="right")
    names = [*trace.names, *percents]
    counters = CounterTable(
        time=np.repeat(times, len(percents)),
        name=np.tile(np.arange(len(trace.names), len(names), dtype=np.int32), len(times)),
        device=np.zeros(len(times) * len(percents), np.int32),
        value=(busy[:, None] * np.array(list(percents.values()))).reshape(-1),
    )
    return Facts(msgspec.structs.replace(trace, names=names, counters=counters))


def planted(scenario: str) -> Trace:
    return read_trace(io.BytesIO(msgspec.json.encode(generate(scenario).document)), "trace.json")


@pytest.fixture(scope="module")
def unfused() -> Trace:
    return planted("unfused_elementwise")


@pytest.fixture(scope="module")
def slow_link() -> Trace:
    return planted("slow_collective")


def test_tc003_goes_by_the_measured_activity() -> None:
    trace = handmade(product_step("volta_hgemm_128x64_nn")).trace
    (idle,) = found("TC003", sampled(trace, {TENSOR: 1}))
    assert idle.confidence == "medium"
    assert "Hardware counters measured the Tensor Cores active for 1.0% of that time." in idle.why
    busy = sampled(trace, {TENSOR: 40})
    assert found("TC003", busy) == []
    (modeled,) = found("TC003", Facts(trace))
    assert modeled.confidence == "low"
    assert "Hardware counters" not in modeled.why


@pytest.mark.parametrize(("percent", "confidence"), [(40, "high"), (20, "medium"), (1, "low")])
def test_lb003_is_as_sure_as_the_measured_bandwidth(percent: float, confidence: str, unfused: Trace) -> None:
    (finding,) = found("LB003", sampled(unfused, {DRAM_IN: percent, DRAM_OUT: percent}))
    assert finding.confidence == confidence
    assert "Measured: they use " in finding.why


def test_lb003_prices_what_the_counters_leave_to_fusion(unfused: Trace) -> None:
    (modeled,) = found("LB003", Facts(unfused))
    (bound,) = found("LB003", sampled(unfused, {DRAM_IN: 45, DRAM_OUT: 45, SM: 90}))
    (arithmetic,) = found("LB003", sampled(unfused, {DRAM_IN: 5, DRAM_OUT: 5, SM: 90}))
    (idle,) = found("LB003", sampled(unfused, {DRAM_IN: 5, DRAM_OUT: 5, SM: 10}))
    savings = [one.saving.est_us if one.saving else 0.0 for one in (modeled, bound, arithmetic, idle)]
    assert savings[1] == savings[3] == savings[0], "kernels that wait for memory, or that are too small for the GPU"
    assert savings[2] < 0.5 * savings[0]
    assert arithmetic.saving is not None
    assert modeled.saving is not None
    assert arithmetic.saving.high_us == modeled.saving.high_us
    assert "SMs work without the memory for 79% of the time" in arithmetic.saving.basis
    assert "SMs are active for 89% of their time." in arithmetic.why
    assert "Measured" not in modeled.saving.basis


def test_cm003_expects_what_the_measured_traffic_needs(slow_link: Trace) -> None:
    (modeled,) = found("CM003", Facts(slow_link))
    saved = {}
    for percent in (3.0, 25.0):
        (finding,) = found("CM003", sampled(slow_link, dict.fromkeys(LINK, percent)))
        assert "longer than their measured traffic needs" in finding.why
        saved[percent] = finding.saving.high_us if finding.saving else 0.0
    assert saved[25.0] < 0.6 * saved[3.0]
    assert "longer than their size needs" in modeled.why


def test_a_metric_that_covers_a_part_of_the_steps_is_not_used(unfused: Trace) -> None:
    for first, last in ((0.3, 1.0), (0.0, 0.7)):
        facts = sampled(unfused, {DRAM_IN: 40, DRAM_OUT: 40, TENSOR: 10}, first, last)
        assert facts.measured_counters is None
        (finding,) = found("LB003", facts)
        assert "Measured" not in finding.why


def test_cm003_says_whether_the_link_was_busy(slow_link: Trace) -> None:
    (idle,) = found("CM003", sampled(slow_link, dict.fromkeys(LINK, 3.0)))
    assert "Hardware counters measured 3.0% of NVLink's rate in them." in idle.why
    busy = sampled(slow_link, dict.fromkeys(LINK, 70.0))
    assert found("CM003", busy) == []
    assert found("CM003", sampled(slow_link, {LINK[0]: 3.0}))[0].why == found("CM003", Facts(slow_link))[0].why


def test_kernels_have_measured_shares_beside_modeled_ones(unfused: Trace) -> None:
    facts = sampled(unfused, {DRAM_IN: 30, DRAM_OUT: 12, TENSOR: 50})
    longest = kernels(facts)[0]
    assert longest.dram_share == pytest.approx(0.42)
    assert longest.tensor_share == pytest.approx(0.5)
    assert all(kernel.dram_share is None for kernel in kernels(Facts(unfused)))
