"""Samples of whole processes as rows of a Markdown table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from benchmarks.processes import Sample

MB = 1e6
RANGE = "(min to max)"


def medians(samples: Sequence[Sample]) -> tuple[float, float, float]:
    """Wall s, CPU s and peak MB."""
    return (
        median(sample.wall_s for sample in samples),
        median(sample.cpu_s for sample in samples),
        median(sample.peak_bytes for sample in samples) / MB,
    )


def seconds(samples: Sequence[Sample], digits: int) -> str:
    """The cells of wall and CPU time: the median, with minimum and maximum if there are several samples."""
    cells = []
    for times in ([sample.wall_s for sample in samples], [sample.cpu_s for sample in samples]):
        spread = f" ({min(times):.{digits}f} to {max(times):.{digits}f})" if len(times) > 1 else ""
        cells.append(f"{median(times):.{digits}f}{spread}")
    return " | ".join(cells)


def table(samples: Mapping[str, Sequence[Sample]]) -> str:
    """A Markdown table of medians, and of each median as a multiple of the first row."""
    rows = [f"| | wall s {RANGE} | CPU s {RANGE} | peak MB | x wall | x CPU | x peak |", "| --- " + "| ---: " * 6 + "|"]
    first: tuple[float, float, float] | None = None
    for name, runs in samples.items():
        values = medians(runs)
        first = first or values
        times = " | ".join(f"{value / base:.1f}" for value, base in zip(values, first, strict=True))
        rows.append(f"| {name} | {seconds(runs, 2)} | {values[2]:.0f} | {times} |")
    return "\n".join(rows)
