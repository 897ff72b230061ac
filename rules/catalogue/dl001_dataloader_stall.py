"""DL001: the GPU starves while the loop waits for the next batch."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from traceopt.analyzer import op_names
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.replay.changes import RemoveHost
from traceopt.rules.common import (
    by_site,
    functions_inside,
    locations,
    ms,
    name_of,
    percent,
    site_evidence,
)
from traceopt.rules.finding import Finding, Fix
from traceopt.rules.pricing import area_of, priced
from traceopt.rules.rule import Rule, threshold


@dataclass(frozen=True)
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

    def applies(self, facts: Facts) -> str | None:
        return None if len(facts.host.rows_of("data_loading")) else "No DataLoader was seen in the trace."

    def check(self, facts: Facts) -> Iterator[Finding]:
        stall = facts.stalls.typical_ns("data_loading")
        if stall < self.min_share * facts.step_ns:
            return
        rows = facts.host.rows_of("data_loading")
        rows = rows[facts.slices.thread[rows] == facts.steps.thread]
        start, end = facts.slices.start[rows], facts.slices.end[rows]
        loader = _Loader(
            multiprocess=any(op_names.is_multiprocess_dataloader(name_of(facts, row)) for row in rows.tolist()),
            wait_ns=float(np.median(facts.steps.per_step(facts.steps.step_of(start), end - start))),
            rest_ns=max(1.0, facts.step_ns - stall),
            workers=next((one.num_workers for one in facts.captured.loaders if one.num_workers is not None), None),
            cores=facts.captured.cpu_count,
            gpu=facts.has_gpu,
        )
        sites = by_site(facts, rows, facts.stalled_within(start, end))
        inside = functions_inside(facts, rows)
        waits = "the GPU waits" if facts.has_gpu else "the training thread waits"
        where = "in worker processes that are too slow" if loader.multiprocess else "inside the training process"
        yield self.finding(
            title="Give the data loader more workers" if loader.multiprocess else None,
            why=f"Batches are built {where}: {waits} {ms(stall)} of each {ms(facts.step_ns)} step for the next one.",
            saving=priced(
                facts,
                (0.8 * stall, stall, stall),
                [RemoveHost(area_of(facts, rows))],
                "The measured stall of the median step; down to 80% of it where handing batches over costs time.",
                low=[RemoveHost(area_of(facts, rows), 0.8)],
            ),
            evidence=[
                *site_evidence(facts, sites, lambda site: name_of(facts, int(site.rows[0]))),
                *site_evidence(
                    facts,
                    inside,
                    lambda s: s.location.function or "" if s.location else "",
                    3,
                ),
            ],
            locations=[*locations(sites, 2), *locations(inside, 1)],
            fix=Fix(loader.advice, loader.code),
        )

    def passed(self, facts: Facts) -> str:
        share = facts.stalls.typical_ns("data_loading") / facts.step_ns
        return f"Waiting for data takes {percent(share)} of the median step."


@dataclass(frozen=True)
class _Loader:
    """What is known of the loader. `workers` and `cores` are None where `traceopt run` did not record."""

    multiprocess: bool
    wait_ns: float  # in `__next__`, a step
    rest_ns: float  # of the step
    workers: int | None
    cores: int | None
    gpu: bool

    @property
    def needed(self) -> int | None:
        """Workers that hide the loading; None when the present number is not known.

        One process builds a batch in `wait_ns`; `workers` processes deliver one a step, so a batch takes them a step
        times `workers`.
        """
        if not self.multiprocess:
            return max(2, math.ceil(self.wait_ns / self.rest_ns) + 1)
        step_ns = self.rest_ns + self.wait_ns
        return math.ceil(self.workers * step_ns / self.rest_ns) + 1 if self.workers else None

    @property
    def advice(self) -> str:
        cores = "as many free CPU cores" if self.cores is None else f"{self.cores} CPU cores"
        cheaper = "make an item cheaper: cache decoded data, use packed formats, faster storage"
        if self.needed is not None and self.cores is not None and self.needed > self.cores:
            hidden = f"{self.needed} workers would hide the loading, but the process has {cores}"
            return f"{hidden}: use them all, and {cheaper}."
        if self.multiprocess:
            more = f"Raise num_workers from {self.workers} to {self.needed}" if self.needed else "Raise num_workers"
            return (
                f"The wait is {ms(self.wait_ns)} a step beside {ms(self.rest_ns)} of other work. {more} and "
                f"prefetch_factor with it; if the CPU cores are used up, {cheaper}."
            )
        return (
            f"A batch takes {ms(self.wait_ns)} to build against {ms(self.rest_ns)} for the rest of the step: "
            f"{self.needed} workers hide it, given {cores}. Keep them between epochs with persistent_workers."
        )

    @property
    def code(self) -> str:
        wanted = self.needed if self.needed is None or self.cores is None else min(self.needed, max(self.cores, 2))
        pinned = ", pin_memory=True" if self.gpu else ""
        workers = "2 * current" if wanted is None else str(wanted)
        return f"DataLoader(..., num_workers={workers}, persistent_workers=True, prefetch_factor=4{pinned})"
