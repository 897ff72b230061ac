"""The rules, and the engine that turns facts into findings.

Rules, built-in or plug-in, import everything they need from here:

    from traceopt.rules import Evidence, Facts, Findings, Fix, RemoveHost, Rule, priced, threshold

docs/rules-development.md shows a complete rule; `traceopt.testing` has what its tests need.
"""

from traceopt.analyzer.arrays.grouping import distinct_values, group_rows
from traceopt.analyzer.arrays.intervals import Intervals, intersect, merge, subtract, union
from traceopt.analyzer.arrays.percentiles import median
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.ranks.run_facts import RunFacts
from traceopt.analyzer.replay.changes import (
    AsyncCopy,
    Change,
    DropSync,
    MergeKernels,
    MoveToStream,
    RemoveHost,
    RemoveLaunches,
    ScaleWork,
)
from traceopt.analyzer.timeline.call_tree import ANNOTATION, OP, PYTHON, RUNTIME
from traceopt.result.finding import Confidence, Evidence, Finding, Fix, Impact, Location, Saving
from traceopt.result.quantities import megabytes, microseconds, ms, per_second, percent, size, times
from traceopt.result.rounding import rate, us
from traceopt.rules.bases.rank_rule import RunRule, on_rank, rank_name, ranks_saving
from traceopt.rules.evidence import (
    SiteCost,
    by_calling_site,
    by_site,
    location_of,
    name_of,
    place_of_work,
    places,
    site_evidence,
    site_locations,
)
from traceopt.rules.registry import TRACE_QUALITY
from traceopt.rules.rule import Findings, Rule, threshold
from traceopt.rules.savings.price import Price, Priced
from traceopt.rules.savings.pricing import (
    Changes,
    area_of,
    calls_in,
    hide,
    priced,
    priced_work,
    scaled,
    shorter,
    without_calls,
)
from traceopt.rules.savings.starvation import (
    dispatch_area,
    dispatch_ns,
    host_bounds,
    launched_ns,
    saving,
    starved_ns,
    typical_ns,
)
from traceopt.rules.savings.whole_run import mean_step_ns, whole_run_saving

__all__ = [
    "ANNOTATION",
    "OP",
    "PYTHON",
    "RUNTIME",
    "TRACE_QUALITY",
    "AsyncCopy",
    "Change",
    "Changes",
    "Confidence",
    "DropSync",
    "Evidence",
    "Facts",
    "Finding",
    "Findings",
    "Fix",
    "Impact",
    "Intervals",
    "Location",
    "MergeKernels",
    "MoveToStream",
    "Price",
    "Priced",
    "RemoveHost",
    "RemoveLaunches",
    "Rule",
    "RunFacts",
    "RunRule",
    "Saving",
    "ScaleWork",
    "SiteCost",
    "area_of",
    "by_calling_site",
    "by_site",
    "calls_in",
    "dispatch_area",
    "dispatch_ns",
    "distinct_values",
    "group_rows",
    "hide",
    "host_bounds",
    "intersect",
    "launched_ns",
    "location_of",
    "mean_step_ns",
    "median",
    "megabytes",
    "merge",
    "microseconds",
    "ms",
    "name_of",
    "on_rank",
    "per_second",
    "percent",
    "place_of_work",
    "places",
    "priced",
    "priced_work",
    "rank_name",
    "ranks_saving",
    "rate",
    "saving",
    "scaled",
    "shorter",
    "site_evidence",
    "site_locations",
    "size",
    "starved_ns",
    "subtract",
    "threshold",
    "times",
    "typical_ns",
    "union",
    "us",
    "whole_run_saving",
    "without_calls",
]
