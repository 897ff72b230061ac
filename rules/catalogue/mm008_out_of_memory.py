"""MM008: an allocation failed."""

from __future__ import annotations

from traceopt.analyzer.companions.memory_snapshot.failures import Failure
from traceopt.analyzer.companions.memory_snapshot.memory_snapshot import MemorySnapshot
from traceopt.rules import Evidence, Facts, Findings, Fix, Risk, Rule, SetVariable, percent, size
from traceopt.rules.fixes.advice.companion_evidence import held_by, place_of, snapshot_of

_LEAST_STEP_SHARE = 0.1  # of the memory: below, a smaller batch frees too little


class OutOfMemory(Rule):
    """Compares an allocation that failed, from a memory snapshot, with what was free: its size and line, what would
    have fitted, and who held the memory then.

    Why it costs: the run dies, or falls back to a slower path each time.

    How to fix: reduce what the largest lines hold at that moment.

        loss = model(batch[: len(batch) // 2])                                    # a smaller batch
        x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)      # recompute activations

    When it is wrong: memory that other libraries or processes take is not in the snapshot. A batch of the named
    share gets past this allocation; a later one may need more.

    Sources: PyTorch documentation, "Understanding CUDA Memory Usage".
    """

    code = "MM008"
    name = "out-of-memory"
    title = "Make the failed allocation fit"
    family = "memory"
    risk = Risk.CONVERGENCE
    risk_note = "A smaller batch may change convergence"
    requires = ("memory_snapshot",)
    needs_trace = False

    def check(self, facts: Facts) -> Findings:
        snapshot = snapshot_of(facts)
        failure = snapshot.failure
        if failure is None:
            return
        place = place_of(snapshot, failure.owner)
        evidence = [
            Evidence("Requested", detail=size(failure.requested), location=place),
            Evidence("Free on the device", detail=size(failure.device_free)),
            Evidence("Allocated and reserved then", detail=f"{size(failure.allocated)} and {size(failure.reserved)}"),
        ]
        if failure.largest_fit is not None:
            evidence.append(Evidence("Largest request that would have fitted", detail=size(failure.largest_fit)))
        went_on = " The program caught the error and went on." if failure.caught else ""
        times = f" It is the last of {failure.count} failed requests." if failure.count > 1 else ""
        yield self.finding(
            why=(
                f"{snapshot.owner(failure.owner).name} asked for {size(failure.requested)} while "
                f"{size(failure.allocated)} was allocated and {size(failure.device_free)} was free on the device."
                f"{times}{went_on}"
            ),
            risk=Risk.LATENCY if facts.has_trace and not facts.trains else None,
            impact="info" if failure.caught else "high",
            evidence=[*evidence, *held_by(snapshot, snapshot.holders_at(failure.row))],
            locations=[] if place is None else [place],
            fix=_fix(snapshot, failure),
            shares_cause_with=["MM004"] if failure.fragmented else [],
        )

    def passed(self, facts: Facts) -> str:
        snapshot = snapshot_of(facts)
        if not len(snapshot.tables.entries):
            return "The snapshot has no history, so it shows no failed allocation."
        return f"No allocation failed; memory peaks at {size(snapshot.peak_allocated)}."


def _fix(snapshot: MemorySnapshot, failure: Failure) -> Fix:
    if failure.fragmented:
        return Fix(
            "Enough memory is free, but not in one piece. Let segments grow instead of adding new ones.",
            edits=[SetVariable("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")],
        )
    largest = snapshot.holders_at(failure.row)[0] if len(snapshot.lifetimes.live(failure.row)) else None
    named = f" The largest holder is {snapshot.owner(largest.owner).name} ({size(largest.bytes)})." if largest else ""
    step = failure.of_the_step
    if step is not None and step >= _LEAST_STEP_SHARE * failure.capacity:
        room = failure.capacity - (failure.allocated - step)
        share = room / (step + failure.requested)
        return Fix(
            f"Use at most {percent(share)} of this step's batch, or store less: {size(step)} was allocated since the "
            f"step began.{named}"
        )
    return Fix(f"Free {size(failure.requested - failure.device_free)} before this line.{named}")
