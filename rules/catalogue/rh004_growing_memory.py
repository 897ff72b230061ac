"""RH004: memory grows steadily during the whole run."""

from __future__ import annotations

from typing import Literal

from traceopt.analyzer.run_log.memory_growth import MemoryGrowth
from traceopt.rules import Evidence, Facts, Findings, Fix, Rule, places, required, size, threshold
from traceopt.rules.fixes.advice.memory import retained
from traceopt.rules.fixes.advice.memory_snapshot import place_of

MOST_ROWS = 5
MIN_PART = 0.25  # of the growth that its lines must explain; a process also grows by what it cannot use again
_OF: dict[Literal["device", "process"], str] = {
    "device": "The memory that tensors hold on the GPU",
    "process": "The memory of the process",
}


class GrowingMemory(Rule):
    """Measures the memory at the end of the steps of the whole run, recorded or not, as `traceopt run` read it: what
    tensors hold on the GPU, and the resident memory of the process without mapped files. The finding needs growth that
    goes on from the start to the end of the longest stretch of steps without a profiler.

    Why it costs: the run ends out of memory, hours later. Steps can become slower long before: Python's garbage
    collector visits more objects, and the allocator finds no free blocks.

    How to fix: store numbers, not tensors with their graphs.

        losses.append(loss.item())           # at the logging interval, not: losses.append(loss)
        total_loss += loss.detach()          # not: total_loss += loss

    A memory snapshot names the line that keeps memory on a GPU. Without a snapshot, the finding names what the recorded
    steps leave behind, if that is a large part of the growth.

        traceopt run --memory-snapshot train.py

    When it is wrong: a data set that keeps the samples that it has read grows until the end of the first epoch. A
    cache that grows by design (generation) looks the same until it is full. If the batches of the DataLoader become
    larger during the run, nothing is reported. Data loader workers have their own memory, which is not read.

    Sources: PyTorch FAQ, "My model reports cuda runtime error(2): out of memory"; proc_pid_statm(5).
    """

    code = "RH004"
    name = "growing-memory"
    title = "Find what the script keeps in every step"
    family = "run health"
    effort = "One line"
    confidence = "medium"
    requires = ("step_memory",)

    min_bytes: int = threshold(64 << 20, "smallest growth over the steps, in bytes")
    min_share: float = threshold(0.05, "smallest growth as a share of the memory at their start")

    def applies(self, facts: Facts) -> str | None:
        return "Memory was read after too few steps without a profiler." if facts.memory_over_run is None else None

    def check(self, facts: Facts) -> Findings:
        run = required(facts.memory_over_run)
        growth = run.growth
        if growth is None or run.larger_batches or not self._is_large(growth):
            return
        named = _lines(facts, growth)
        yield self.finding(
            why=(
                f"{_OF[growth.where]} grows from {size(growth.before_bytes)} to {size(growth.after_bytes)} between "
                f"steps {growth.first_step:,} and {growth.last_step:,}, without a pause: {size(growth.bytes_per_step)} "
                f"per step, {size(1_000 * growth.bytes_per_step)} per 1,000 steps."
            ),
            saving=None,
            confidence="high" if named else None,
            evidence=[Evidence("Growth per step", detail=size(growth.bytes_per_step)), *named],
            locations=places(named),
            fix=_fix(growth, facts, known=bool(places(named))),
            shares_cause_with=["MM005", "MM009"],
        )

    def _is_large(self, growth: MemoryGrowth) -> bool:
        grown = growth.after_bytes - growth.before_bytes
        return grown >= self.min_bytes and grown >= self.min_share * growth.before_bytes

    def passed(self, facts: Facts) -> str:
        run = required(facts.memory_over_run)
        steps = f"between steps {run.first_step:,} and {run.last_step:,}"
        if run.growth is not None and run.larger_batches:
            return f"Memory grows {steps}, and so do the batches."
        return f"Memory does not grow steadily {steps}, or by little."


def _lines(facts: Facts, growth: MemoryGrowth) -> list[Evidence]:
    """What keeps the memory: lines of a snapshot, else operators of the recorded steps; nothing if neither explains a
    large part of the growth.
    """
    least = MIN_PART * growth.bytes_per_step
    snapshot = facts.companions.memory_snapshot
    if growth.where == "device" and snapshot is not None and snapshot.growth is not None and snapshot.growth.grows:
        kept = snapshot.growth.kept
        if sum(one.bytes_per_step for one in kept) >= least:
            return [
                Evidence(
                    snapshot.owner(one.owner).name,
                    detail=f"keeps {size(one.bytes_per_step)} per step",
                    location=place_of(snapshot, one.owner),
                )
                for one in kept[:MOST_ROWS]
            ]
    if facts.has_gpu != (growth.where == "device"):  # the trace holds the memory of the other one
        return []
    left = retained(facts)
    return [one.evidence for one in left[:MOST_ROWS]] if sum(one.bytes_per_step for one in left) >= least else []


def _fix(growth: MemoryGrowth, facts: Facts, *, known: bool) -> Fix:
    if known:
        return Fix(
            "Detach tensors that outlive the step, or store numbers instead of tensors.", "losses.append(loss.item())"
        )
    if growth.where == "device":
        return Fix(
            "Record a memory snapshot: it names the line that keeps the memory.",
            "traceopt run --memory-snapshot train.py",
        )
    kept = "Look for a list, a dictionary or an attribute that keeps tensors or batches of earlier steps."
    if facts.has_gpu:
        return Fix(f"{kept} Memory snapshots do not show it: this memory is not on the GPU.")
    return Fix(f"{kept} Memory snapshots need a GPU.", "losses.append(loss.item())  # not: losses.append(loss)")
