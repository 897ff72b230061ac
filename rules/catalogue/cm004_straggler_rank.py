"""CM004: all ranks wait for one straggler."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from traceopt.analyzer.ranks.rank_summary import COMPUTE, PART_LABELS
from traceopt.analyzer.ranks.run_facts import Straggler
from traceopt.rules import (
    Change,
    Evidence,
    Findings,
    Fix,
    Ranks,
    RemoveHost,
    RunFacts,
    RunRule,
    each_step,
    median,
    ms,
    on_rank,
    percent,
    place_on,
    rank_name,
    ranks_saving,
    threshold,
)

# What to check on the straggler, by the part of its step that takes longer.
ADVICE = {
    "data_loading": "its data loader: workers, shards of unequal cost, a slow disk or mount",
    "input_work": "its input work outside the data loader",
    "logging": "what only that rank logs or prints",
    "checkpoint": "what only that rank saves",
    "gc": "Python's garbage collector: freeze objects and collect at the same step on all ranks",
    "host_sync": "what only that rank reads from the GPU",
    "allocation": "its memory, which may be fuller than on the other ranks",
    "launch": "its CPU: binding to cores and memory, other processes, a lower clock",
    "python": "what only that rank computes in Python",
    "queued": "its GPU: another process on it, throttling",
}


class StragglerRank(RunRule):
    """Compares when the ranks enter the same collectives, on clocks aligned at the collectives' ends. If one rank comes
    last in most of them, the rule measures how long the others wait and names what this rank spends more time on.

    Why it costs: a collective ends when the last rank has arrived. One late rank sets the pace for all of them, and on
    the others the wait looks like slow communication.

    How to fix: fix the cause on the late rank. Data: shards of equal cost, enough workers, a local disk. Host: its own
    cores and NUMA node. Device: clocks and temperature.

        torchrun --nproc-per-node 8 train.py
        numactl --cpunodebind=$NODE --membind=$NODE python train.py     # each rank on the node of its GPU
        nvidia-smi -q -d PERFORMANCE,CLOCK                               # is a GPU throttled?

    When it is wrong: a rank that is late by design (the last stage of a pipeline) is not a fault. Ranks that were
    recorded at different steps cannot be compared.

    Sources: Zhang et al., "Understanding Stragglers in Large Model Training" (2025); NCCL documentation, collective
    operations.
    """

    code = "CM004"
    name = "straggler-rank"
    title = "Fix the straggler"
    family = "communication"
    effort = "Depends on the cause"

    min_share: float = threshold(0.03, "smallest wait for the straggler, as a share of the step, to report")
    min_blame: float = threshold(0.6, "share of all waiting for late ranks that one rank must cause")

    def check_run(self, run: RunFacts) -> Findings:
        late = run.straggler
        if late is None or late.share < self.min_blame:
            return
        recording = run.recording_ns(late.rank)
        wait = median(run.waits[:, late.rank]) - recording
        if wait < self.min_share * run.step_ns or (late.parts and late.parts[0][0] == COMPUTE):
            return  # CM005 reports a rank with more to compute
        name = rank_name(run, late.rank)
        cause, more = late.parts[0] if late.parts else ("", 0.0)
        known = more >= 0.3 * wait
        does = f" It spends {ms(more)} more than the other ranks on this: {_inside(cause)}." if known else ""
        place = place_on(run, late.rank, cause) if known else None
        longer = sum(part for name, part in late.parts if name != COMPUTE) - recording
        gain = min(0.95 * wait, max(0.0, longer)) if known else 0.95 * wait
        finding = self.finding(
            title=f"Fix the straggler: {name}",
            why=(
                f"The other ranks wait {ms(wait)} of {each_step(run)} for {name}. It is the last to enter "
                f"the collectives that cause {percent(late.share)} of all waiting.{does}"
            ),
            saving=ranks_saving(
                run,
                0.7 * min(gain, more) if known else 0.5 * wait,
                gain,
                1.1 * wait,
                "The time between the last two ranks to enter each collective in the median step, without the time in "
                "which the other ranks compute and without the straggler's recording overhead."
                + (
                    f" At most the {ms(longer)} that the straggler spends more than the others outside of compute."
                    if gain < 0.95 * wait
                    else ""
                ),
            ),
            evidence=_evidence(run, late),
            locations=[place] if place else [],
            fix=Fix(
                f"Look at {ADVICE.get(cause, 'what this rank does that the others do not')}."
                if known
                else "Compare this rank's host, clocks and data with the others'.",
                "numactl --cpunodebind=$NODE --membind=$NODE python train.py"
                if cause in ("launch", "queued")
                else None,
            ),
            confidence="high" if known and len(run.step_names) > 1 else "medium",
            shares_cause_with=["CM001", "CM003"],
        )
        yield on_rank(finding, run, late.rank)

    def remedy(self, ranks: Ranks) -> list[Sequence[Change]] | None:
        """The straggler no longer spends more than the others on the part that makes it late."""
        late = ranks.run.straggler
        if late is None or not late.parts:
            return None
        cause, more = late.parts[0]
        facts = ranks.facts[late.rank]
        areas = facts.flow_areas
        spent = facts.recorded_steps.host_mean_ns(areas[cause]) if cause in areas else 0.0
        if not spent:
            return None
        changes: list[Sequence[Change]] = [[] for _ in ranks.facts]
        changes[late.rank] = [RemoveHost(areas[cause], min(1.0, more / spent))]
        return changes

    def passed_run(self, run: RunFacts) -> str:
        late = run.straggler
        if late is None:
            return f"None of the {len(run.ranks)} ranks is late to the {run.matched.count} collectives that they share."
        wait = max(0.0, median(run.waits[:, late.rank]) - run.recording_ns(late.rank)) / run.step_ns
        return f"{rank_name(run, late.rank).capitalize()} makes the others wait longest: {percent(wait)} of the step."


def _evidence(run: RunFacts, late: Straggler) -> list[Evidence]:
    rows = [
        Evidence(
            f"{PART_LABELS.get(part, part)}: more than on the other ranks",
            round(more / 1e3, 3),
            location=place_on(run, late.rank, part),
        )
        for part, more in late.parts[:3]
    ]
    waits = np.median(run.waits, axis=0)
    return [
        *rows,
        *(
            Evidence(f"Waiting for {rank_name(run, i)}", round(float(waits[i]) / 1e3, 3))
            for i in run.longest_first(waits)[:3]
            if waits[i]
        ),
    ]


def _inside(part: str) -> str:
    label = PART_LABELS.get(part, part)
    return label[:1].lower() + label[1:]
