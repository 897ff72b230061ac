"""MM003: steady-state steps allocate and free driver memory, or empty the cache to allocate."""

from __future__ import annotations

import numpy as np

from traceopt.analyzer.companions.memory_snapshot.memory_snapshot import MemorySnapshot
from traceopt.analyzer.memory.curve import find_retries
from traceopt.analyzer.vocabulary.causes.cause import Cause
from traceopt.analyzer.vocabulary.causes.table import ALLOCATION, PINNED_ALLOCATION
from traceopt.rules import (
    I8,
    RECORD_STACKS,
    Effort,
    Evidence,
    Facts,
    Findings,
    Fix,
    Former,
    Priced,
    RemoveCall,
    Rule,
    SetVariable,
    by_site,
    counted,
    each_step,
    lacks,
    ms,
    named,
    percent,
    priced,
    rate,
    site_locations,
    size,
    the_step,
    threshold,
    times,
    us,
    without_calls,
)
from traceopt.rules.fixes.advice.companion_evidence import place_of
from traceopt.rules.savings.pricing import gain_ns, is_unlike

CAUSES = (ALLOCATION, PINNED_ALLOCATION)
MOST_ROWS = 5
EXPANDABLE = SetVariable("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
SAME_CALLS = 1.1  # times the fewest calls of a step: with at most as many, all steps make the same calls
FAR_LONGER = 3.0  # times the shortest wait of a step
BASIS = "Assumes these calls and the waits in them are gone."
RECURRING = (
    "Counts ten times the wait in the median tenth of the recording, so that allocations at its start are left out."
)


class AllocatorChurn(Rule):
    """Measures how long the GPU is idle while the host calls `cudaMalloc`, `cudaFree` or similar, and while it calls
    `cudaHostAlloc` or similar for pinned memory, in the typical step. A recording without step marks is cut into ten
    parts of the same length. Ten times the median part counts, so that allocations at its start do not. A memory
    snapshot tells how many allocations failed at first: the allocator gave cached segments back to the driver, and
    tried again.

    Why it costs: PyTorch's caching allocator keeps blocks so that a steady-state step asks the driver for nothing. Each
    call takes 0.1 to 1 ms, and cudaFree also waits until the GPU is done. A run that empties its cache is close to the
    limit, so the next larger batch fails.

    How to fix: if every new tensor asks the driver, the caching allocator is switched off. Remove
    `PYTORCH_NO_CUDA_MEMORY_CACHING` (on ROCm also `PYTORCH_NO_HIP_MEMORY_CACHING`) from the environment. Otherwise
    remove `torch.cuda.empty_cache()` from the loop, keep shapes the same from step to step (pad to a few sizes), and
    let segments expand. `empty_cache()` gives expanded segments back as well, so its call has to go first.

        # in the environment, before CUDA is initialized
        PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True

    Pinned memory is memory of the host, so none of this concerns it. Let the DataLoader pin the batches in a thread of
    its own (`pin_memory=True`). Or pin one buffer before the loop and reuse it. A copy with `non_blocking=True` still
    reads the buffer after the call returns, so wait for it before you write the next batch.

    When it is wrong: the first steps fill the cache, which is not churn. A single recorded step cannot show the
    difference, so the confidence is then low. If memory is almost full, MM002 names the cause. A few retries while the
    run starts do no harm. With stacks recorded, torch.cuda.empty_cache() is no retry.

    Sources: PyTorch documentation, "CUDA semantics: memory management" (num_alloc_retries); CUDA programming guide,
    "implicit synchronization".
    """

    code = "MM003"
    name = "allocator-churn"
    title = "Avoid repeated driver memory allocations"
    family = "memory"
    requires = ("gpu", "launches")
    needs_trace = False
    former = (Former("MM011", "allocation-retries"),)

    min_share: float = threshold(0.01, "smallest GPU wait for driver allocations, as a share of the step")
    min_retries: int = threshold(3, "fewest retries in a memory snapshot to report")

    def needs(self, facts: Facts) -> tuple[str, ...]:
        """The history of a memory snapshot is enough."""
        return () if _history(facts) is not None else self.requires

    def check(self, facts: Facts) -> Findings:
        calls = CAUSES if self._shows_calls(facts) else ()
        in_steps = {cause: finding for cause in calls for finding in self._in_steps(facts, cause)}
        yield from in_steps.values()
        snapshot = _history(facts)
        if ALLOCATION not in in_steps and snapshot is not None and len(snapshot.retries) >= self.min_retries:
            yield self._retried(snapshot)

    def _shows_calls(self, facts: Facts) -> bool:
        return all(lacks(facts, need) is None for need in self.requires)

    def _retried(self, snapshot: MemorySnapshot) -> Priced:
        retries = snapshot.retries
        return self.finding(
            title="Avoid allocations that empty the cache",
            why=(
                f"{len(retries):,} allocations succeeded only after the allocator had given "
                f"{size(int(retries.freed_bytes.sum()))} of cached memory back to the driver."
            ),
            confidence="medium",
            evidence=[
                Evidence(
                    named(snapshot.owner(owner).name),
                    detail=f"{counted(count, 'time')}, {size(given_back)} given back",
                    location=place_of(snapshot, owner),
                )
                for owner, count, given_back in retries.by_owner()[:MOST_ROWS]
            ],
            fix=Fix(
                "Keep tensor sizes the same from step to step, or let segments grow.",
                edits=[] if snapshot.tables.expandable else [EXPANDABLE],
            ),
        )

    def _in_steps(self, facts: Facts, cause: Cause) -> Findings:
        stall, every = facts.idle.recurring_ns(cause), facts.idle.typical_ns(cause)
        if stall < self.min_share * facts.step_ns:
            return
        rows = _calls(facts, cause)
        pinned = cause is PINNED_ALLOCATION
        off = facts.allocator.is_off and not pinned
        cost = facts.gaps.starved.within(facts.slices.start[rows], facts.slices.end[rows])
        empties = facts.cache_emptying.any() and not (pinned or off)
        sites = by_site(facts, rows[cost > 0], cost[cost > 0])
        if empties:
            sites.sort(key=lambda site: facts.slices.ancestor(site.rows, facts.cache_emptying).max() < 0)
        retried = len(find_retries(facts.trace, facts.slices, rows)) >= facts.steps.count and not off and not pinned
        one = facts.steps.count == 1 and facts.has_step_marks
        where = "the one recorded step, so it may be a start-up cost" if one else each_step(facts)
        if not facts.has_step_marks:
            where = "the recording"
        often = times(facts, len(rows) / facts.steps.count)
        mean_ns, changes = facts.of_every_step.idle.typical_ns(cause), without_calls(facts, rows)
        most = max(stall, gain_ns(facts, changes)) if facts.captured.corrected else stall
        uneven = every - stall >= self.min_share * facts.step_ns
        yield self.finding(
            title=(
                "Switch the caching allocator on"
                if off
                else "Allocate pinned memory once"
                if pinned
                else "Remove torch.cuda.empty_cache() from the step"
                if empties
                else None
            ),
            why=(
                f"The host allocates or frees {'pinned' if pinned else 'driver'} memory {often}, and the GPU waits "
                f"{ms(every)} for it in {where}."
                + (f" The saving counts the {ms(stall)} that recur." if uneven else "")
                + (_over_all_steps(facts, mean_ns) if is_unlike(every, mean_ns) else "")
                + _slower_calls(facts, cause)
                + (OFF if off else "")
                + ("" if facts.call_sites.recorded else f" {RECORD_STACKS}")
            ),
            saving=priced(
                facts,
                (0.8 * stall, most, 1.25 * most),
                changes,
                f"{BASIS} {RECURRING}" if uneven else BASIS,
                low=without_calls(facts, rows, 0.8),
            ),
            evidence=_by_call(facts, rows, cost),
            locations=site_locations(sites),
            fix=PIN_ONCE if pinned else _keep_cache(facts, retried) if empties else _fix(facts),
            confidence="low" if one else "high",
            effort=Effort.ONE_LINE if empties else None,
            shares_cause_with=["MM002"] if retried else None,
        )

    def passed(self, facts: Facts) -> str:
        said, snapshot = [], _history(facts)
        if self._shows_calls(facts):
            share = percent(sum(facts.idle.recurring_ns(cause) for cause in CAUSES) / facts.step_ns)
            calls = sum(len(_calls(facts, cause)) for cause in CAUSES)
            said.append(f"Driver allocations ({calls:,}) leave the GPU idle for {share} of {the_step(facts)}.")
        if snapshot is not None:
            said.append(f"The allocator gave its cache back {counted(len(snapshot.retries), 'time')}.")
        return " ".join(said)


def _history(facts: Facts) -> MemorySnapshot | None:
    """The memory snapshot, if it has a history."""
    snapshot = facts.companions.memory_snapshot
    return snapshot if snapshot is not None and len(snapshot.tables.entries) else None


PIN_ONCE = Fix(
    "Let the DataLoader pin the batches, which it does in a thread of its own. Or pin one buffer before the loop, and "
    "write the next batch into it when the copy of the last one is done.",
    "loader = DataLoader(dataset, pin_memory=True)  # instead of batch.pin_memory() in the loop",
)
OFF = " Almost every new tensor asks the driver for memory, so PyTorch's caching allocator is switched off."
_EMPTIED = "torch.cuda.empty_cache() in the loop"
_OTHERS = (
    "a caching allocator that is switched off",
    "shapes that change from step to step while memory is nearly full",
)


def _fix(facts: Facts) -> Fix:
    """Growing segments need CUDA's virtual memory."""
    if facts.allocator.is_off:
        names = facts.device.vendor.uncached_variables
        text = f"Switch the caching allocator on: unset {' and '.join(names)}."
        return Fix(text, edits=[SetVariable(name, None) for name in names])
    causes = _OTHERS if facts.allocator.is_emptied is False else (_EMPTIED, *_OTHERS)
    text = f"Find what gives memory back to the driver, and stop it: {', '.join(causes[:-1])}, or {causes[-1]}."
    if not facts.device.vendor.has_expandable_segments:
        return Fix(text)
    return Fix(f"{text} Set expandable_segments.", edits=[EXPANDABLE])


def _keep_cache(facts: Facts, retried: bool) -> Fix:
    """Growing segments help only where memory is full: empty_cache() gives them back, too."""
    text = "Remove the call of torch.cuda.empty_cache(): the next step has to ask the driver for the same memory again."
    if retried and facts.device.vendor.has_expandable_segments:
        text += f" If allocations still fail at first, set {EXPANDABLE.name}={EXPANDABLE.value} as well."
    return Fix(text, edits=[RemoveCall("torch.cuda.empty_cache")])


def _over_all_steps(facts: Facts, mean_ns: float) -> str:
    return f" The mean of all {facts.recorded_steps.count:,} steps, unusual ones included, is {ms(mean_ns)}."


def _slower_calls(facts: Facts, cause: Cause) -> str:
    """Says so if all recorded steps make as many calls, but the driver takes far longer for them in some."""
    every = facts.of_every_step
    steps, rows = every.steps, every.host.rows_of(cause)
    calls = steps.per_step(steps.host_step_of(every.slices.start[rows]), np.ones(len(rows), np.int64))
    waits = every.idle.of_steps(cause)
    least, most = int(waits.argmin()), int(waits.argmax())
    if calls.max() > SAME_CALLS * calls.min() or waits[most] < FAR_LONGER * waits[least]:
        return ""
    return (
        f" All recorded steps make as many calls, but the GPU waits {ms(waits[least])} for them in "
        f"{steps.names[least]} and {ms(waits[most])} in {steps.names[most]}: the calls themselves take longer."
    )


def _calls(facts: Facts, cause: Cause) -> I8:
    """The allocation calls inside the window."""
    rows = facts.host.rows_of(cause)
    return rows[facts.steps.host_window.contains(facts.slices.start[rows])]


def _by_call(facts: Facts, rows: I8, cost: I8) -> list[Evidence]:
    """One row per call name, most expensive first."""
    count = facts.steps.count
    return [
        Evidence(named(one.name), us(one.total / count), rate(len(one.rows) / count))
        for one in facts.slices_by_name(rows, cost)
    ]
