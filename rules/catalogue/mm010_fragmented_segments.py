"""MM010: free memory is in pieces that are too small."""

from __future__ import annotations

from traceopt.rules import Evidence, Facts, Findings, Fix, Rule, percent, size, threshold
from traceopt.rules.fixes.advice.memory_snapshot import place_of, snapshot_of


class FragmentedSegments(Rule):
    """Measures reserved memory that no tensor uses, at the moment when most memory is allocated, or when an allocation
    fails although enough memory is free in total.

    Why it costs: the allocator asks the driver for memory that it already has, and runs out early. A block that
    stays keeps its whole segment reserved.

    How to fix: let segments grow, or allocate what stays before what comes and goes.

        PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True

    When it is wrong: a CUDA graph holds memory in a pool of its own, which only it can use.

    Sources: PyTorch documentation, "Optimizing memory usage with PYTORCH_CUDA_ALLOC_CONF".
    """

    code = "MM010"
    name = "fragmented-segments"
    title = "Use expandable segments against fragmentation"
    family = "memory"
    effort = "One environment variable"
    confidence = "medium"
    requires = ("memory_snapshot",)
    needs_trace = False

    min_share: float = threshold(0.25, "smallest unused share of reserved memory at the peak to report")
    min_bytes: int = threshold(1 << 28, "smallest unused memory at the peak to report, in bytes")

    def applies(self, facts: Facts) -> str | None:
        if not len(snapshot_of(facts).tables.entries):
            return "The snapshot has no history, so the memory at its peak is unknown."
        return None

    def check(self, facts: Facts) -> Findings:
        snapshot = snapshot_of(facts)
        failure, lost = snapshot.failure, snapshot.fragmentation
        reserved, allocated = snapshot.reserved_at_peak, snapshot.peak_allocated
        unused = reserved - allocated
        failed = failure is not None and failure.fragmented
        if not failed and (unused < self.min_bytes or unused < self.min_share * reserved):
            return
        pinned = [
            Evidence(
                snapshot.owner(owner).name,
                detail=f"{size(held)} of free pieces next to its blocks",
                location=place_of(snapshot, owner),
            )
            for owner, held in lost.pinned[:5]
        ]
        if failure is not None and failed:
            why = (
                f"A request for {size(failure.requested)} failed although {size(failure.unusable)} was free between "
                f"blocks in use: the largest piece had {size(lost.largest_free)}."
            )
        else:
            why = (
                f"At the peak {size(allocated)} is allocated and {size(reserved)} is reserved: "
                f"{percent(unused / reserved)} of the allocator's memory holds no tensor."
            )
        expandable = snapshot.tables.expandable
        yield self.finding(
            why=why,
            saving=None,
            evidence=[
                Evidence("Reserved but not allocated at the peak", detail=size(unused)),
                Evidence("Largest free piece between blocks in use", detail=size(lost.largest_free)),
                *pinned,
            ],
            locations=[row.location for row in pinned if row.location is not None],
            fix=Fix("Allocate what stays before what comes and goes, and call empty_cache() once in between.")
            if expandable
            else Fix("Let segments grow.", "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"),
            shares_cause_with=["MM004", "MM008"] if failed else ["MM004"],
        )

    def passed(self, facts: Facts) -> str:
        snapshot = snapshot_of(facts)
        reserved = snapshot.reserved_at_peak
        unused = (reserved - snapshot.peak_allocated) / reserved if reserved else 0.0
        return f"At the peak {percent(unused)} of reserved memory holds no tensor."
