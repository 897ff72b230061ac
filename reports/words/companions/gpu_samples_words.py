"""The section of the reports about samples of the GPUs."""

from __future__ import annotations

from traceopt.reports.words.companions.section import CompanionSection
from traceopt.result.document import Result
from traceopt.result.sections.companions import SampledGpu
from traceopt.result.words import quantities

MAX_LINES = 4


def section(result: Result) -> CompanionSection | None:
    """Clock, power and temperature of each GPU; None without samples."""
    known = result.gpu_samples
    if known is None:
        return None
    sentences = [_line(gpu) for gpu in known.gpus]
    if known.joules_per_step is not None:
        on = "one GPU" if len(known.gpus) == 1 else f"{len(known.gpus)} GPUs"
        sentences.insert(0, f"A step takes {quantities.count(known.joules_per_step)} J on {on}.")
    return CompanionSection(
        anchor="gpu-samples",
        title="GPU samples",
        known=known,
        lines=sentences[:MAX_LINES],
        sentences=sentences,
        tables=[],
    )


def _line(gpu: SampledGpu) -> str:
    """ "GPU 0 (H100, node 2), busy in 50 of 60 samples: 1,900 of 1,980 MHz, 620 W, at most 71 °C." """
    parts = []
    if gpu.sm_mhz is not None:
        parts.append(f"{gpu.sm_mhz:,.0f} of {gpu.max_sm_mhz:,} MHz" if gpu.max_sm_mhz else f"{gpu.sm_mhz:,.0f} MHz")
    if gpu.power_w is not None:
        limit = f" of {gpu.power_limit_w:,.0f}" if gpu.power_limit_w else ""
        parts.append(f"{gpu.power_w:,.0f}{limit} W")
    if gpu.celsius is not None:
        parts.append(f"at most {gpu.celsius} °C")
    node = f", node {gpu.node}" if gpu.node is not None else ""
    measured = f": {', '.join(parts)}" if parts else ""
    return f"GPU {gpu.index} ({gpu.name}{node}), busy in {gpu.busy_samples:,} of {gpu.samples:,} samples{measured}."
