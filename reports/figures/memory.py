"""Device memory over the step shown, with what it holds at its peak, and memory over the whole run."""

from __future__ import annotations

from collections.abc import Sequence

from traceopt.reports.figures.figure import (
    FigureDict,
    Trace,
    along_run,
    color,
    figure,
    lines,
    nothing,
    scaled,
    scaled_sizes,
    time_unit,
    under_pointer,
)
from traceopt.reports.words.not_recorded import missing_memory
from traceopt.result.document import Result
from traceopt.result.sections.work_rows import MemoryPoint
from traceopt.result.words import quantities

TITLE = "Device memory"
RUN = "Memory over the whole run"
_OVER_RUN = {"device": ("Tensors on the GPU", "compute"), "process": ("Resident memory of the process", "ink")}


def draw(document: Result) -> FigureDict:
    """What tensors hold, and what the caching allocator holds for them."""
    memory = document.memory
    if not memory.curve:
        return nothing(TITLE, missing_memory(document))
    end_us = max(memory.curve_us or 0.0, memory.curve[-1].us)
    peak = max(memory.curve, key=lambda point: point.allocated_bytes)
    unit, size_unit = time_unit(end_us), quantities.size_parts(peak.allocated_bytes)[1]
    curves = [_curve("In tensors", "compute", [point.allocated_bytes for point in memory.curve], size_unit)]
    held = [point.reserved_bytes or memory.peak_reserved_bytes for point in memory.curve]
    if any(held):
        curves.append(_curve("Held by the allocator", "mute", held, size_unit))
        curves[1]["line"]["dash"] = "dash"
    curves[0]["fill"] = "tozeroy"
    times = scaled((point.us for point in memory.curve), unit)
    parts = [f"{part.name}: {quantities.size_text(part.bytes)}" for part in memory.composition]
    return figure(
        TITLE,
        [*({**curve, "x": times} for curve in curves), _peak(peak, parts, unit, size_unit)],
        subtitle="Over the step of the host, which allocates before the GPU runs the work.",
        height=420,
        xaxis={"title": f"{unit} since the step began", "range": scaled([0, end_us], unit)},
        yaxis={"title": size_unit, "rangemode": "tozero"},
    )


def draw_run(document: Result) -> FigureDict:
    """What tensors hold on the GPU and the process on the host, at the end of steps."""
    read = [
        memory
        for memory in (document.whole_run.memory if document.whole_run is not None else [])
        if len(memory.steps) > 1
    ]
    if not read:
        return nothing(RUN, "Memory was read at too few steps.")
    unit = quantities.size_parts(max(max(memory.bytes) for memory in read))[1]
    curves = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": name,
            "x": one.steps,
            "y": scaled_sizes(one.bytes, unit),
            "hovertemplate": under_pointer(unit),
            "line": {"color": color(token)},
        }
        for one, (name, token) in ((memory, _OVER_RUN[memory.of]) for memory in read)
    ]
    return figure(
        RUN,
        curves,
        subtitle="At the end of steps: the highest reading of each stretch.",
        yaxis={"title": unit, "rangemode": "tozero"},
        **along_run(step for memory in read for step in memory.steps),
    )


def _curve(name: str, token: str, sizes: Sequence[int | None], size_unit: str) -> Trace:
    """An amount is constant until the next event."""
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "y": scaled_sizes(sizes, size_unit),
        "hovertemplate": f"%{{y:.4g}} {size_unit} at %{{x:.4g}}",
        "line": {"color": color(token), "shape": "hv", "width": 1.5},
    }


def _peak(peak: MemoryPoint, parts: Sequence[str], unit: str, size_unit: str) -> Trace:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "Peak",
        "x": scaled([peak.us], unit),
        "y": scaled_sizes([peak.allocated_bytes], size_unit),
        "hovertext": [lines(f"Peak: {quantities.size_text(peak.allocated_bytes)}", *parts)],
        "hoverinfo": "text",
        "marker": {"color": color("high"), "size": 9},
    }
