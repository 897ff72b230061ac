"""DL004: batches are copied from pinned memory while the GPU computes nothing."""

from __future__ import annotations

import numpy as np

from traceopt.analyzer.work.copies import CopyCalls
from traceopt.rules import (
    Facts,
    Findings,
    Fix,
    MoveToStream,
    Risk,
    Rule,
    by_site,
    each_step,
    hide,
    intersect,
    megabytes,
    ms,
    per_step,
    percent,
    priced,
    site_evidence,
    site_locations,
    subtract,
    the_step,
    threshold,
    union,
)

KINDS = {"HtoD pinned": "pinned", "HtoD": "host"}  # HIP does not say whether host memory was pinned


class ExposedInputCopy(Rule):
    """Measures copies from pinned host memory to the device that neither compute nor communication overlaps.

    Why it costs: on the compute stream, a copy waits for its turn, and the next kernel waits for the copy. The link to
    the host has its own copy engine, so the next batch can be copied while the GPU computes this one.

    How to fix: copy the next batch on its own stream.

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
                batch = self.batch
                if batch is not None:               # None: the epoch has ended
                    batch.record_stream(torch.cuda.current_stream())
                    self.fetch()
                return batch

    Sending less also helps: send bytes instead of floats, and normalize on the GPU.

    When it is wrong: if the host is late anyway, hiding the copy saves less, as the low end of the saving shows. HIP
    traces do not tell pinned from pageable memory. There you need both fixes (DL003).

    Sources: PyTorch, "A guide on good usage of non_blocking and pin_memory"; NVIDIA, "How to Overlap Data Transfers in
    CUDA C/C++".
    """

    code = "DL004"
    name = "exposed-input-copy"
    title = "Overlap input copies with compute"
    family = "input pipeline"
    risk = Risk.MEMORY
    risk_note = "Memory for one more batch"
    confidence = "medium"
    requires = ("gpu",)

    min_share: float = threshold(0.02, "smallest exposed copy time, as a share of the step, to report")

    def applies(self, facts: Facts) -> str | None:
        return None if _copies(facts) else "Nothing is copied from pinned host memory to the device."

    def check(self, facts: Facts) -> Findings:
        exposed = _exposed_ns(facts)
        if exposed < self.min_share * facts.step_ns:
            return
        copies = _copies(facts)
        launches = [facts.links.launch_slice[copy.rows] for copy in copies]
        evidence, places = [], []
        for copy, launch in zip(copies, launches, strict=True):
            known = launch >= 0
            sites = by_site(facts, launch[known], facts.gpu.work.duration[copy.rows[known]])
            evidence += site_evidence(facts, sites, lambda _, copy=copy: f"Memcpy {copy.kind}", 3)  # type: ignore[misc]
            places += site_locations(sites)
        rows, work = np.concatenate([copy.rows for copy in copies]), facts.gpu.work
        room = facts.steps.mean_ns(subtract(facts.gpu.compute, facts.gpu.copies))
        possible = min(exposed, room)
        alone = facts.gpu.exposed_copies.within(work.start[rows], work.end_of(rows))
        moves = np.zeros(len(work), bool)
        moves[rows] = True
        moved = sum(copy.bytes or 0 for copy in copies) / facts.steps.count
        size = f"{megabytes(moved)} {per_step(facts)}" if moved else "The input"
        source = "next(loader)" if facts.trains else "following"
        yield self.finding(
            why=(
                f"{size} is copied from {' and '.join(KINDS[copy.kind] for copy in copies)} memory. In "
                f"{each_step(facts)}, {ms(exposed)} of copy time is exposed."
                + (
                    f" Compute can hide at most {ms(room)} of it, because no more compute is left."
                    if room < exposed
                    else ""
                )
            ),
            saving=priced(
                facts,
                (0.5 * possible, 0.9 * possible, possible),
                [MoveToStream(moves)],
                "Assumes the copies run on their own stream; compute hides 50%, 90% or 100% of their exposed time.",
                low=hide(facts, rows, 0.5 * alone),
            ),
            evidence=evidence,
            locations=places[:3],
            fix=Fix(
                "Prefetch: copy the next batch on a side stream with non_blocking=True, while this one is computed. "
                "The compute waits for that stream before it reads the batch.",
                f'with torch.cuda.stream(copy_stream):\n    batch = {source}.to("cuda", non_blocking=True)\n'
                "...                           # compute the batch before\n"
                "torch.cuda.current_stream().wait_stream(copy_stream)\n"
                "batch.record_stream(torch.cuda.current_stream())",
            ),
        )

    def passed(self, facts: Facts) -> str:
        return (
            f"Exposed copies from host memory take {percent(_exposed_ns(facts) / facts.step_ns)} of {the_step(facts)}."
        )


def _copies(facts: Facts) -> list[CopyCalls]:
    return [copy for copy in facts.copies if copy.kind in KINDS]


def _exposed_ns(facts: Facts) -> float:
    """Time of copies in the typical step that neither compute nor communication overlaps, ns."""
    rows = np.concatenate([copy.rows for copy in _copies(facts)])
    work = facts.gpu.work
    exposed = intersect(union(work.start[rows], work.end_of(rows)), facts.gpu.exposed_copies)
    return facts.steps.mean_ns(exposed)
