"""PY001: Python's garbage collector pauses the main thread."""

from __future__ import annotations

import numpy as np

from traceopt.analyzer.run_log.run_settings import Collections
from traceopt.analyzer.vocabulary.causes.table import GC, UNTRACED_PYTHON
from traceopt.rules import (
    PYTHON,
    Call,
    CallEvery,
    Evidence,
    Facts,
    Findings,
    Fix,
    Ledger,
    Priced,
    RemoveHost,
    Risk,
    Rule,
    area_of,
    by_site,
    counted,
    each_step,
    mean_step_ns,
    ms,
    percent,
    priced,
    site_evidence,
    site_locations,
    threshold,
    us,
    whole_run_saving,
)
from traceopt.rules.savings.whole_run import judged_steps

TYPICAL_SHARE = 0.5  # of the mean pause per step: recorded steps with less, or a median step with less, are no measure


class GcPause(Rule):
    """Measures how much of the steps the garbage collector takes. `traceopt run` records the time of every collection
    of the run, and shows those of the recorded steps in the trace. In other traces, `gc.collect` frames count. If
    neither is known but stacks were recorded, a gap with no events inside one Python frame (a millisecond or more with
    the GPU idle) is reported without a saving: every call would have left an event, but the reason is not known.

    Why it costs: a full collection walks every object of the process. With a large model and data set in memory that
    takes tens to hundreds of milliseconds. In distributed training every rank waits for the one that collects.

    How to fix: freeze objects that live as long as the run, and collect at chosen steps on all ranks.

        gc.collect(); gc.freeze(); gc.disable()
        for step, batch in enumerate(loader):
            ...
            if step % 500 == 0:
                gc.collect(1)

    When it is wrong: a gap without events may be any native code that holds the interpreter: a lock, a page fault, a
    library call that the profiler does not see.

    Sources: Python documentation of gc.freeze; PyTorch's own trainers collect by hand for the same reason.
    """

    code = "PY001"
    name = "gc-pause"
    title = "Freeze the garbage collector and collect at chosen steps"
    family = "Python runtime"
    risk = Risk.MEMORY
    risk_note = "Reference cycles live longer"

    min_share: float = threshold(0.01, "smallest pause time, as a share of the measured steps, to report")
    min_steps: int = threshold(3, "fewest steps of the run with such pauses to report")

    def check(self, facts: Facts) -> Findings:
        ledger, collections = facts.captured.ledger, facts.captured.collections
        least = self.min_share * facts.steps.window_ns
        if ledger is not None and collections is not None:
            mean_ns, steps = _mean_ns(ledger), ledger.gc_ns[judged_steps(ledger)]
            long = steps >= self.min_share * mean_step_ns(ledger)
            if mean_ns >= self.min_share * mean_step_ns(ledger) and np.count_nonzero(long) >= self.min_steps:
                yield self._of_the_run(facts, ledger, collections, mean_ns)
            return
        recorded = facts.stalls.total_ns(GC)
        if recorded >= least:
            yield self._of_the_trace(facts, recorded)
        if facts.has_gpu and facts.idle.total_ns(UNTRACED_PYTHON) >= least:
            yield self._guessed(facts)

    def _of_the_run(self, facts: Facts, ledger: Ledger, collections: Collections, mean_ns: float) -> Priced:
        rows = facts.host.rows_of(GC)
        time = facts.slices.duration_of(rows)
        traced_ns = int(time.sum())
        stalled = float(facts.stalled_within(facts.slices.start[rows], facts.slices.end[rows]).sum())
        share = min(1.0, stalled / traced_ns) if traced_ns else 1.0 - facts.has_gpu
        sites = by_site(facts, rows, time)
        paused = ledger.gc_ns[judged_steps(ledger)]
        full = f", {collections.full_count:,} of them full" if collections.full_count else ""
        saved = whole_run_saving(
            facts,
            ledger,
            0.8 * share * (mean_ns - float(paused.max()) / len(paused)),
            (share if traced_ns else 1.0) * mean_ns,
            mean_ns,
            "The time of all collections of the run, spread over the steps; at the low end without the longest"
            + (", scaled by how much the GPU idles in the traced ones." if facts.has_gpu else "."),
        )
        bounds_ns = (saved.low_ns, saved.est_ns, saved.high_ns)
        pauses = [RemoveHost(area_of(facts, rows))]
        typical = traced_ns >= TYPICAL_SHARE * bounds_ns[1] * facts.steps.count  # else the longest ones are elsewhere
        return self.finding(
            title=_title(facts),
            why=(
                f"The garbage collector takes {ms(mean_ns)} of each {ms(mean_step_ns(ledger))} step on average. The "
                f"run has {collections.count:,} collections{full}; the worst step spends "
                f"{ms(float(ledger.gc_ns.max()))} in them."
            ),
            saving=priced(facts, bounds_ns, pauses, saved.basis) if typical else saved,
            evidence=[
                Evidence("Garbage collections", us(mean_ns), round(collections.count / max(1, ledger.count), 3)),
                *site_evidence(facts, sites, limit=3),
            ],
            locations=site_locations(sites),
            fix=_fix(facts, collections),
            occasional=bool(np.median(paused) < TYPICAL_SHARE * mean_ns),
        )

    def _of_the_trace(self, facts: Facts, total_ns: int) -> Priced:
        rows = facts.host.rows_of(GC)
        cost = facts.stalled_within(facts.slices.start[rows], facts.slices.end[rows])
        rows, cost = rows[cost > 0], cost[cost > 0]
        sites = by_site(facts, rows, cost)
        mean = total_ns / facts.steps.count
        steps = int(np.count_nonzero(facts.steps.per_step(facts.steps.host_step_of(facts.slices.start[rows]), cost)))
        where = f" in {steps} of {facts.steps.count} steps" if facts.has_step_marks else ""
        return self.finding(
            title=_title(facts),
            why=(
                f"The garbage collector pauses the main thread for {ms(mean)} of {each_step(facts)} on average: "
                f"{counted(len(rows), 'pause')} of up to {ms(float(cost.max()) if len(cost) else 0)}{where}."
            ),
            saving=priced(
                facts, (0.8 * mean, mean, mean), [RemoveHost(area_of(facts, rows))], "Assumes the pauses are gone."
            ),
            evidence=site_evidence(facts, sites),
            fix=_fix(facts, None),
        )

    def _guessed(self, facts: Facts) -> Priced:
        untraced = facts.untraced_python
        cost = np.minimum(untraced.end - untraced.start, facts.idle.of_gaps(UNTRACED_PYTHON)[untraced.gap])
        keep = cost > 0
        sites = by_site(facts, untraced.slice[keep], cost[keep])
        steps = int(np.count_nonzero(facts.steps.per_step(facts.gaps.step[untraced.gap[keep]], cost[keep])))
        return self.finding(
            title="Record with traceopt run to see the garbage collector",
            why=(
                f"In {steps} of {facts.steps.count} steps the main thread records no events for up to "
                f"{ms(float(cost.max()))} inside one Python frame while the GPU is idle. This is probably the garbage "
                "collector, or else native code that holds the interpreter."
            ),
            confidence="low",
            evidence=site_evidence(facts, sites),
            fix=_MEASURE,
        )

    def passed(self, facts: Facts) -> str:
        ledger = facts.captured.ledger
        if ledger is not None and facts.captured.collections is not None:
            share = _mean_ns(ledger) / max(1.0, mean_step_ns(ledger))
            return f"Garbage collection takes {percent(share)} of the run's steps."
        share = facts.stalls.total_ns(GC) / facts.steps.window_ns
        return f"Stalls in recorded collections take {percent(share)} of the steps."


def _mean_ns(ledger: Ledger) -> float:
    """Mean collector time per step, over the steps that `mean_step_ns` covers, so that it never exceeds their mean."""
    steps = judged_steps(ledger)
    return float(ledger.gc_ns[steps].mean()) if len(steps) else 0.0


def _calls_collector(facts: Facts) -> bool:
    return bool(facts.regions.named(lambda name: name.startswith("<built-in function collect>"), PYTHON).any())


def _title(facts: Facts) -> str | None:
    return "Call gc.collect() less often, or not at all" if _calls_collector(facts) else None


def _fix(facts: Facts, collections: Collections | None) -> Fix:
    if _calls_collector(facts):
        return Fix(
            "The script calls gc.collect() itself. Remove the call, or make it every few hundred steps.",
            edits=[CallEvery("gc.collect", 500, ""), Call("gc.freeze")],
            code="if step % 500 == 0:\n    gc.collect()",
        )
    if collections is not None and collections.frozen:
        return Fix(
            f"{collections.frozen:,} objects are already frozen. Also disable automatic collection, and collect every "
            "few hundred steps on all ranks.",
            edits=[Call("gc.disable"), CallEvery("gc.collect", 500, "1")],
        )
    return _FIX


_FIX = Fix(
    "Freeze long-lived objects, disable automatic collection, and collect every few hundred steps on all ranks.",
    edits=[Call("gc.collect"), Call("gc.freeze"), Call("gc.disable"), CallEvery("gc.collect", 500, "1")],
)
_MEASURE = Fix(
    "Record with traceopt run: it measures every collection. If collections are the reason, freeze long-lived objects, "
    "and collect every few hundred steps on all ranks.",
    "traceopt run python script.py",
)
