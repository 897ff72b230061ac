"""Base of the host-sync rules: each is about one reason why the host blocks on the GPU."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt

from traceopt.analyzer.arrays.intervals import intersect, union
from traceopt.analyzer.attribution.syncs import BLOCKING_COPY, EXPLICIT, SCALAR_READ
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.replay.changes import Changes, DropSync, ScaleWork
from traceopt.analyzer.tables.schema import Mask
from traceopt.result.finding import Fix
from traceopt.result.words.message import ms, percent
from traceopt.rules.evidence import by_site, site_evidence
from traceopt.rules.fixes.advice.compilation import engine_overlap
from traceopt.rules.rule import Findings, Rule, threshold
from traceopt.rules.savings.price import Priced
from traceopt.rules.savings.pricing import calls_in, gain_ns, priced, unrecorded_gain_ns
from traceopt.rules.savings.starvation import typical_ns
from traceopt.rules.savings.work.pinned_copies import factor_to_host
from traceopt.rules.step_words import the_step, times

SURE_SHARE = 0.7  # of the stall, saved at least: some reads remain
LEAST_SHARE = 0.01  # of the stall: the finding leaves out what the GPU is idle during the calls if it is less
READS = (BLOCKING_COPY, SCALAR_READ, EXPLICIT)  # reasons of syncs after which an engine reads tokens
ONCE = 1.5  # calls per step: a serving engine reads the tokens of each step once
TOGETHER = 1.5  # times the sum of what each line saves alone


class SyncRule(Rule):
    """Base of the rules about syncs. A subclass names the reason and the fix."""

    reason: ClassVar[str]
    fix: ClassVar[Fix]
    inference_fix: ClassVar[Fix | None] = None  # of a run that is not known to train: it has no loss
    does: ClassVar[str]  # what happens, for the sentence "... 2 times a step"
    family: ClassVar[str] = "host synchronization"
    requires: ClassVar[tuple[str, ...]] = ("gpu", "launches")

    min_share: float = threshold(0.01, "smallest stall, as a share of the step, to report")

    def rows(self, facts: Facts) -> npt.NDArray[np.bool_]:
        """The syncs this rule is about; LG002 covers those of logging, LG003 of checkpoints, HS005 of gradients."""
        others = facts.reporting_syncs | facts.checkpoint_syncs | facts.gradient_syncs
        return np.asarray((facts.syncs.reason == self.reason) & ~others)

    def check(self, facts: Facts) -> Findings:
        """One finding per line of the user's code; one for all lines if they gain much more together: as long as one
        of them waits, the host does not get ahead of the GPU.
        """
        syncs = facts.syncs
        # Of a read that copies and then waits, both calls: the copy waits as well once the other does not.
        sites = [rows for rows in facts.syncs_by_site(self.rows(facts)) if syncs.stall[rows].any()]
        if len(sites) > 1 and (facts.captured.corrected or facts.recording_cost_unknown):
            rows = np.sort(np.concatenate(sites))
            alone = sum(self._gain_ns(facts, site) for site in sites)
            if self._gain_ns(facts, rows) > TOGETHER * alone:
                sites = [rows]
        for rows in sites:
            stall = typical_ns(facts, syncs.start[rows], syncs.stall[rows])
            copied = _copies_to_host(facts, rows)
            copying = facts.steps.mean_ns(intersect(facts.gpu.area(copied), facts.gpu.exposed_copies))
            if copying < self.min_share * facts.step_ns:  # of single values
                copying, copied = 0.0, np.zeros_like(copied)
            if stall + copying >= self.min_share * facts.step_ns:
                yield self._at_site(facts, rows, stall, copying, copied)

    def _gain_ns(self, facts: Facts, rows: npt.NDArray[np.int64]) -> float:
        """What a step saves if none of these syncs waits, and recording costs nothing."""
        gain = unrecorded_gain_ns if facts.recording_cost_unknown else gain_ns
        return gain(facts, [DropSync(calls_in(facts, facts.syncs.slice[rows]))])

    def _at_site(self, facts: Facts, rows: npt.NDArray[np.int64], stall: float, copying: float, copied: Mask) -> Priced:
        """`copying`: how long the GPU does nothing in a step but copy for these syncs; `copied` marks those copies."""
        syncs = facts.syncs
        sites = by_site(facts, syncs.cause_slice[rows], syncs.wait[rows] if copying else syncs.stall[rows])
        idle = typical_ns(facts, syncs.start[rows], syncs.idle[rows])
        count = syncs.calls(rows) / facts.steps.count
        dropped = DropSync(calls_in(facts, syncs.slice[rows]))
        pinned: Changes = [dropped, ScaleWork(copied, factor_to_host(facts))] if copying else [dropped]
        basis = "Assumes the wait is gone, capped at the GPU's idle time during the call and the refill after it."
        most, never_ahead = stall, ""
        if facts.captured.corrected and (gain := self._gain_ns(facts, rows)) > stall:
            # Without the profiler the host is faster, and gets ahead in what the recording shows as launches.
            basis, most = "Assumes the wait is gone, so the host gets ahead of the GPU.", gain
            never_ahead = " So the host never gets ahead, and the GPU also waits for launches that would be hidden."
        if copying:
            basis += " Pinned memory makes the copies faster; at worst it does not, and at best compute hides them."
        shared = self._shared(facts, rows)
        during = f"{ms(idle)} during the call and for " if idle >= LEAST_SHARE * stall else ""
        meanwhile = f"; the refill also includes work reported by {' and '.join(shared)}" if shared else ""
        overlap = engine_overlap(facts) if count <= ONCE and self.reason in READS else None
        return self.finding(
            title="Overlap the engine's scheduler with the GPU's work" if overlap else None,
            why=(
                f"{self.does} {times(facts, count)}. The GPU is idle for {during}{ms(stall - idle)} until the host "
                f"has refilled its queue{meanwhile}.{never_ahead}"
                + (f" For another {ms(copying)} it only copies." if copying else "")
            ),
            shares_cause_with=shared,
            saving=priced(
                facts,
                (SURE_SHARE * stall, most + copying, most + copying),
                pinned,
                basis,
                low=[dropped] if copying else None,
                high=[dropped, ScaleWork(copied, 0.0)] if copying else None,
            ),
            evidence=site_evidence(facts, sites),
            fix=Fix(f"{overlap}, so that it prepares the next step while the GPU runs this one.")
            if overlap
            else self.advice(facts, rows),
        )

    def advice(self, facts: Facts, rows: npt.NDArray[np.int64]) -> Fix:  # noqa: ARG002
        """The fix of these syncs."""
        return self.fix if facts.trains else self.inference_fix or self.fix

    def _shared(self, facts: Facts, rows: npt.NDArray[np.int64]) -> list[str]:
        """Rules that also charge much of the refill: with its lead, the host would have hidden that work."""
        syncs = facts.syncs
        refill = intersect(union(syncs.end[rows], syncs.refill_end[rows]), facts.gaps.starved)
        host = facts.host.of_thread(facts.steps.thread)
        shared = (
            cause.refill_rule
            for cause, area in host.items()
            if cause.refill_rule is not None and intersect(area, refill).total > 0.1 * refill.total
        )
        return list(dict.fromkeys(shared))

    def passed(self, facts: Facts) -> str:
        syncs = facts.syncs
        mine = self.rows(facts)
        if not mine.any():
            return "The steps contain no such call."
        total = (syncs.end - syncs.start)[mine].sum() / facts.steps.window_ns
        stall = syncs.stall[mine].sum() / facts.steps.window_ns
        return (
            f"Such calls take {percent(total)} of {the_step(facts)} and leave the GPU idle for {percent(stall)} of it."
        )


def _copies_to_host(facts: Facts, syncs: npt.NDArray[np.int64]) -> Mask:
    """The device's work that copies to the host in the operators of these syncs."""
    copied = np.zeros(len(facts.gpu.work), bool)
    around = facts.slices.mask(facts.syncs.cause_slice[syncs])
    for copy in facts.copies:
        if copy.kind.startswith("DtoH"):
            copied[copy.rows] = facts.slices.ancestor(facts.links.launch_slice[copy.rows], around) >= 0
    return copied
