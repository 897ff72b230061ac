"""LG003: a checkpoint is written inside the measured steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from traceopt.analyzer.captured import Checkpoints
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.ledger import Ledger
from traceopt.rules.common import SiteCost, by_site, locations, ms, name_of, percent, saving, site_evidence
from traceopt.rules.finding import Evidence, Finding, Fix
from traceopt.rules.rule import Rule, threshold
from traceopt.rules.run_costs import mean_step_ns, run_saving
from traceopt.units import rate, us

RECURRING = 3  # calls of torch.save in a run; fewer may be those at its end


@dataclass(frozen=True)
class CheckpointInStep(Rule):
    """Measures `torch.save`, distributed checkpointing and `save_*` functions on the training thread while the device
    stands still. Where `traceopt run` recorded the trace, also what `torch.save` took over the whole run.

    Why it costs: the state is copied to the host and written to storage before the next step may begin.

    How to fix: save rarely, copy the state to pinned host memory, and write it in the background.

        import torch.distributed.checkpoint as dcp
        future = dcp.async_save(state_dict, checkpoint_id=path)   # returns when the copy is staged
        ...
        future.result()                                           # before the next save

    When it is wrong: a checkpoint every thousand steps that happens to fall into the window is a one-off. Then the cost
    in the median step is zero and the finding carries no saving. The average over a run that ends early is too high
    when it saves at its end.

    Sources: PyTorch documentation, "Asynchronous saving with Distributed Checkpoint".
    """

    code: ClassVar[str] = "LG003"
    name: ClassVar[str] = "checkpoint-in-step"
    title: ClassVar[str] = "Write checkpoints in the background"
    family: ClassVar[str] = "logging"
    requires: ClassVar[tuple[str, ...]] = ("stacks",)

    min_share: float = threshold(0.01, "smallest share of the step (or of the window, for a one-off) to report")

    def check(self, facts: Facts) -> Iterator[Finding]:
        typical_ns, total_ns = facts.stalls.typical_ns("checkpoint"), facts.stalls.total_ns("checkpoint")
        ledger, checkpoints = facts.captured.ledger, facts.captured.checkpoints
        if typical_ns >= self.min_share * facts.step_ns:
            yield self._in_each_step(facts, typical_ns)
        elif ledger and checkpoints and _mean_ns(ledger, checkpoints) >= self.min_share * mean_step_ns(ledger):
            yield self._now_and_then(facts, ledger, checkpoints)
        elif total_ns >= self.min_share * facts.steps.window_ns:
            yield self._in_the_window(facts, total_ns)

    def _in_each_step(self, facts: Facts, typical_ns: float) -> Finding:
        sites = _sites(facts)
        return self.finding(
            why=f"Saving a checkpoint stops the step for {ms(typical_ns)} of {ms(facts.step_ns)}.",
            saving=saving(
                facts,
                0.7 * typical_ns,
                typical_ns,
                1.2 * typical_ns,
                "The measured stall, less the copy that must stay in line; somewhat more where the host "
                "loses its lead in it.",
            ),
            evidence=_evidence(facts, sites),
            locations=locations(sites),
            fix=_FIX,
        )

    def _now_and_then(self, facts: Facts, ledger: Ledger, checkpoints: Checkpoints) -> Finding:
        mean_ns = _mean_ns(ledger, checkpoints)
        sites = _sites(facts)
        return self.finding(
            why=(
                f"torch.save ran {checkpoints.saves:,} times in {ledger.count:,} steps, for "
                f"{ms(checkpoints.total_ns / checkpoints.saves)} each: {ms(mean_ns)} of each step of "
                f"{ms(mean_step_ns(ledger))} on average."
            ),
            saving=run_saving(
                facts,
                ledger,
                0.5 * mean_ns,
                0.9 * mean_ns,
                mean_ns,
                "The time in torch.save over the whole run, spread over its steps; copying the state stays in line.",
            ),
            evidence=[
                Evidence("torch.save", us(mean_ns), rate(checkpoints.saves / ledger.count)),
                *_evidence(facts, sites),
            ],
            locations=locations(sites),
            fix=_FIX,
        )

    def _in_the_window(self, facts: Facts, total_ns: int) -> Finding:
        sites = _sites(facts)
        rows = np.concatenate([site.rows for site in sites])
        steps = len(np.unique(facts.steps.step_of(facts.slices.start[rows])))
        return self.finding(
            why=(
                f"Saving a checkpoint took {ms(total_ns)} in {steps} of {facts.steps.count} measured steps; what it "
                "costs on average depends on how often the run saves."
            ),
            saving=None,
            evidence=_evidence(facts, sites),
            locations=locations(sites),
            fix=_FIX,
        )

    def passed(self, facts: Facts) -> str:
        share = facts.stalls.total_ns("checkpoint") / facts.steps.window_ns
        return f"Saving checkpoints takes {percent(share)} of the measured steps."


_FIX = Fix(
    "Save less often and write in the background (torch.distributed.checkpoint.async_save, or a thread "
    "that gets a copy in pinned memory).",
    "future = dcp.async_save(state_dict, checkpoint_id=path)",
)


def _mean_ns(ledger: Ledger, checkpoints: Checkpoints) -> float:
    """What torch.save takes of a step on average over the run; 0 where it is called at its end only."""
    return checkpoints.total_ns / max(1, ledger.count) if checkpoints.saves >= RECURRING else 0.0


def _sites(facts: Facts) -> list[SiteCost]:
    rows = facts.host.rows_of("checkpoint")
    cost = facts.stalled_within(facts.slices.start[rows], facts.slices.end[rows])
    return by_site(facts, rows[cost > 0], cost[cost > 0])


def _evidence(facts: Facts, sites: list[SiteCost]) -> list[Evidence]:
    return site_evidence(facts, sites, lambda site: name_of(facts, int(site.rows[0])))
