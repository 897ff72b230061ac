"""The section of the result document about samples of the GPUs."""

from __future__ import annotations

from traceopt.analyzer.arrays.percentiles import median
from traceopt.analyzer.companions.gpu_samples.samples import Gpu
from traceopt.analyzer.facts import Facts
from traceopt.result.companions import GpuSamplesSection, SampledGpu
from traceopt.result.words.quantities import counted

MOST_GPUS = 64


def section(facts: Facts) -> GpuSamplesSection | None:
    """None without samples."""
    known = facts.gpu_samples
    if known is None:
        return None
    hosts = sorted({gpu.host for gpu in known.of_run})  # the names of hosts stay private
    nodes = {host: number for number, host in enumerate(hosts, 1)} if len(hosts) > 1 else {}
    return GpuSamplesSection([_gpu(gpu, nodes.get(gpu.host)) for gpu in known.of_run[:MOST_GPUS]])


def headline(facts: Facts) -> str | None:
    """The sentence for samples without a trace."""
    known = facts.companions.gpu_samples
    if known is None:
        return None
    return f"Samples of {counted(len(known.of_run), 'GPU')}, without a trace."


def _gpu(gpu: Gpu, node: int | None) -> SampledGpu:
    clocks = [one.sm_mhz for one in gpu.busy if one.sm_mhz is not None]
    watts = [one.power_w for one in gpu.busy if one.power_w is not None]
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
