"""CM001: exposed (non-overlapped) communication."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from traceopt.rules import (
    Changes,
    Confidence,
    Evidence,
    Facts,
    Findings,
    Fix,
    RemoveHost,
    Rule,
    hide,
    location_of,
    megabytes,
    ms,
    per_second,
    percent,
    places,
    priced,
    threshold,
)


class ExposedCommunication(Rule):
    """Measures exposed (non-overlapped) communication: the time in which collectives run and the GPU computes nothing.
    On a CPU-only run it is the time in which the training thread waits for communication. A collective that waits for a
    slower rank spins and counts as running.

    Why it costs: the GPU computes nothing in that time.

    How to fix, by cause: if gradients are reduced after the backward pass instead of during it, use larger or earlier
    buckets. With gradient accumulation, reduce once:

        with model.no_sync():                  # all micro-steps but the last
            loss.backward()

        ddp = DDP(model, bucket_cap_mb=100, gradient_as_bucket_view=True, static_graph=True)

    FSDP hides its all-gathers by prefetching. The all-to-all of embeddings overlaps the dense part if you launch it
    early. If single calls are far too slow for their size, check the link and the other ranks first (CM003).

    When it is wrong: one rank's trace cannot tell a slow link from a late peer. A larger batch per GPU changes the
    balance more than any flag.

    Sources: Li et al., "PyTorch Distributed" (VLDB 2020); definitions of communication overlap in HTA.
    """

    code: ClassVar[str] = "CM001"
    name: ClassVar[str] = "exposed-communication"
    title: ClassVar[str] = "Overlap communication with compute"
    family: ClassVar[str] = "communication"
    effort: ClassVar[str] = "Some tuning"
    confidence: ClassVar[Confidence] = "medium"

    min_share: float = threshold(0.03, "smallest exposed time, as a share of the median step, to report")
    low: float = threshold(0.2, "share of the exposed time that overlap can hide, low")
    expected: float = threshold(0.7, "share of the exposed time that overlap can hide, expected")

    def applies(self, facts: Facts) -> str | None:
        if facts.has_gpu:
            return None if len(facts.gpu.communication) else "No collectives in this trace."
        return None if len(facts.cpu_phases.communication) else "No collectives in this trace."

    def check(self, facts: Facts) -> Findings:
        area = facts.gpu.exposed_communication if facts.has_gpu else facts.cpu_phases.areas["communication"]
        total = facts.gpu.communication if facts.has_gpu else facts.cpu_phases.communication
        exposed = facts.steps.mean_ns(area)
        if exposed < self.min_share * facts.step_ns:
            return
        hidden = 1 - area.total / total.total
        evidence = self._evidence(facts)
        who = "Exposed communication takes" if facts.has_gpu else "The training thread waits for communication for"
        yield self.finding(
            why=(
                f"{who} {ms(exposed)} of each {ms(facts.step_ns)} step"
                + (f"; {percent(hidden)} of all communication time is overlapped." if hidden > 0.005 else ".")
            ),
            saving=priced(
                facts,
                (self.low * exposed, self.expected * exposed, exposed),
                _overlapped(facts, self.expected),
                f"Assumes compute hides {percent(self.low)}, {percent(self.expected)} or 100% of the exposed time.",
                low=_overlapped(facts, self.low),
                high=_overlapped(facts, 1.0),
            ),
            evidence=evidence,
            locations=places(evidence),
            fix=Fix(
                "Start collectives earlier and in larger buckets, so that the backward pass hides them. With gradient "
                "accumulation, skip them in all micro-steps but the last.",
                "with model.no_sync():\n    loss.backward()",
            ),
        )

    def _evidence(self, facts: Facts) -> list[Evidence]:
        count = facts.steps.count
        out = []
        for calls in facts.collectives[:5]:
            rate = calls.bus_gb_per_s()
            size = calls.known_bytes
            detail = f"{ms(float(calls.duration.sum()) / count)} in total"
            if size is not None:
                detail += f", {megabytes(size / count)}"
            if rate is not None:
                detail += f", {per_second(rate, 'GB')} bus bandwidth"
            out.append(
                Evidence(
                    what=calls.name,
                    us_per_step=round(float(calls.exposed.sum()) / count / 1e3, 3),
                    calls_per_step=round(calls.calls / count, 3),
                    detail=detail,
                    location=location_of(facts, int(calls.launch[calls.exposed.argmax()])),
                )
            )
        return out

    def passed(self, facts: Facts) -> str:
        area = facts.gpu.exposed_communication if facts.has_gpu else facts.cpu_phases.areas["communication"]
        return f"Exposed communication takes {percent(area.total / facts.steps.window_ns)} of the step."


def _overlapped(facts: Facts, share: float) -> Changes:
    """Hides a share of each collective's exposed time behind compute, which takes as long as before."""
    if not facts.has_gpu:
        return [RemoveHost(facts.cpu_phases.areas["communication"], share)]
    rows = np.flatnonzero(facts.gpu.is_communication & (facts.gpu.in_window > 0))
    work = facts.gpu.work
    exposed = facts.gpu.exposed_communication.within(work.start[rows], work.end_of(rows))
    return hide(facts, rows, share * exposed)
