"""MM011: allocations succeed only after the allocator has emptied its cache."""

from __future__ import annotations

from traceopt.rules import Evidence, Facts, Findings, Fix, Rule, SetVariable, counted, named, size, threshold
from traceopt.rules.fixes.advice.memory_snapshot import place_of, snapshot_of


class AllocationRetries(Rule):
    """Measures how many allocations of a memory snapshot failed at first: the allocator gave cached segments back to
    the driver, and tried again.

    Why it costs: giving memory back waits for the GPU, and taking it again takes milliseconds. The run is close to the
    limit, so the next larger batch fails.

    How to fix: keep sizes the same from step to step, or use less memory.

        batch = pad_to_multiple(batch, 64)      # fewer different sizes

    When it is wrong: a few retries while the run starts do no harm. With stacks recorded,
    torch.cuda.empty_cache() is not counted.

    Sources: PyTorch documentation, "Memory management" (num_alloc_retries).
    """

    code = "MM011"
    name = "allocation-retries"
    title = "Avoid allocations that empty the cache"
    family = "memory"
    confidence = "medium"
    requires = ("memory_snapshot",)
    needs_trace = False

    min_retries: int = threshold(3, "fewest retries to report")

    def applies(self, facts: Facts) -> str | None:
        return None if len(snapshot_of(facts).tables.entries) else "The snapshot has no history."

    def check(self, facts: Facts) -> Findings:
        snapshot = snapshot_of(facts)
        retries = snapshot.retries
        if len(retries) < self.min_retries:
            return
        evidence = [
            Evidence(
                named(snapshot.owner(owner).name),
                detail=f"{counted(count, 'time')}, {size(given_back)} given back",
                location=place_of(snapshot, owner),
            )
            for owner, count, given_back in retries.by_owner()[:5]
        ]
        yield self.finding(
            why=(
                f"{len(retries):,} allocations succeeded only after the allocator had given "
                f"{size(int(retries.freed_bytes.sum()))} of cached memory back to the driver."
            ),
            saving=None,
            evidence=evidence,
            locations=[row.location for row in evidence if row.location is not None],
            fix=Fix(
                "Keep tensor sizes the same from step to step, or let segments grow.",
                edits=[]
                if snapshot.tables.expandable
                else [SetVariable("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")],
            ),
            shares_cause_with=["MM003"],
        )

    def passed(self, facts: Facts) -> str:
        return f"The allocator gave its cache back {counted(len(snapshot_of(facts).retries), 'time')}."
