"""MM005: every step keeps more memory: a leak."""

from __future__ import annotations

from typing import Literal

import numpy as np
from msgspec import Struct

from traceopt.analyzer.run_log import memory_growth
from traceopt.rules import (
    I8,
    Effort,
    Evidence,
    Facts,
    Findings,
    Fix,
    Former,
    Rule,
    counted,
    lacks,
    median,
    named,
    places,
    size,
    threshold,
)
from traceopt.rules.fixes.advice.companion_evidence import place_of
from traceopt.rules.fixes.advice.memory import retained

MOST_LINES = 5
MIN_PART = 0.25  # of the growth over the run that its lines must explain; a process also grows by what it cannot reuse
HOLDER: dict[Literal["device", "process"], str] = {
    "device": "The memory that tensors hold on the GPU",
    "process": "The memory of the process",
}


class Growth(Struct, frozen=True):
    """Growth in one recording: a sentence, bytes per step, and the lines that keep them (empty: unknown)."""

    why: str
    bytes_per_step: float
    lines: list[Evidence]


class MemoryGrowth(Rule):
    """Measures memory that each step leaves behind, in whatever shows it:

    - A trace with memory: the lowest allocated memory of each recorded step. The finding names the operators whose
      results are still alive at the end.
    - A memory snapshot: the allocated memory at the end of each step. The finding names the lines whose allocations are
      never freed.
    - `traceopt run`: the memory at the end of all steps of the run, recorded or not: what tensors hold on the GPU, and
      the resident memory of the process without mapped files. The finding needs growth that goes on from the start to
      the end of the longest stretch of steps without a profiler.

    Why it costs: the run ends out of memory, hours later. The usual cause is a tensor stored with its autograd graph: a
    list of losses, a running sum that was not detached. Steps can become slower long before: Python's garbage collector
    visits more objects, and the allocator finds no free blocks.

    How to fix: store numbers, not tensors with their graphs.

        total_loss += loss.detach()          # not: total_loss += loss
        history.append(loss.item())          # at the logging interval, not: history.append(loss)
        del outputs                          # if the next step would hold two

    A memory snapshot names the line that keeps memory on a GPU.

        traceopt run --memory-snapshot train.py

    When it is wrong: generation grows its key-value cache by design, and a cache that fills once is not a leak. The
    rule needs growth in every recorded step, but all steps of a short recording may be filling a cache. Steps come from
    marks of the profiler or of the optimizer; old versions of PyTorch do not put them into a snapshot. A data set that
    keeps the samples that it has read grows until the end of the first epoch. If the batches of the DataLoader become
    larger during the run, the growth over the run is not reported. The memory of data loader workers is not read.

    Sources: PyTorch FAQ, "My model reports cuda runtime error(2): out of memory"; proc_pid_statm(5).
    """

    code = "MM005"
    name = "memory-growth"
    title = "Release tensors at the end of each step"
    family = "memory"
    effort = Effort.ONE_LINE
    requires_one_of = ("memory", "memory_snapshot", "step_memory")
    needs_trace = False
    former = (
        Former("MM009", "memory-kept"),
        Former("RH004", "growing-memory", {"min_bytes": "min_run_bytes", "min_share": "min_run_share"}),
    )

    min_steps: int = threshold(4, "fewest recorded steps needed to judge growth")
    min_bytes: int = threshold(1 << 20, "smallest growth per recorded step, in bytes")
    min_run_bytes: int = threshold(64 << 20, "smallest growth over the steps of the run, in bytes")
    min_run_share: float = threshold(0.05, "smallest growth over the run as a share of the memory at its start")

    def applies(self, facts: Facts) -> str | None:
        if self._floor(facts) is not None or self._marks_steps(facts) or facts.memory_over_run is not None:
            return None
        if facts.companions.memory_snapshot is not None:
            return "The snapshot's history marks too few steps to judge growth."
        if facts.has_gpu and facts.memory is not None:
            return f"Too few steps have recorded memory ({len(_floor(facts))}) to judge growth."
        return lacks(facts, "step_memory") or "Memory was read after too few steps without a profiler."

    def check(self, facts: Facts) -> Findings:
        seen = (self._in_snapshot(facts), self._in_trace(facts), self._over_run(facts))
        growths = [growth for growth in seen if growth is not None]
        if not growths:
            return
        lines = next((growth.lines for growth in growths if growth.lines), [])
        yield self.finding(
            title=None if lines else "Find what the script keeps in every step",
            why=" ".join(growth.why for growth in growths),
            confidence="high" if lines else "medium",
            evidence=[Evidence("Growth per step", detail=size(growths[0].bytes_per_step)), *lines],
            fix=_fix(facts, known=bool(places(lines))),
        )

    def _floor(self, facts: Facts) -> I8 | None:
        """The lowest allocated bytes of each recorded step on a GPU; None if too few steps tell."""
        floor = _floor(facts)
        return floor if facts.has_gpu and len(floor) >= self.min_steps else None

    def _marks_steps(self, facts: Facts) -> bool:
        snapshot = facts.companions.memory_snapshot
        return snapshot is not None and snapshot.growth is not None and snapshot.growth.steps >= self.min_steps

    def _in_trace(self, facts: Facts) -> Growth | None:
        floor = self._floor(facts)
        if floor is None or np.diff(floor).min() < self.min_bytes:
            return None
        each = median(np.diff(floor))
        left = (facts.device.memory_bytes or 0) - (facts.memory.peak_allocated or 0 if facts.memory else 0)
        full = f" At this rate the device runs out of memory after {left / each:,.0f} more steps." if left > 0 else ""
        why = f"Each of {len(floor) - 1} steps leaves {size(each)} more allocated than the one before.{full}"
        return Growth(why, each, [operator.evidence for operator in retained(facts)[:MOST_LINES]])

    def _in_snapshot(self, facts: Facts) -> Growth | None:
        snapshot = facts.companions.memory_snapshot
        growth = snapshot.growth if snapshot is not None and self._marks_steps(facts) else None
        if growth is None or not growth.grows or growth.bytes_per_step < self.min_bytes or not growth.kept:
            return None
        lines = _kept(facts)
        why = (
            f"In the snapshot, a typical step leaves {size(growth.bytes_per_step)} more allocated than the one before "
            f"({counted(growth.steps, 'step')} compared). {lines[0].what} keeps "
            f"{size(growth.kept[0].bytes_per_step)} of it."
        )
        return Growth(why, growth.bytes_per_step, lines)

    def _over_run(self, facts: Facts) -> Growth | None:
        run = facts.memory_over_run
        growth = None if run is None or run.larger_batches else run.growth
        if growth is None or not self._is_large(growth):
            return None
        why = (
            f"{HOLDER[growth.where]} grows from {size(growth.before_bytes)} to {size(growth.after_bytes)} between "
            f"steps {growth.first_step:,} and {growth.last_step:,}, without a pause: {size(growth.bytes_per_step)} "
            f"per step, {size(1_000 * growth.bytes_per_step)} per 1,000 steps."
        )
        return Growth(why, growth.bytes_per_step, _lines_of_run(facts, growth))

    def _is_large(self, growth: memory_growth.MemoryGrowth) -> bool:
        grown = growth.after_bytes - growth.before_bytes
        return grown >= self.min_run_bytes and grown >= self.min_run_share * growth.before_bytes

    def passed(self, facts: Facts) -> str:
        floor, snapshot, run = self._floor(facts), facts.companions.memory_snapshot, facts.memory_over_run
        if floor is not None:
            change = size(abs(float(floor[-1] - floor[0])))
            return f"The lowest memory of a step changes by {change} over {len(floor)} steps."
        if snapshot is not None and snapshot.growth is not None and self._marks_steps(facts):
            return f"Allocated memory changes by {size(abs(snapshot.growth.bytes_per_step))} from step to step."
        steps = f"between steps {run.first_step:,} and {run.last_step:,}" if run is not None else "during the run"
        if run is not None and run.growth is not None and run.larger_batches:
            return f"Memory grows {steps}, and so do the batches."
        return f"Memory does not grow steadily {steps}, or by little."


def _floor(facts: Facts) -> I8:
    """The lowest allocated bytes in each step that has samples."""
    return facts.memory.lowest_by_step(facts.recorded_steps) if facts.memory is not None else np.empty(0, np.int64)


def _kept(facts: Facts) -> list[Evidence]:
    """The lines of a snapshot whose memory is never freed, most bytes first."""
    snapshot = facts.companions.memory_snapshot
    if snapshot is None or snapshot.growth is None or not snapshot.growth.grows:
        return []
    return [
        Evidence(
            named(snapshot.owner(line.owner).name),
            detail=f"keeps {size(line.bytes_per_step)} per step",
            location=place_of(snapshot, line.owner),
        )
        for line in snapshot.growth.kept[:MOST_LINES]
    ]


def _lines_of_run(facts: Facts, growth: memory_growth.MemoryGrowth) -> list[Evidence]:
    """What keeps the memory: lines of a snapshot, else operators of the recorded steps; none if neither explains a
    large part of the growth.
    """
    least = MIN_PART * growth.bytes_per_step
    kept, snapshot = _kept(facts), facts.companions.memory_snapshot
    if kept and growth.where == "device" and snapshot is not None and snapshot.growth is not None:
        explained = sum(line.bytes_per_step for line in snapshot.growth.kept)
        if explained >= least:
            return kept
    if facts.has_gpu != (growth.where == "device"):  # the trace holds the memory of the other one
        return []
    left = retained(facts)
    enough = sum(operator.bytes_per_step for operator in left) >= least
    return [operator.evidence for operator in left[:MOST_LINES]] if enough else []


def _fix(facts: Facts, *, known: bool) -> Fix:
    """`known`: whether the lines that keep the memory are known."""
    growth = facts.memory_over_run.growth if facts.memory_over_run is not None else None
    if known or growth is None:
        return _detach(facts)
    if growth.where == "device":
        return Fix(
            "Record a memory snapshot: it names the line that keeps the memory.",
            "traceopt run --memory-snapshot train.py",
        )
    kept = "Look for a list, a dictionary or an attribute that keeps tensors or batches of earlier steps."
    if facts.has_gpu:
        return Fix(f"{kept} Memory snapshots do not show it: this memory is not on the GPU.")
    return Fix(f"{kept} Memory snapshots need a GPU.", "losses.append(loss.item())  # not: losses.append(loss)")


def _detach(facts: Facts) -> Fix:
    if facts.has_trace and not facts.trains:
        return Fix(
            "Move results that you keep to the CPU, and run under inference_mode, so that they hold no graph.",
            "with torch.inference_mode():\n    results.append(model(batch).cpu())",
        )
    return Fix(
        "Detach tensors that outlive the step, or store numbers instead of tensors.", "total_loss += loss.detach()"
    )
