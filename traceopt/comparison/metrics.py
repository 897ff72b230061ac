"""The metrics of a run that gates can limit, and whether more or less of each is worse."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from msgspec import Struct

from traceopt.analyzer.vocabulary.causes.cause import Cause
from traceopt.analyzer.vocabulary.causes.table import COMMUNICATION, COPIES, DATA_LOADING, HOST_SYNC
from traceopt.result.comparison import MetricUnit
from traceopt.result.document import Result
from traceopt.result.words.quantities import ms, peak_caveat, percent, rate_number, size


class Metric(Struct, frozen=True):
    """`of` returns None if the run did not measure it. `fewer_is_worse`: a good run has a high value.

    `record` says how to have it measured. `of_peak`: a share of the device's peak rate.
    """

    name: str
    label: str
    unit: MetricUnit
    of: Callable[[Result], float | None]
    record: str
    fewer_is_worse: bool = False
    of_peak: bool = False


def _step_time(result: Result) -> float | None:
    return None if result.step.source == "window" else result.step.typical_us


def _part(cause: Cause) -> Callable[[Result], float | None]:
    """The share of a part of the typical step; 0 if the step has a breakdown without this part."""

    def of(result: Result) -> float | None:
        if not result.breakdown:
            return None
        return sum(part.share for part in result.breakdown if part.name == cause.key)

    return of


def _copies(result: Result) -> float | None:
    return _part(COPIES)(result) if result.gpu.busy_share is not None else None


def _peak_memory(result: Result) -> float | None:
    memory = result.memory
    return memory.peak_allocated_bytes if memory.peak_allocated_bytes is not None else memory.peak_reserved_bytes


def _measured_gain(result: Result) -> float | None:
    """What was kept gains together: the last measurement on top of all others, or else the largest single one. A gain
    that may be noise does not count.
    """
    clear = [row for row in result.tried if row.gain_share is not None and row.verdict != "unclear"]
    together = [row for row in clear if row.kind == "all"]
    return max((row.gain_share for row in together or clear if row.gain_share is not None), default=None)


STEP_TIME = "step_time"

_STEPS = "record step marks: use traceopt run, or call prof.step() after each step"
_GPU = "record with ProfilerActivity.CUDA"
_TRIED = "use traceopt try; an unclear gain does not count"
_RATE = "pass --tokens-per-step or --samples-per-step"

METRICS = {
    metric.name: metric
    for metric in (
        Metric(STEP_TIME, "Step time", "us", _step_time, _STEPS),
        Metric("gpu_idle", "GPU idle", "share", lambda result: result.gpu.idle_share, _GPU),
        Metric("data_stall", DATA_LOADING.label, "share", _part(DATA_LOADING), _STEPS),
        Metric("sync_stall", HOST_SYNC.label, "share", _part(HOST_SYNC), _STEPS),
        Metric("exposed_communication", COMMUNICATION.label, "share", _part(COMMUNICATION), _STEPS),
        Metric("exposed_copies", COPIES.label, "share", _copies, _GPU),
        Metric("peak_memory", "Peak memory", "bytes", _peak_memory, "record with profile_memory=True"),
        Metric(
            "mfu",
            "MFU",
            "share",
            lambda result: result.efficiency.mfu,
            "record a GPU with record_shapes=True",
            fewer_is_worse=True,
            of_peak=True,
        ),
        Metric(
            "tokens_per_s",
            "Tokens per second",
            "per_s",
            lambda result: result.throughput.tokens_per_s if result.throughput else None,
            _RATE,
            True,
        ),
        Metric(
            "samples_per_s",
            "Samples per second",
            "per_s",
            lambda result: result.throughput.samples_per_s if result.throughput else None,
            _RATE,
            True,
        ),
        Metric("measured_gain", "Measured gain", "share", _measured_gain, _TRIED, fewer_is_worse=True),
    )
}


def measured(metric: Metric, result: Result) -> float | None:
    """The value of a metric; also None if the trace is unusable."""
    value = metric.of(result) if result.quality.verdict != "unusable" else None
    return value if value is not None and math.isfinite(value) else None


def mean_of(metric: Metric, results: Sequence[Result]) -> tuple[float | None, list[float]]:
    """The mean over the runs, or None if a run did not measure it, and the measured values."""
    values = [value for result in results if (value := measured(metric, result)) is not None]
    return (sum(values) / len(values) if values and len(values) == len(results) else None), values


def peak_remarks(metric: Metric, results: Sequence[Result]) -> str:
    """ " (peak unverified)" for a share of such a peak, and a remark if the runs used different peaks."""
    used = [result.efficiency for result in results if metric.of_peak and result.efficiency.mfu is not None]
    rates: dict[str | None, set[float | None]] = {}
    for one in used:
        rates.setdefault(one.peak_dtype, set()).add(one.peak_tflops)
    all_caveats = (peak_caveat(one.peak_source, one.peak_verified) for one in used)
    caveats = dict.fromkeys(caveat for caveat in all_caveats if caveat)
    if any(len(of_type) > 1 for of_type in rates.values()):
        caveats["different peaks"] = None
    return f" ({', '.join(caveats)})" if caveats else ""


def value_text(unit: MetricUnit, value: float) -> str:
    """A value with its unit, for people."""
    if unit == "us":
        return ms(value * 1e3)
    if unit == "share":
        return percent(value)
    return size(value) if unit == "bytes" else rate_number(value)
