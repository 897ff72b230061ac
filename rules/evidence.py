"""Evidence for findings: costs grouped by call site, and locations in the user's or a model's code."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceopt.analyzer.arrays.grouping import distinct_values
from traceopt.analyzer.arrays.intervals import Intervals
from traceopt.analyzer.communication.device_times import DeviceTimes
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.tables.compilation import KernelSource
from traceopt.analyzer.timeline.call_tree import PYTHON
from traceopt.analyzer.timeline.python_stretches import PythonStretches
from traceopt.result.finding import Evidence, Location
from traceopt.result.sections.work_rows import ViaGraph
from traceopt.result.words.message import ms, named, percent
from traceopt.result.words.rounding import us

RECORD_STACKS = "No Python stacks were recorded, so the source line is unknown; record with with_stack=True."


class SiteCost(Struct, frozen=True):
    """The cost of one call site. `rows` are its slices."""

    location: Location | None
    cost_ns: int  # over the window
    calls: int  # that begin in the window; a slice that is listed twice is one
    rows: npt.NDArray[np.integer]


def by_site(
    facts: Facts, rows: npt.NDArray[np.integer], cost_ns: npt.NDArray[np.int64] | None = None
) -> list[SiteCost]:
    """Slices grouped by source line, most expensive first; at most one group has no location."""
    return _by_site(facts, facts.call_sites.of(rows), rows, cost_ns)


def by_calling_site(
    facts: Facts, rows: npt.NDArray[np.integer], cost_ns: npt.NDArray[np.int64] | None = None
) -> list[SiteCost]:
    """The same, grouped by the line that called them; for slices that may be the user's own functions."""
    return _by_site(facts, facts.call_sites.calling(rows), rows, cost_ns)


def running_in(facts: Facts, area: Intervals) -> tuple[list[SiteCost], list[SiteCost]]:
    """What the main thread runs in an area in most steps, by line and by the innermost function of the user's or a
    model's code. Most expensive first.
    """
    time_ns, stretches = facts.python_stretches(area).recurring(facts.steps)
    rows, cost_ns = stretches.rows, (time_ns * facts.steps.count).astype(np.int64)
    functions = facts.slices.ancestor(rows, facts.call_sites.code_frames)
    known = functions >= 0
    lines = _by_site(facts, facts.call_sites.of_own_time(rows, stretches.start), rows, cost_ns)
    return lines, by_site(facts, functions[known], cost_ns[known])


def _by_site(
    facts: Facts, sites: npt.NDArray[np.integer], rows: npt.NDArray[np.integer], cost_ns: npt.NDArray[np.int64] | None
) -> list[SiteCost]:
    out, cost_ns = [], facts.slices.duration_of(rows) if cost_ns is None else cost_ns
    inside = facts.steps.host_window.contains(facts.slices.start[rows])
    for site in distinct_values(sites):
        mine = sites == site
        calls = len(distinct_values(rows[mine & inside]))
        out.append(SiteCost(_at(facts, int(site)), int(cost_ns[mine].sum()), calls, rows[mine]))
    return sorted(out, key=lambda s: -s.cost_ns)


def functions_inside(facts: Facts, rows: npt.NDArray[np.int64]) -> list[SiteCost]:
    """The user's and the models' functions that ran inside slices, longest total time first (callees included)."""
    around = facts.slices.mask(rows)
    frames = np.flatnonzero(facts.call_sites.code_frames & (facts.slices.nearest(around) >= 0) & ~around)
    return by_site(facts, frames)


def lines_inside(facts: Facts, rows: npt.NDArray[np.int64]) -> list[SiteCost]:
    """The lines of the user's or a model's code with calls inside slices, longest total time of the calls first. Empty
    if no lines of calls were recorded.
    """
    if not facts.call_sites.lines_recorded:
        return []
    slices, code = facts.slices, facts.call_sites.code_frames
    around = slices.mask(rows)
    inside = (slices.nearest(around) >= 0) & ~around & ~code & (slices.parent >= 0)
    calls = np.flatnonzero(inside & code[np.maximum(slices.parent, 0)])
    return by_site(facts, calls)


def slowest_line_of(facts: Facts, lines: list[SiteCost], least_ns: float) -> SiteCost | None:
    """The deepest line of the user's or a model's code whose calls take at least so long, among lines and what they
    call. `lines`: those of `lines_inside`.

    None without such a line: the time is spread, it is Python between calls, or no lines of calls were recorded.
    """
    found = None
    while lines and lines[0].location is not None and lines[0].cost_ns >= least_ns:
        found = lines[0]
        lines = lines_inside(facts, found.rows.astype(np.int64))
    return found


def frames_inside(facts: Facts, rows: npt.NDArray[np.integer], limit: int = 4) -> list[Evidence]:
    """The Python functions with the most time inside slices (callees and libraries included; no builtins, no torch)."""
    slices = facts.slices
    around = slices.mask(rows)
    inside = np.flatnonzero((slices.kind == PYTHON) & ~around & (slices.nearest(around) >= 0))
    functions = [
        one
        for one in facts.slices_by_name(inside, (slices.end - slices.start)[inside])
        if not one.name.startswith(("<", "torch/", "nn.Module"))
    ]
    count = facts.steps.count
    return [
        Evidence(
            named(function.name),
            round(function.total / count / 1e3, 3),
            round(len(function.rows) / count, 3),
            "inside",
            function_location(facts, int(function.rows[0])),
            inside=True,
        )
        for function in functions[:limit]
    ]


def function_location(facts: Facts, row: int) -> Location | None:
    """Where a frame of the user's or a model's code begins; None for frames of other code."""
    return location_of(facts, row) if facts.call_sites.code_frames[row] else None


def location_of(facts: Facts, slice_row: int) -> Location | None:
    """The user's or the model's code behind a slice; None if no stack was recorded."""
    return locations_of(facts, [slice_row])[0]


def locations_of(facts: Facts, slice_rows: Sequence[int]) -> list[Location | None]:
    """`location_of` for many rows at once: one costs as much as a hundred. A row below 0 has no location."""
    rows = np.array(slice_rows, np.int64)
    known = facts.call_sites.of(rows[rows >= 0])
    sites = np.full(len(rows), -1)
    sites[rows >= 0] = known
    return [facts.call_sites.sites[site] if site >= 0 else None for site in sites.tolist()]


def place_of_work(facts: Facts, row: int) -> Location | None:
    """The user's line behind a row of GPU work. For work of a CUDA graph: the line of its launch stack, else the line
    that captured it, or that the log of torch.compile names; else the line that launched it.
    """
    return places_of_work(facts, np.array([row]))[0]


def places_of_work(facts: Facts, rows: npt.NDArray[np.integer]) -> list[Location | None]:
    """`place_of_work` for many rows at once."""
    launched_at = facts.graph_origins.launched_at
    logged = [None if row in launched_at else _compiled_source(facts, row) for row in rows.tolist()]
    return [
        (source.site if source is not None else None) or _at(facts, site)
        for source, site in zip(logged, facts.sites_of_work(rows).tolist(), strict=True)
    ]


def gpu_evidence(facts: Facts, one: DeviceTimes) -> Evidence:
    """The compute of one of several GPUs, for which others it waits, and the line of its longest kernel."""
    count, gpu = facts.steps.count, facts.gpu
    waits = [f"waits {ms(one.waits[other].total / count)} for GPU {other}" for other in one.waits_for]
    longest = int((gpu.in_window * (gpu.is_compute & (gpu.work.device == one.device))).argmax())
    return Evidence(
        f"Compute of GPU {one.device}",
        us(one.compute.total / count),
        detail=", ".join([percent(one.compute.total / facts.steps.window_ns), *waits]),
        location=place_of_work(facts, longest),
    )


def operator_of_work(facts: Facts, row: int) -> tuple[str | None, ViaGraph | None]:
    """The operator behind a row of GPU work, and how it is known if a CUDA graph launched it."""
    origins = facts.graph_origins
    if (op_slice := int(origins.op_slice[row])) >= 0:
        return name_of(facts, op_slice), "capture"
    if (annotation := int(origins.annotation[row])) >= 0:
        return origins.annotations[annotation], "annotation"
    source = _compiled_source(facts, row)
    if source is not None:
        return source.operators, "compile_log"
    if row in origins.launched_at:
        return None, "launch_stack"
    op = int(facts.regions.op_of_work[row])
    return facts.trace.names[op] if op >= 0 else None, "replay" if origins.replayed[row] else None


def _compiled_source(facts: Facts, row: int) -> KernelSource | None:
    """What the log of torch.compile says about a kernel of a CUDA graph whose capture is unknown."""
    origins = facts.graph_origins
    if facts.compilation is None or not origins.compiled[row] or origins.op_slice[row] >= 0:
        return None
    return facts.compilation.kernels[facts.trace.names[int(facts.gpu.work.name[row])]]


def library_around(facts: Facts, row: int, location: Location | None) -> str | None:
    """The innermost line of a model library around a slice, unless it is the slice's location already."""
    library = facts.call_sites.library_frame(row)
    return None if location is not None and library == f"{location.file}:{location.line}" else library


def _at(facts: Facts, site: int) -> Location | None:
    return facts.call_sites.sites[site] if site >= 0 else None


def site_evidence(
    facts: Facts,
    sites: list[SiteCost],
    what: Callable[[SiteCost], str] | str | None = None,
    limit: int = 5,
    *,
    inside: bool = False,
) -> list[Evidence]:
    """One row per call site, with times and calls per step. `what`: the same words for all, or a function of the
    site; None: the name of the call. `inside`: each row is a part of the row above.
    """
    count = facts.steps.count
    out = []
    for site in sites[:limit]:
        called = name_of(facts, int(site.rows[0]))
        words = named(called) if what is None else what if isinstance(what, str) else what(site)
        library = library_around(facts, int(site.rows[0]), site.location)
        out.append(
            Evidence(
                what=words,
                us_per_step=round(site.cost_ns / count / 1e3, 3),
                calls_per_step=round(site.calls / count, 3),
                detail=library if library and not called.startswith(library.rpartition(":")[0]) else None,
                location=site.location,
                inside=inside,
            )
        )
    return out


def main_function_by_site(
    facts: Facts, stretches: PythonStretches, time_ns: npt.NDArray[np.float64], limit: int = 5
) -> list[Evidence]:
    """One row per call site, named after the function that takes most of the time there, most expensive first. If a
    model library calls it, the detail says where. `time_ns`: what each stretch takes of a step.
    """
    rows = stretches.rows
    sites = facts.call_sites.of_own_time(rows, stretches.start)
    out = []
    for site in distinct_values(sites):
        mine = sites == site
        function = facts.slices_by_name(rows[mine], stretches.length[mine])[0]
        cost_us = round(float(time_ns[mine].sum()) / 1e3, 3)
        location = _at(facts, int(site))
        library = library_around(facts, int(function.rows[0]), location)
        detail = f"called by {named(library)}" if library else None
        out.append(Evidence(named(function.name), cost_us, detail=detail, location=location))
    return sorted(out, key=lambda row: -(row.us_per_step or 0.0))[:limit]


def site_locations(sites: list[SiteCost], limit: int = 3) -> list[Location]:
    """The locations of the most expensive sites that have one."""
    return [site.location for site in sites if site.location is not None][:limit]


def places(evidence: Sequence[Evidence], limit: int = 3) -> list[Location]:
    """The distinct locations in the evidence."""
    return list(dict.fromkeys(row.location for row in evidence if row.location is not None))[:limit]


def name_of(facts: Facts, slice_row: int) -> str:
    """The name of a slice."""
    return facts.trace.names[int(facts.slices.name[slice_row])]
