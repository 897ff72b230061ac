"""MM004: the allocator holds far more memory than it hands out, in pieces that are too small."""

from __future__ import annotations

from traceopt.analyzer.companions.memory_snapshot.memory_snapshot import MemorySnapshot
from traceopt.rules import (
    Effort,
    Evidence,
    Facts,
    Findings,
    Fix,
    Former,
    Rule,
    SetVariable,
    lacks,
    named,
    of_memory,
    percent,
    size,
    threshold,
)
from traceopt.rules.fixes.advice.companion_evidence import place_of

MOST_ROWS = 5
EXPANDABLE = Fix(
    "Set expandable_segments, and pad inputs to a few sizes.",
    edits=[SetVariable("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")],
)
REORDER = Fix("Allocate what stays before what comes and goes, and call empty_cache() once in between.")
PAD = Fix("Pad inputs to a few sizes.")


class Fragmentation(Rule):
    """Compares the peak of the memory that the caching allocator has reserved with what it handed out. A memory
    snapshot tells it for the moment when most memory is allocated, or when an allocation fails although enough memory
    is free in total. Without one, a trace with memory tells the two peaks, which count on a device with much of its
    memory reserved.

    Why it costs: free pieces between live blocks cannot be merged. A large tensor then does not fit although enough
    memory is free in total. The allocator asks the driver for more, or fails. A block that stays keeps its whole
    segment reserved.

    How to fix: let segments expand, use few sizes, and allocate what stays before what comes and goes.

        # in the environment, before CUDA is initialized
        PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True

    Inputs with ever new lengths fragment most: pad them to a few sizes.

    When it is wrong: memory that an earlier phase needed (evaluation, a longer batch, warm-up) stays reserved as cache
    and looks the same in a trace. It does no harm until memory is short, so the finding has no saving. A CUDA graph
    holds memory in a pool of its own, which only it can use.

    Sources: PyTorch documentation, "CUDA semantics: memory management" and "Optimizing memory usage with
    PYTORCH_CUDA_ALLOC_CONF".
    """

    code = "MM004"
    name = "fragmentation"
    title = "Reduce memory fragmentation with expandable segments"
    family = "memory"
    effort = Effort.ONE_LINE
    requires_one_of = ("memory", "memory_snapshot")
    needs_trace = False
    former = (Former("MM010", "fragmented-segments", {"min_share": "min_unused"}),)

    min_unused: float = threshold(0.25, "smallest unused share of reserved memory at the peak")
    min_reserved: float = threshold(0.70, "smallest reserved memory, as a share of device memory, without a snapshot")
    min_bytes: int = threshold(1 << 28, "smallest unused memory at the peak of a snapshot, in bytes")

    def applies(self, facts: Facts) -> str | None:
        if _snapshot(facts) is not None:
            return None
        if facts.companions.memory_snapshot is not None and not facts.has_gpu:
            return "The snapshot has no history, so the memory at its peak is unknown."
        if not facts.has_gpu:
            return lacks(facts, "gpu")
        if facts.memory is None or facts.memory.peak_reserved is None:
            return "Reserved memory was not recorded."
        return None if facts.device.memory_bytes else "The trace does not state the device's memory capacity."

    def check(self, facts: Facts) -> Findings:
        snapshot = _snapshot(facts)
        return self._in_trace(facts) if snapshot is None else self._in_snapshot(facts, snapshot)

    def _in_trace(self, facts: Facts) -> Findings:
        reserved, allocated = _peaks(facts)
        capacity = facts.device.memory_bytes or 1
        if reserved - allocated < self.min_unused * reserved or reserved < self.min_reserved * capacity:
            return
        yield self.finding(
            why=(
                f"The allocator reserves {size(reserved)} of {size(capacity)} but hands out at most {size(allocated)}: "
                f"{percent(1 - allocated / reserved)} is stuck between live blocks or in its cache."
            ),
            evidence=[
                Evidence("Peak reserved", detail=size(reserved)),
                Evidence(of_memory("Peak allocated"), detail=size(allocated)),
            ],
            confidence="low",
            fix=_fix(facts),
            shares_cause_with=["MM002"],
        )

    def _in_snapshot(self, facts: Facts, snapshot: MemorySnapshot) -> Findings:
        failure, largest = snapshot.failure, size(snapshot.fragmentation.largest_free_bytes)
        reserved, allocated = snapshot.reserved_at_peak, snapshot.peak_allocated
        unused = reserved - allocated
        failed = failure is not None and failure.fragmented
        if failure is not None and failed:
            why = (
                f"A request for {size(failure.requested)} failed although {size(failure.unusable)} was free between "
                f"blocks in use: the largest piece had {largest}."
            )
        elif unused < self.min_bytes or unused < self.min_unused * reserved:
            return
        else:
            why = (
                f"At the peak {size(allocated)} is allocated and {size(reserved)} is reserved: "
                f"{percent(unused / reserved)} of the allocator's memory holds no tensor."
            )
        yield self.finding(
            why=why,
            evidence=[
                Evidence("Reserved but not allocated at the peak", detail=size(unused)),
                Evidence("Largest free piece between blocks in use", detail=largest),
                *(
                    Evidence(
                        named(snapshot.owner(owner).name),
                        detail=f"{size(held)} of free pieces next to its blocks",
                        location=place_of(snapshot, owner),
                    )
                    for owner, held in snapshot.pinned[:MOST_ROWS]
                ),
            ],
            confidence="medium",
            fix=REORDER if snapshot.tables.expandable else _fix(facts),
            shares_cause_with=["MM008"] if failed else ["MM002"],
        )

    def passed(self, facts: Facts) -> str:
        snapshot = _snapshot(facts)
        if snapshot is None:
            reserved, allocated = _peaks(facts)
        else:
            reserved, allocated = snapshot.reserved_at_peak, snapshot.peak_allocated
        return f"The allocator hands out {size(allocated)} of {size(reserved)} reserved at the peak."


def _snapshot(facts: Facts) -> MemorySnapshot | None:
    """The memory snapshot, if its history shows the peak."""
    snapshot = facts.companions.memory_snapshot
    return snapshot if snapshot is not None and len(snapshot.tables.entries) else None


def _peaks(facts: Facts) -> tuple[int, int]:
    memory = facts.memory
    return ((memory.peak_reserved or 0), (memory.peak_allocated or 0)) if memory else (0, 0)


def _fix(facts: Facts) -> Fix:
    return EXPANDABLE if facts.device.vendor.has_expandable_segments else PAD
