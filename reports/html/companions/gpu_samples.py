"""The section of the report about samples of the GPUs."""

from __future__ import annotations

from traceopt.reports.html.companions.section import Section
from traceopt.reports.words.companions import gpu_samples as words
from traceopt.result.document import Result


def section(result: Result) -> Section | None:
    """None without samples."""
    known = result.gpu_samples
    if known is None:
        return None
    return Section("gpu-samples", "GPU samples", "gpu_samples.html.j2", [words.line(gpu) for gpu in known.gpus])
