"""DL004: batches are copied from pinned memory while the GPU computes nothing."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from traceopt.analyzer.arrays.intervals import intersect, union
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.replay.changes import MoveToStream
from traceopt.analyzer.work.copies import CopyCalls
from traceopt.result.finding import Confidence, Fix
from traceopt.result.quantities import ms, percent
from traceopt.rules.evidence import by_site, site_evidence, site_locations
from traceopt.rules.rule import Findings, Rule, threshold
from traceopt.rules.savings.pricing import hide, priced
from traceopt.rules.savings.starvation import typical_ns

KINDS = {"HtoD pinned": "pinned", "HtoD": "host"}  # HIP does not say whether host memory was pinned


class ExposedInputCopy(Rule):
    """Measures copies from pinned host memory to the device with neither compute nor communication beside them.

    Why it costs: on the stream of the computation a copy waits for its turn and the next kernel waits for the copy. The
    link to the host has its own engine: the next batch could travel while this one is computed.

    How to fix: copy the next batch on a stream of its own.

        class Prefetcher:
            def __init__(self, loader):
                self.loader, self.stream = iter(loader), torch.cuda.Stream()
                self.fetch()

            def fetch(self):
                batch = next(self.loader, None)
                with torch.cuda.stream(self.stream):
                    self.batch = None if batch is None else batch.to("cuda", non_blocking=True)

            def next(self):
                torch.cuda.current_stream().wait_stream(self.stream)
                batch, _ = self.batch, self.fetch()
                batch.record_stream(torch.cuda.current_stream())
                return batch

    Sending less helps as well: bytes instead of floats, normalised on the GPU.

    When it is wrong: where the host is late anyway, a hidden copy gives back less, and the low end says so. Traces of
    HIP do not tell pinned from pageable memory; there both fixes are needed (DL003).

    Sources: PyTorch, "A guide on good usage of non_blocking and pin_memory"; NVIDIA, "How to Overlap Data Transfers in
    CUDA C/C++".
    """

    code: ClassVar[str] = "DL004"
    name: ClassVar[str] = "exposed-input-copy"
    title: ClassVar[str] = "Copy the next batch beside the computation"
    family: ClassVar[str] = "input pipeline"
    effort: ClassVar[str] = "Twenty lines"
    risk: ClassVar[str] = "Memory for one more batch"
    confidence: ClassVar[Confidence] = "medium"
    requires: ClassVar[tuple[str, ...]] = ("gpu",)

    min_share: float = threshold(0.02, "smallest share of the median step to report")

    def applies(self, facts: Facts) -> str | None:
        return None if _copies(facts) else "Nothing is copied from pinned host memory to the device."

    def check(self, facts: Facts) -> Findings:
        exposed = _exposed_ns(facts)
        if exposed < self.min_share * facts.step_ns:
            return
        copies = _copies(facts)
        launches = [facts.links.launch_slice[facts.gpu.rows[copy.rows]] for copy in copies]
        evidence, places = [], []
        for copy, launch in zip(copies, launches, strict=True):
            known = launch >= 0
            sites = by_site(facts, launch[known], facts.gpu.work.duration[copy.rows[known]])
            evidence += site_evidence(facts, sites, lambda _, copy=copy: f"Memcpy {copy.kind}", 3)  # type: ignore[misc]
            places += site_locations(sites)
        rows, work = np.concatenate([copy.rows for copy in copies]), facts.gpu.work
        alone = facts.gpu.exposed_copies.within(work.start[rows], work.end_of(rows))
        moves = np.zeros(len(work), bool)
        moves[rows] = True
        moved = sum(copy.bytes or 0 for copy in copies) / facts.steps.count
        size = f"{moved / 1e6:,.1f} MB a step are" if moved else "The input is"
        yield self.finding(
            why=(
                f"{size} copied from {' and '.join(KINDS[copy.kind] for copy in copies)} memory, and {ms(exposed)} of "
                f"each {ms(facts.step_ns)} step pass with the GPU computing nothing meanwhile."
            ),
            saving=priced(
                facts,
                (0.5 * exposed, 0.9 * exposed, exposed),
                [MoveToStream(moves)],
                "The exposed time of the copies, all of which fits beside the computation.",
                low=hide(facts, rows, 0.5 * alone),
            ),
            evidence=evidence,
            locations=places[:3],
            fix=Fix(
                "Prefetch: copy the next batch on a side stream with non_blocking=True.",
                'with torch.cuda.stream(copy_stream):\n    batch = next(loader).to("cuda", non_blocking=True)',
            ),
        )

    def passed(self, facts: Facts) -> str:
        return (
            f"Copies from host memory take {percent(_exposed_ns(facts) / facts.step_ns)} of the step with no compute."
        )


def _copies(facts: Facts) -> list[CopyCalls]:
    return [copy for copy in facts.copies if copy.kind in KINDS]


def _exposed_ns(facts: Facts) -> float:
    """With neither compute nor communication beside them, in the median step."""
    rows = np.concatenate([copy.rows for copy in _copies(facts)])
    edges, work = facts.steps.edges, facts.gpu.work
    exposed = intersect(union(work.start[rows], work.end_of(rows)), facts.gpu.exposed_copies)
    return typical_ns(facts, edges[:-1], exposed.within(edges[:-1], edges[1:]))
