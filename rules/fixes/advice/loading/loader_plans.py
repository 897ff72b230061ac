"""What a trace shows of its DataLoader: the calls, the lines that read from it, and the plan for its workers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from traceopt.analyzer.arrays.percentiles import median
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.requirements import lacks
from traceopt.analyzer.run_log.loaders import Loader
from traceopt.analyzer.timeline.call_tree import ANNOTATION, OP
from traceopt.analyzer.vocabulary import op_names
from traceopt.analyzer.vocabulary.causes.table import DATA_LOADING
from traceopt.rules.evidence import SiteCost, by_site
from traceopt.rules.fixes.advice.loading.loader_workers import LoaderPlan
from traceopt.rules.savings.pricing import area_of
from traceopt.rules.savings.starvation import typical_ns


def plan_moved_work(facts: Facts, work_ns: float, rest_ns: float) -> LoaderPlan:
    """Of work of the training thread that worker processes could do. `rest_ns`: the step without it."""
    environment = facts.captured.environment
    return LoaderPlan(
        False,
        work_ns,
        max(1.0, rest_ns),
        1.0,
        Loader(),
        environment.cores,
        environment.threads or 1,
        facts.has_gpu,
        _measured_slowdown(facts),
        parallel_ns=_parallel_ns(facts),
    )


def loader_rows(facts: Facts) -> npt.NDArray[np.int64]:
    """The outermost slices of the main thread that are inside a loader."""
    rows = facts.host.rows_of(DATA_LOADING)
    return np.asarray(rows[facts.slices.thread[rows] == facts.steps.thread])


def loader_sites(facts: Facts) -> list[SiteCost]:
    """The lines that read from a loader, by what the device waits in them."""
    rows = loader_rows(facts)
    return by_site(facts, rows, facts.stalled_within(facts.slices.start[rows], facts.slices.end[rows]))


def waits_in(facts: Facts, sites: Sequence[SiteCost]) -> list[SiteCost]:
    """The same sites, by what the device waits in them."""
    start, end = facts.slices.start, facts.slices.end
    return [replace(one, cost_ns=int(facts.stalled_within(start[one.rows], end[one.rows]).sum())) for one in sites]


def loading_plan(facts: Facts) -> LoaderPlan:
    """What is known about the training loader, from its time in the typical step."""
    rows = loader_rows(facts)
    start, end = facts.slices.start[rows], facts.slices.end[rows]
    rest_ns = facts.step_ns - facts.stalls.typical_ns(DATA_LOADING)
    return plan_loader(facts, typical_ns(facts, start, end - start), rest_ns)


def plan_loader(facts: Facts, wait_ns: float, rest_ns: float) -> LoaderPlan:
    """`wait_ns`: time of a step in `__next__`. `rest_ns`: the step without the stall."""
    multiprocess = bool(facts.regions.named(op_names.is_multiprocess_dataloader, ANNOTATION, OP).any())
    settings = facts.captured.training_loader or Loader()
    if settings.num_workers is not None and multiprocess != (settings.num_workers > 0):
        settings = Loader()  # recorded for another loader than the one in the trace
    rows = loader_rows(facts)
    calls = facts.steps.per_step(facts.steps.host_step_of(facts.slices.start[rows]), np.ones(len(rows), np.int64))
    return LoaderPlan(
        multiprocess,
        wait_ns,
        max(1.0, rest_ns),
        max(1.0, median(calls)),
        settings,
        facts.captured.environment.cores,
        facts.captured.environment.threads or 1,
        facts.has_gpu,
        _measured_slowdown(facts),
        sampling_share(facts) * wait_ns,
        _parallel_ns(facts),
        len(facts.fresh_iterators) > 0,
    )


def sampling_share(facts: Facts) -> float:
    """Of the main thread's time in the loader: what its sampler takes. 0 if no Python frames were recorded."""
    loading, sampling = (
        facts.steps.host_mean_ns(area_of(facts, rows)) for rows in (loader_rows(facts), facts.sampler_calls)
    )
    return min(1.0, sampling / loading) if loading else 0.0


def _parallel_ns(facts: Facts) -> float | None:
    """Per step, when the model's operators use several threads; None on a GPU, or without recorded shapes."""
    known = not facts.has_gpu and lacks(facts, "shapes") is None
    return facts.steps.mean_ns(facts.cpu_work.threaded) if known else None


def _measured_slowdown(facts: Facts) -> float | None:
    loader = facts.captured.training_loader
    return loader.hand_over.slowdown if loader is not None and loader.hand_over is not None else None
