"""MM009: one line keeps memory in every step."""

from __future__ import annotations

from traceopt.rules import Evidence, Facts, Findings, Fix, Rule, counted, size, threshold
from traceopt.rules.fixes.advice.memory_snapshot import place_of, snapshot_of


class MemoryKept(Rule):
    """Compares the allocated memory at the end of each step in a memory snapshot. If most steps leave more than the one
    before, the finding names the lines whose allocations are never freed.

    Why it costs: the run ends out of memory, hours later.

    How to fix: store numbers, not tensors with their graphs.

        total_loss += loss.detach()          # not: total_loss += loss
        history.append(loss.item())          # at the logging interval, not: history.append(loss)

    When it is wrong: a cache that grows by design (generation) looks the same until it is full. The first step is left
    out, because it makes gradients and optimizer state. Steps come from marks of the profiler or of the optimizer; old
    versions of PyTorch do not put them into a snapshot.

    Sources: PyTorch FAQ, "My model reports cuda runtime error(2): out of memory".
    """

    code = "MM009"
    name = "memory-kept"
    title = "Release what this line keeps in every step"
    family = "memory"
    effort = "One line"
    confidence = "high"
    requires = ("memory_snapshot",)
    needs_trace = False

    min_steps: int = threshold(4, "fewest compared steps needed to judge growth")
    min_bytes: int = threshold(1 << 20, "smallest growth per step, in bytes")

    def applies(self, facts: Facts) -> str | None:
        growth = snapshot_of(facts).growth
        if growth is None or growth.steps < self.min_steps:
            return "The snapshot's history marks too few steps to judge growth."
        return None

    def check(self, facts: Facts) -> Findings:
        snapshot = snapshot_of(facts)
        growth = snapshot.growth
        if growth is None or not growth.grows or growth.bytes_per_step < self.min_bytes or not growth.kept:
            return
        evidence = [
            Evidence(
                snapshot.owner(one.owner).name,
                detail=f"keeps {size(one.bytes_per_step)} per step",
                location=place_of(snapshot, one.owner),
            )
            for one in growth.kept[:5]
        ]
        yield self.finding(
            why=(
                f"A typical step leaves {size(growth.bytes_per_step)} more allocated than the one before "
                f"({counted(growth.steps, 'step')} compared). {snapshot.owner(growth.kept[0].owner).name} keeps "
                f"{size(growth.kept[0].bytes_per_step)} of it."
            ),
            saving=None,
            evidence=[Evidence("Growth per step", detail=size(growth.bytes_per_step)), *evidence],
            locations=[row.location for row in evidence if row.location is not None],
            fix=Fix(
                "Detach tensors that outlive the step, or store numbers instead of tensors.",
                "total_loss += loss.detach()",
            ),
            shares_cause_with=["MM005"],
        )

    def passed(self, facts: Facts) -> str:
        growth = snapshot_of(facts).growth
        changed = 0.0 if growth is None else growth.bytes_per_step
        return f"Allocated memory changes by {size(abs(changed))} from step to step."
