"""What several rules need: savings from measured time, costs grouped by call site, sentences about stacks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceopt.analyzer.arrays.grouping import distinct_values
from traceopt.analyzer.arrays.intervals import Intervals, complement, intersect, merge, union
from traceopt.analyzer.arrays.percentiles import median
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.reading.growing_columns import distinct
from traceopt.analyzer.stalls.idle import CAUSES
from traceopt.analyzer.timeline.call_tree import PYTHON
from traceopt.result.finding import Evidence, Location, Saving

RECORD_STACKS = "No Python stacks were recorded, so the line is not known; record with with_stack=True."
LONG_PYTHON_NS = 1_000_000  # Python that starves the GPU this long at a stretch is work of its own
HOST_DISPATCH = ("launch", "python", "untraced")  # the host's ordinary work between two kernels


def saving(facts: Facts, low_ns: float, est_ns: float, high_ns: float, basis: str) -> Saving:
    """Time per step, bounded by the median step; ordered low <= est <= high."""
    step = facts.step_ns
    est = min(max(0.0, est_ns), step)
    low = min(max(0.0, low_ns), est)
    high = min(max(est, high_ns), step)
    return Saving(
        round(low / 1e3, 3),
        round(est / 1e3, 3),
        round(high / 1e3, 3),
        round(est / step, 6) if step else 0.0,
        basis,
    )


def ms(ns: float) -> str:
    """ "12.3 ms" for a sentence; below a tenth of a millisecond in microseconds."""
    return f"{ns / 1e6:,.1f} ms" if ns >= 1e5 else f"{ns / 1e3:,.0f} µs"


def times(count: float) -> str:
    """How often in a step, for a sentence."""
    if 0.95 <= count <= 1.05:
        return "once a step"
    return f"{count:,.0f} times a step" if count >= 10 else f"{count:,.2g} times a step"


def percent(share: float) -> str:
    """ "34%"; below ten per cent with one decimal."""
    return f"{share:.0%}" if share >= 0.0995 else f"{share:.1%}"


def per_step(facts: Facts, times: npt.NDArray[np.int64], amount: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Amounts that happen at times, summed by step. Shape (steps,)."""
    return facts.steps.per_step(facts.steps.step_of(times), amount)


def typical_ns(facts: Facts, times: npt.NDArray[np.int64], amount: npt.NDArray[np.int64]) -> float:
    """Amounts that happen at times, in the median step."""
    return median(per_step(facts, times, amount))


def launched_ns(facts: Facts, work: npt.NDArray[np.bool_] | npt.NDArray[np.float64]) -> float:
    """GPU time a step of work that the steps launched, whenever it ran: the GPU may be some steps behind. `work` is a
    mask, or the part of each row that counts.
    """
    launch = facts.links.launch_slice[facts.gpu.rows]
    at = facts.slices.start[np.maximum(launch, 0)] if len(facts.slices) else np.zeros(len(launch), np.int64)
    start, end = facts.steps.window
    inside = (launch >= 0) & (at >= start) & (at < end)
    return float((facts.gpu.work.duration * work)[inside].sum()) / facts.steps.count


class SiteCost(Struct, frozen=True):
    """What one call site costs. `rows` are its slices."""

    location: Location | None
    cost_ns: int  # over the window
    calls: int
    rows: npt.NDArray[np.integer]


def by_site(facts: Facts, rows: npt.NDArray[np.integer], cost_ns: npt.NDArray[np.int64]) -> list[SiteCost]:
    """Slices grouped by the user's line behind them, the dearest first; one group without a location at most."""
    return _by_site(facts, facts.call_sites.of(rows), rows, cost_ns)


def by_calling_site(facts: Facts, rows: npt.NDArray[np.integer], cost_ns: npt.NDArray[np.int64]) -> list[SiteCost]:
    """The same by the line that called them, where they may be functions of the user's own."""
    return _by_site(facts, facts.call_sites.calling(rows), rows, cost_ns)


def _by_site(
    facts: Facts, sites: npt.NDArray[np.integer], rows: npt.NDArray[np.integer], cost_ns: npt.NDArray[np.int64]
) -> list[SiteCost]:
    out = []
    for site in distinct_values(sites):
        mine = sites == site
        out.append(SiteCost(_location(facts, int(site)), int(cost_ns[mine].sum()), int(mine.sum()), rows[mine]))
    return sorted(out, key=lambda s: -s.cost_ns)


def functions_inside(facts: Facts, rows: npt.NDArray[np.int64]) -> list[SiteCost]:
    """The user's functions that ran inside slices, by their time (callees included), the dearest first."""
    around = np.zeros(len(facts.slices), bool)
    around[rows] = True
    frames = np.flatnonzero(facts.call_sites.user_frames & (facts.slices.nearest(around) >= 0) & ~around)
    return by_site(facts, frames, facts.slices.end[frames] - facts.slices.start[frames])


def frames_inside(facts: Facts, rows: npt.NDArray[np.integer], limit: int = 4) -> list[Evidence]:
    """The longest Python functions inside slices, libraries' as well (callees included; no builtins, no torch)."""
    slices, names = facts.slices, facts.trace.names
    around = np.zeros(len(slices), bool)
    around[rows] = True
    inside = np.flatnonzero((slices.kind == PYTHON) & ~around & (slices.nearest(around) >= 0))
    codes, group = distinct(slices.name[inside])
    total = np.bincount(group, weights=(slices.end - slices.start)[inside], minlength=len(codes))
    calls = np.bincount(group, minlength=len(codes))
    order = [
        i for i in np.argsort(-total, kind="stable") if not names[codes[i]].startswith(("<", "torch/", "nn.Module"))
    ]
    count = facts.steps.count
    return [
        Evidence(names[codes[i]], round(float(total[i]) / count / 1e3, 3), round(float(calls[i]) / count, 3), "inside")
        for i in order[:limit]
    ]


def place_of(facts: Facts, slice_row: int) -> Location | None:
    """The user's line behind one slice."""
    return _location(facts, int(facts.call_sites.of(np.array([slice_row]))[0])) if slice_row >= 0 else None


def place_of_work(facts: Facts, row: int) -> Location | None:
    """The user's line that launched a row of the device's work."""
    return place_of(facts, int(facts.links.launch_slice[facts.gpu.rows[row]]))


def _location(facts: Facts, site: int) -> Location | None:
    if site < 0:
        return None
    found = facts.call_sites.sites[site]
    return Location(found.file, found.line, found.function, found.last_line)


def site_evidence(
    facts: Facts, sites: list[SiteCost], what: Callable[[SiteCost], str], limit: int = 5
) -> list[Evidence]:
    """One row a call site, per step."""
    count = facts.steps.count
    out = []
    for site in sites[:limit]:
        name, library = what(site), facts.call_sites.library_frame(int(site.rows[0]))
        out.append(
            Evidence(
                what=name,
                us_per_step=round(site.cost_ns / count / 1e3, 3),
                calls_per_step=round(site.calls / count, 3),
                detail=library if library and not name.startswith(library.rpartition(":")[0]) else None,
                location=site.location,
            )
        )
    return out


def locations(sites: list[SiteCost], limit: int = 3) -> list[Location]:
    """The dearest known places."""
    return [site.location for site in sites if site.location is not None][:limit]


def places(evidence: list[Evidence], limit: int = 3) -> list[Location]:
    """The distinct places that evidence names."""
    return list(dict.fromkeys(row.location for row in evidence if row.location is not None))[:limit]


def name_of(facts: Facts, slice_row: int) -> str:
    return facts.trace.names[int(facts.slices.name[slice_row])]


def starved_ns(facts: Facts, *causes: str) -> float:
    """GPU starvation by these causes (by all when none is given) in the median step."""
    wanted = causes or tuple(cause for cause in CAUSES if cause != "queued")
    return facts.idle.typical_ns(*wanted)


def dispatch_amount(facts: Facts) -> npt.NDArray[np.int64]:
    """What each idle gap owes to dispatch: operators, launch calls, and Python between them in short gaps.

    A long gap full of Python is not dispatch. Shape (len(gaps),), ns.
    """
    idle = facts.idle
    amount = sum((idle.of_gaps(cause) for cause in HOST_DISPATCH), np.zeros(len(facts.gaps), np.int64))
    return amount - python_amount(facts)


def python_amount(facts: Facts) -> npt.NDArray[np.int64]:
    """What each long idle gap owes to Python outside operators. Shape (len(gaps),), ns."""
    gaps = facts.gaps
    return np.where(gaps.starved_end - gaps.start >= LONG_PYTHON_NS, facts.idle.of_gaps("python"), 0)


def dispatch_area(facts: Facts) -> Intervals:
    """When the host does its ordinary work: all of the window but waits, Python for a millisecond and more while the
    GPU starves, and what other rules are about.
    """
    gaps, areas = facts.gaps, facts.flow_areas
    long = gaps.starved_end - gaps.start >= LONG_PYTHON_NS
    python = intersect(areas["python"], union(gaps.start[long], gaps.starved_end[long]))
    other = merge(*(area for name, area in areas.items() if name not in HOST_DISPATCH))
    return complement(merge(other, python), *facts.steps.window)


def dispatch_ns(facts: Facts) -> float:
    """Dispatch starvation in the median step."""
    return typical_ns(facts, facts.gaps.start, dispatch_amount(facts))


def host_bounds(
    facts: Facts, area: Intervals, removed_share: float, gpu_ns: tuple[float, float] = (0.0, 0.0)
) -> tuple[float, float, float]:
    """What shortening host work gives back, low, expected and at most, ns a step.

    Certainly the time in which the GPU starved beside it; else all of it, up to the starvation of the whole step.
    `gpu_ns`: GPU time per step that goes with the launches, expected and at most.
    """
    edges = facts.steps.edges
    host_ns = median(area.within(edges[:-1], edges[1:])) * removed_share
    if not facts.has_gpu:
        return 0.8 * host_ns, host_ns, host_ns
    beside = intersect(area, facts.gaps.starved)
    low = median(beside.within(edges[:-1], edges[1:])) * removed_share
    high = max(low, min(host_ns, starved_ns(facts)))
    return low, high + gpu_ns[0], high + gpu_ns[1]
