"""MM003: steady-state steps allocate and free driver memory."""

from __future__ import annotations

from traceopt.analyzer.memory.curve import find_retries
from traceopt.rules import (
    I8,
    RECORD_STACKS,
    Evidence,
    Facts,
    Findings,
    Fix,
    Rule,
    by_site,
    each_step,
    ms,
    percent,
    priced,
    rate,
    site_evidence,
    site_locations,
    the_step,
    threshold,
    us,
    without_calls,
)

BASIS = "Assumes these calls and the waits in them are gone."
RECURRING = (
    "Counts ten times the wait in the median tenth of the recording, so that allocations at its start are left out."
)


class AllocatorChurn(Rule):
    """Measures how long the GPU is idle while the host calls `cudaMalloc`, `cudaFree`, `cudaHostAlloc` or similar, in
    the typical step. A recording without step marks is cut into ten parts with the same number of kernels. The median
    part counts, so that allocations at its start do not.

    Why it costs: PyTorch's caching allocator keeps blocks so that a steady-state step asks the driver for nothing. Each
    call takes 0.1 to 1 ms, and cudaFree also waits until the GPU is done.

    How to fix: remove `torch.cuda.empty_cache()` from the loop, keep shapes the same from step to step (pad to a few
    sizes), and let segments expand.

        # in the environment, before CUDA is initialized
        PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True

    Pinned memory: allocate it once and reuse it, or let the DataLoader pin (`pin_memory=True`).

    When it is wrong: the first steps fill the cache, which is not churn. A single recorded step cannot show the
    difference, so the confidence is then low. If memory is almost full, MM002 names the cause.

    Sources: PyTorch documentation, "CUDA semantics: memory management"; CUDA programming guide, "implicit
    synchronization".
    """

    code = "MM003"
    name = "allocator-churn"
    title = "Avoid repeated driver memory allocations"
    family = "memory"
    effort = "A few lines, once the cause is known"
    requires = ("gpu", "launches")

    min_share: float = threshold(0.01, "smallest GPU wait for driver allocations, as a share of the step")

    def check(self, facts: Facts) -> Findings:
        stall, every = facts.idle.recurring_ns("allocation"), facts.idle.typical_ns("allocation")
        if stall < self.min_share * facts.step_ns:
            return
        rows = _calls(facts)
        cost = facts.gaps.starved.within(facts.slices.start[rows], facts.slices.end[rows])
        sites = by_site(facts, rows[cost > 0], cost[cost > 0])
        retries = find_retries(facts.trace, facts.slices, rows)
        one = facts.steps.count == 1 and facts.has_step_marks
        where = "the one recorded step, so it may be a start-up cost" if one else each_step(facts)
        often = f"{f'{len(rows) / facts.steps.count:,.1f}'.removesuffix('.0')} times a step"
        if not facts.has_step_marks:
            often, where = f"{len(rows):,} times, from the first to the last kernel", "the recording"
        uneven = every - stall >= self.min_share * facts.step_ns
        yield self.finding(
            why=(
                f"The host allocates or frees driver memory {often}, and the GPU waits {ms(every)} for it "
                f"in {where}."
                + (f" The saving counts the {ms(stall)} that recur." if uneven else "")
                + ("" if facts.call_sites.recorded else f" {RECORD_STACKS}")
            ),
            saving=priced(
                facts,
                (0.8 * stall, stall, 1.25 * stall),
                without_calls(facts, rows),
                f"{BASIS} {RECURRING}" if uneven else BASIS,
                low=without_calls(facts, rows, 0.8),
            ),
            evidence=[
                *_by_call(facts, rows, cost),
                *site_evidence(facts, [s for s in sites if s.location], lambda _: "Driver allocations by this line"),
            ],
            locations=site_locations(sites),
            fix=_fix(facts),
            confidence="low" if one else "high",
            shares_cause_with=["MM002"] if len(retries) >= facts.steps.count else None,
        )

    def passed(self, facts: Facts) -> str:
        share = facts.idle.recurring_ns("allocation") / facts.step_ns
        return (
            f"Driver allocations ({len(_calls(facts)):,}) leave the GPU idle for {percent(share)} of {the_step(facts)}."
        )


_CAUSES = (
    "Find what gives memory back to the driver, and stop it: torch.cuda.empty_cache() in the loop, "
    "a caching allocator that is switched off, or shapes that change from step to step while memory is nearly full"
)


def _fix(facts: Facts) -> Fix:
    """Growing segments need CUDA's virtual memory."""
    if facts.device.vendor == "amd":
        return Fix(f"{_CAUSES}.")
    return Fix(
        f"{_CAUSES}. Set expandable_segments.",
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True python script.py",
    )


def _calls(facts: Facts) -> I8:
    """The allocation calls inside the window."""
    rows = facts.host.rows_of("allocation")
    return rows[facts.steps.host_window.contains(facts.slices.start[rows])]


def _by_call(facts: Facts, rows: I8, cost: I8) -> list[Evidence]:
    """One row per call name, most expensive first."""
    count = facts.steps.count
    return [
        Evidence(one.name, us(one.total / count), rate(len(one.rows) / count))
        for one in facts.slices_by_name(rows, cost)
    ]
