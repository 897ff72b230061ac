"""The section of the result document about samples of the GPUs."""

from __future__ import annotations

from collections.abc import Sequence

from traceopt.analyzer.arrays.percentiles import median
from traceopt.analyzer.companions.gpu_samples.samples import Gpu
from traceopt.analyzer.facts import Facts
from traceopt.result.sections.companions import GpuSamplesSection, SampledGpu
from traceopt.result.words.quantities import counted
from traceopt.result.words.rounding import rate

MOST_GPUS = 64


def section(facts: Facts) -> GpuSamplesSection | None:
    """None without samples."""
    known = facts.gpu_samples
    if known is None:
        return None
    hosts = sorted({gpu.host for gpu in known.of_run})  # the names of hosts stay private
    nodes = {host: number for number, host in enumerate(hosts, 1)} if len(hosts) > 1 else {}
    gpus = [_gpu(gpu, nodes.get(gpu.host)) for gpu in known.of_run[:MOST_GPUS]]
    return GpuSamplesSection(gpus, _joules_per_step(known.of_run, facts.step_ns) if facts.has_trace else None)


def headline(facts: Facts) -> str | None:
    """The sentence for samples without a trace."""
    known = facts.companions.gpu_samples
    if known is None:
        return None
    return f"Samples of {counted(len(known.of_run), 'GPU')}, without a trace."


def _joules_per_step(gpus: Sequence[Gpu], step_ns: float) -> float | None:
    """None if the power of a GPU is not known."""
    watts = [gpu.mean_power_w for gpu in gpus]
    known = [watt for watt in watts if watt is not None]
    return rate(sum(known) * step_ns / 1e9) if known and len(known) == len(watts) else None


def _gpu(gpu: Gpu, node: int | None) -> SampledGpu:
    clocks = [samples.sm_mhz for samples in gpu.busy if samples.sm_mhz is not None]
    watts = [samples.power_w for samples in gpu.busy if samples.power_w is not None]
    return SampledGpu(
        node,
        gpu.index,
        gpu.name,
        len(gpu.samples),
        len(gpu.busy),
        median(clocks) if clocks else None,
        gpu.max_sm_mhz,
        median(watts) if watts else None,
        gpu.power_limit_w,
        max((sample.celsius for sample in gpu.samples if sample.celsius is not None), default=None),
        len(gpu.shared) if gpu.of_run else None,
    )
