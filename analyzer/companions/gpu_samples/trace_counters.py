"""Clocks, power and temperature of the GPUs by the counters in a trace, which PyTorch 2.15 can record."""

from __future__ import annotations

import re

import numpy as np

from traceopt.analyzer.arrays.intervals import union
from traceopt.analyzer.companions.gpu_samples.samples import MOST_GPUS, MOST_MHZ, Gpu, GpuSamples, Sample
from traceopt.analyzer.tables.json_values import amount, word
from traceopt.analyzer.tables.schema import F8, I8
from traceopt.analyzer.tables.trace import Trace
from traceopt.analyzer.vocabulary.counter_names import CLOCK, POWER, TEMPERATURE

MOST_SAMPLES = 10_000  # of a GPU; a longer recording is thinned out


def find_trace_samples(trace: Trace) -> GpuSamples | None:
    """A sample for each reading of a clock, with the latest power and temperature. None if no clock was recorded. The
    counters do not say why a clock is low, nor which processes are on the GPU.
    """
    if not len(trace.counters):
        return None
    clocks = _named(trace, CLOCK)
    devices = np.unique(trace.counters.device[clocks])[:MOST_GPUS].tolist()
    gpus = (_gpu(trace, device, clocks[trace.counters.device[clocks] == device]) for device in devices)
    return GpuSamples(tuple(gpus)) if devices else None


def _gpu(trace: Trace, device: int, clocks: I8) -> Gpu:
    clocks = clocks[:: -(-len(clocks) // MOST_SAMPLES)]
    time = trace.counters.time[clocks]
    own = trace.gpu.device == device
    busy = union(trace.gpu.start[own], trace.gpu.end[own])
    before = np.concatenate([time[:1], time[:-1]])
    use = 100 * busy.within(before, time) // np.maximum(time - before, 1)
    watts = _latest(trace, POWER, device, time)
    celsius = _latest(trace, TEMPERATURE, device, time)
    columns = (time, trace.counters.value[clocks], watts, celsius, use)
    samples = zip(*(column.tolist() for column in columns), strict=True)
    names = {row.get("id"): word(row.get("name")) for row in trace.meta.device_properties()}
    return Gpu(
        host="",
        index=device,
        name=names.get(device) or "GPU",
        max_sm_mhz=None,
        power_limit_w=None,
        samples=tuple(
            Sample(
                seconds=ns / 1e9,
                sm_mhz=_rounded(mhz, MOST_MHZ),
                reasons=None,
                celsius=_rounded(degrees, 1000),
                power_w=amount(power, 1e6),
                use_percent=share,
                own=False,
                others=(),
            )
            for ns, mhz, power, degrees, share in samples
        ),
    )


def _rounded(value: float, most: int) -> int | None:
    known = amount(value, most)
    return None if known is None else round(known)


def _named(trace: Trace, pattern: str) -> I8:
    """The rows of the counters with such a name, in order of time."""
    named = np.array([re.fullmatch(pattern, name) is not None for name in trace.names])
    return np.flatnonzero(named[trace.counters.name])


def _latest(trace: Trace, pattern: str, device: int, time: I8) -> F8:
    """The last reading of a counter before each time; -1 where there is none."""
    rows = _named(trace, pattern)
    rows = rows[trace.counters.device[rows] == device]
    place = np.searchsorted(trace.counters.time[rows], time, side="right")
    return np.concatenate([[-1.0], trace.counters.value[rows]])[place]
