"""LG003: a checkpoint is written inside the measured steps."""

from __future__ import annotations

import numpy as np

from traceopt.analyzer.vocabulary.causes.table import CHECKPOINT
from traceopt.rules import (
    I8,
    CallEvery,
    Evidence,
    Facts,
    Findings,
    Fix,
    Ledger,
    Risk,
    Rule,
    area_of,
    by_site,
    each_step,
    intersect,
    mean_part_ns,
    mean_step_ns,
    median,
    ms,
    percent,
    priced,
    site_evidence,
    site_locations,
    subtract,
    threshold,
    us,
    whole_run_saving,
    without_calls,
)


class CheckpointInStep(Rule):
    """Measures `torch.save`, distributed checkpointing and `save_*` functions on the main thread while the device
    is idle. If `traceopt run` recorded the run, it measures every `torch.save` call between the first and the last
    step, spread over all steps.

    Why it costs: the state is copied to the host and written to storage before the next step can begin.

    How to fix: save rarely, copy the state to pinned host memory, and write it in the background.

        import torch.distributed.checkpoint as dcp
        future = dcp.async_save(state_dict, checkpoint_id=path)   # returns when the copy is staged
        ...
        future.result()                                           # before the next save

    When it is wrong: a checkpoint every thousand steps that happens to fall into the window of another profiler is a
    one-off. Then the cost in the typical step is zero and the finding has no saving.

    Sources: PyTorch documentation, "Asynchronous saving with Distributed Checkpoint".
    """

    code = "LG003"
    name = "checkpoint-in-step"
    title = "Write checkpoints in the background"
    family = "logging"
    risk = Risk.LATER
    risk_note = "A restart may begin at an older checkpoint"
    requires = ("stacks",)

    min_share: float = threshold(0.01, "smallest stall to report, as a share of the step (one-offs: of the window)")

    def missing(self, facts: Facts) -> str | None:
        """The run's ledger lists the saves even without stacks."""
        return None if facts.captured.checkpoints is not None else super().missing(facts)

    def check(self, facts: Facts) -> Findings:
        typical = facts.stalls.typical_ns(CHECKPOINT)
        every = facts.of_every_step
        total, steps = every.stalls.total_ns(CHECKPOINT), facts.recorded_steps
        ledger = facts.captured.ledger
        if ledger is not None and ledger.save_ns.any() and typical < self.min_share * facts.step_ns:
            yield from self._of_the_run(facts, ledger)
            return
        if max(typical / facts.step_ns, total / steps.window_ns) < self.min_share:
            return
        rows = every.host.rows_of(CHECKPOINT)
        cost = every.stalled_within(facts.slices.start[rows], facts.slices.end[rows])
        sites = by_site(facts, rows[cost > 0], cost[cost > 0])
        affected = int(np.count_nonzero(steps.per_step(steps.host_step_of(facts.slices.start[rows]), cost)))
        every_step = 2 * affected > steps.count
        share = ledger.usual_save_share if ledger is not None else None
        expected = typical if share is None else min(typical, share * facts.step_ns)
        part = expected / typical if typical else 0.0
        basis = "Assumes the host time of the save is gone; the low end keeps 30% of it for the copy to the host."
        if part < 1:
            basis += (
                " In the steps without a profiler, saving takes a smaller share of the step; the saving is that share."
            )
        yield self.finding(
            why=(
                f"Saving a checkpoint blocks {each_step(facts)} for {ms(typical)}."
                if every_step
                else f"Saving a checkpoint took {ms(_blocked_ns(every, rows))} in {affected} of {steps.count} measured "
                "steps. The average cost depends on how often the run saves."
            ),
            saving=priced(
                facts,
                (0.7 * expected, expected, 1.2 * typical),
                without_calls(facts, rows, part),
                basis,
                high=without_calls(facts, rows),
            )
            if every_step
            else None,
            evidence=site_evidence(facts, sites),
            fix=_FIX,
        )

    def _of_the_run(self, facts: Facts, ledger: Ledger) -> Findings:
        saves = np.flatnonzero(ledger.save_ns)
        mean = mean_part_ns(ledger, ledger.save_ns)
        if len(saves) < 2 or mean < self.min_share * mean_step_ns(ledger):
            return
        rows = facts.host.rows_of(CHECKPOINT)
        yield self.finding(
            why=(
                f"torch.save blocks {len(saves)} of {len(ledger.save_ns):,} steps, about once every "
                f"{median(np.diff(saves)):,.0f} steps, for {ms(float(ledger.save_ns[saves].mean()))} each. On average "
                f"that is {ms(mean)} of each {ms(mean_step_ns(ledger))} step."
            ),
            saving=whole_run_saving(
                facts,
                ledger,
                0.7 * mean,
                mean,
                mean,
                "Assumes the host time of all saves is gone; the low end keeps 30% of it for the copy to the host.",
            ),
            evidence=[Evidence("torch.save", us(mean), round(len(saves) / len(ledger.save_ns), 4))],
            locations=site_locations(by_site(facts, rows)),
            fix=_FIX,
        )

    def passed(self, facts: Facts) -> str:
        ledger = facts.captured.ledger
        if ledger is not None and ledger.save_ns.any():
            share = float(ledger.save_ns.sum() / max(1, ledger.step_ns[1:].sum()))
            return f"torch.save takes {percent(share)} of the run's steps."
        share = facts.stalls.total_ns(CHECKPOINT) / facts.steps.window_ns
        return f"Saving checkpoints takes {percent(share)} of the measured steps."


def _blocked_ns(facts: Facts, saves: I8) -> int:
    """How long saves hold up the steps: all of their time, with the copies to the host, in which the device does not
    compute.
    """
    return intersect(subtract(area_of(facts, saves), facts.gpu.compute), facts.steps.host_window).total


_FIX = Fix(
    "Save less often and write in the background (torch.distributed.checkpoint.async_save, or a thread with a copy "
    "in pinned memory).",
    edits=[CallEvery("torch.save", 500)],
    code="future = dcp.async_save(state_dict, checkpoint_id=path)",
)
