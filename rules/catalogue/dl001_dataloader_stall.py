"""DL001: the GPU starves while the loop waits for the next batch."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from traceopt.analyzer.facts import Facts
from traceopt.analyzer.replay.changes import RemoveHost
from traceopt.result.finding import Fix
from traceopt.result.quantities import ms, percent
from traceopt.rules.advice.loader_workers import LoaderPlan, loader_rows, plan_loader
from traceopt.rules.evidence import by_site, functions_inside, name_of, site_evidence, site_locations
from traceopt.rules.rule import Findings, Rule, threshold
from traceopt.rules.savings.pricing import area_of, priced
from traceopt.rules.savings.starvation import typical_ns


class DataloaderStall(Rule):
    """Measures the time in which the GPU starves while the training thread is inside the DataLoader's `__next__`.
    On a CPU-only run, all of that time counts: the thread does no model work in it.

    Why it costs: a step cannot begin before its batch is there. With `num_workers=0` the batch is built inside the
    training process, one after the other; with too few workers the queue runs empty.

    How to fix:

        loader = DataLoader(
            dataset, batch_size=64, shuffle=True,
            num_workers=8,             # enough that workers x step time >= time to build a batch
            persistent_workers=True,   # do not start them again every epoch
            prefetch_factor=4,
            pin_memory=True,
        )

    If more workers do not help, make a batch cheaper: decode once and cache, store the data packed and on a fast local
    disk, or move the augmentation to the GPU.

    When it is wrong: in the first step after the workers start, the wait is start-up and not steady. The rule judges
    the median step, so a single long wait does not count. The profiler slows Python in the loader, most of all with
    stacks.

    Sources: PyTorch documentation, "torch.utils.data" and the performance tuning guide.
    """

    code: ClassVar[str] = "DL001"
    name: ClassVar[str] = "dataloader-stall"
    title: ClassVar[str] = "Load data in worker processes"
    family: ClassVar[str] = "input pipeline"
    effort: ClassVar[str] = "One line"
    risk: ClassVar[str] = "More CPU memory"

    min_share: float = threshold(0.03, "smallest share of the median step to report")
    hand_over_ms: float = threshold(1.0, "usual time to take a ready batch over from a worker, which cannot be saved")

    def applies(self, facts: Facts) -> str | None:
        return None if len(facts.host.rows_of("data_loading")) else "No DataLoader was seen in the trace."

    def check(self, facts: Facts) -> Findings:
        stall = facts.stalls.typical_ns("data_loading")
        if stall < self.min_share * facts.step_ns:
            return
        rows = loader_rows(facts)
        start, end = facts.slices.start[rows], facts.slices.end[rows]
        plan = plan_loader(facts, typical_ns(facts, start, end - start), facts.step_ns - stall)
        sites = by_site(facts, rows, facts.stalled_within(start, end))
        inside = functions_inside(facts, rows)
        waits = "the GPU waits" if facts.has_gpu else "the training thread waits"
        ready_ns = _ready_ns(facts) if plan.keeps_up else 0.0
        stall -= min(ready_ns, self.hand_over_ms * 1e6 * plan.fetches)
        if stall < self.min_share * facts.step_ns:
            return
        if not plan.multiprocess:
            title, how = None, "are built inside the training process"
        elif plan.keeps_up:
            title, how = "Let more batches wait ready in the data loader", "come late from the worker processes"
        elif plan.exhausted:
            title, how = "Make a batch cheaper to load", "are built in as many workers as find a core"
        else:
            title, how = "Give the data loader more workers", "are built in worker processes that are too slow"
        left = min(stall, ready_ns or plan.left_ns)
        yield self.finding(
            title=title,
            why=f"Batches {how}: {waits} {ms(stall)} of each {ms(facts.step_ns)} step for the next one.",
            saving=priced(
                facts,
                (0.8 * (stall - left), stall, stall),
                [RemoveHost(area_of(facts, rows))],
                "The measured stall of the median step; down to 80% of it where handing batches over costs time."
                + (f" {_what_is_left(plan)} leaves {ms(left)} of it." if left else ""),
                low=[RemoveHost(area_of(facts, rows), 0.8)],
            ),
            confidence="medium" if left else None,
            evidence=[
                *site_evidence(facts, sites, lambda site: name_of(facts, int(site.rows[0]))),
                *site_evidence(
                    facts,
                    inside,
                    lambda s: s.location.function or "" if s.location else "",
                    3,
                ),
            ],
            locations=[*site_locations(sites, 2), *site_locations(inside, 1)],
            fix=Fix(plan.advice, plan.code),
        )

    def passed(self, facts: Facts) -> str:
        share = facts.stalls.typical_ns("data_loading") / facts.step_ns
        return f"Waiting for data takes {percent(share)} of the median step."


def _what_is_left(plan: LoaderPlan) -> str:
    if plan.keeps_up:
        return "Taking over a batch that is ready"
    return f"The work of {plan.most} {'worker' if plan.most == 1 else 'workers'} without cheaper items"


def _ready_ns(facts: Facts) -> float:
    """A step's time in the loader when its batch is ready: in the quickest tenth of the run's steps. 0: not known."""
    ledger = facts.captured.ledger
    if ledger is None or ledger.fetch_ns is None or not len(ledger.usual):
        return 0.0
    return float(np.percentile(ledger.fetch_ns[ledger.usual], 10))
