"""Counters of PyTorch 2.15 (`PerformanceMetricsConfig`, `CuspyConfig`) are read like those of Kineto."""

from __future__ import annotations

import io
import json

import pytest
from support.findings import document_of, found
from support.traces import GetExample

from traceopt.analyzer.facts import Facts
from traceopt.analyzer.reading.trace_reader import read_trace
from traceopt.document.companions import gpu_samples_section
from traceopt.testing.events import Json

PERIOD_US = 50.0
METRICS = {  # by CUPTI's name: PyTorch's, and the value
    "sm__cycles_active.avg.pct_of_peak_sustained_elapsed": ("SM Active (%)", 96.0),
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": ("HBM BW (%)", 12.0),
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": ("DRAM BW (%)", 13.0),
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed": (
        "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
        4.0,
    ),
    "nvlrx__bytes.avg.pct_of_peak_sustained_elapsed": ("NVLink RX (%)", 7.0),
    "nvltx__bytes.avg.pct_of_peak_sustained_elapsed": ("NVLink TX (%)", 8.0),
    "pcie__throughput.avg.pct_of_peak_sustained_elapsed": ("PCIe (%)", 9.0),
}


@pytest.fixture(scope="module")
def events(example: GetExample) -> list[Json]:
    found: list[Json] = json.loads(example("unfused_elementwise").path.read_bytes())["traceEvents"]
    return found


def times(events: list[Json]) -> list[float]:
    known = [event["ts"] for event in events if event["ph"] == "X"]
    return [min(known) + PERIOD_US * n for n in range(int((max(known) - min(known)) / PERIOD_US) + 100)]


def of_torch(name: str, ts: float, value: float) -> Json:
    return {"ph": "C", "name": name, "pid": "GPU 0 Counters", "ts": ts, "args": {"": value}}


def of_kineto(name: str, ts: float, value: float) -> Json:
    args = {"device": 0, name: value}
    return {"ph": "C", "cat": "hardware_counters", "name": name, "pid": 0, "tid": 0, "ts": ts, "args": args}


def facts_of(events: list[Json]) -> Facts:
    return Facts(read_trace(io.BytesIO(json.dumps({"traceEvents": events}).encode()), "trace.json"))


def test_both_spellings_give_the_same(events: list[Json]) -> None:
    at = times(events)
    kineto = [of_kineto(name, ts, value) for ts in at for name, (_, value) in METRICS.items()]
    torch = [of_torch(name, ts, value) for ts in at for name, value in METRICS.values()]
    read = facts_of([*events, *torch])
    counters = read.measured_counters
    assert counters is not None
    assert (counters.sm_active, counters.dram, counters.tensor_active) == pytest.approx((0.96, 0.12, 0.04))
    assert (counters.nvlink, counters.pcie) == pytest.approx((0.08, 0.09))
    assert read.quality.counter_readings == len(torch)
    one, other = document_of(read), document_of(facts_of([*events, *kineto]))
    one.run.files[0] = other.run.files[0]  # bytes and hash
    assert one == other


def state(events: list[Json], mhz: float) -> Facts:
    """The GPU begins at 1980 MHz."""
    readings = [
        of_torch(name, ts, value)
        for place, ts in enumerate(times(events))
        for name, value in {
            "SM Clock (MHz)": 1980.0 if place < 20 else mhz,
            "Power (W)": 690.5,
            "Temperature (C)": 87.0,
            "Cycles (Current Kernel)": 5_000,
        }.items()
    ]
    return facts_of([*events, *readings])


def test_clocks_power_and_temperature_are_samples_of_the_gpu(events: list[Json]) -> None:
    facts = state(events, 1200.0)
    (gpu,) = gpu_samples_section.section(facts).gpus  # type: ignore[union-attr]
    assert (gpu.sm_mhz, gpu.power_w, gpu.celsius, gpu.shared_samples) == (1200, 690.5, 87, None)
    assert 0 < gpu.busy_samples <= gpu.samples
    assert facts.quality.counter_readings == 0, "reading the state of the GPU locks no clocks"
    (finding,) = found("RH001", facts)
    assert finding.why == "GPU 0 (GPU) runs at 61% of its highest clock. The counters in the trace do not say why."
    assert [row.detail for row in finding.evidence] == ["87 °C", "690 W"]
    assert found("RH001", state(events, 1900.0)) == []


def test_a_reading_beside_a_damaged_event_is_kept(events: list[Json]) -> None:
    reading = of_torch("SM Clock (MHz)", times(events)[0], 1980.0)
    damaged = {"ph": "X", "name": [], "ts": []}
    assert len(facts_of([*events, reading, damaged]).trace.counters) == 1


def test_odd_readings_are_left_out(events: list[Json]) -> None:
    odd = [of_torch("SM Clock (MHz)", ts, value) for ts, value in zip(times(events), (-1, 1e300), strict=False)]
    assert facts_of([*events, *odd]).gpu_samples is not None
    other = {**of_torch("SM Active (%)", 1, 5), "pid": "GPU 0 memory"}
    facts = facts_of([*events, other, {**other, "pid": 7, "name": 3}])
    assert (len(facts.trace.counters), facts.gpu_samples) == (0, None)
