"""CM007: DDP broadcasts the model's buffers before every forward pass."""

from __future__ import annotations

import numpy as np

from traceopt.rules import (
    ANNOTATION,
    OP,
    Effort,
    Facts,
    Findings,
    Fix,
    Intervals,
    RemoveHost,
    Risk,
    Rule,
    SetArguments,
    by_site,
    each_step,
    host_bounds,
    ms,
    percent,
    priced,
    site_evidence,
    threshold,
    union,
)

REMOVABLE = 0.95  # of the broadcast's host time
_FORWARD = "DistributedDataParallel.forward"
_BROADCASTS = ("c10d::broadcast_", "nccl:broadcast")
_PACKING = ("aten::flatten_dense_tensors", "aten::unflatten_dense_tensors", *_BROADCASTS)


class DdpBufferBroadcast(Rule):
    """Measures the host time of the buffer broadcast that DistributedDataParallel runs before each forward pass, from
    its first to its last operator (flatten, broadcast, unflatten), while the GPU waits for the host.

    Why it costs: DDP packs the running statistics of every BatchNorm, sends them from rank 0, unpacks them and copies
    them back. That takes at least one operator per buffer before the first layer is launched.

    How to fix: turn it off if the ranks need not share buffers. Use SyncBatchNorm if they must.

        model = DistributedDataParallel(model, device_ids=[rank], broadcast_buffers=False)

    When it is wrong: without the broadcast, evaluation and checkpoints use the statistics of the rank that writes them.
    If the GPU is always busy, the broadcast is hidden and the rule stays silent.

    Sources: PyTorch documentation of DistributedDataParallel, argument broadcast_buffers.
    """

    code = "CM007"
    name = "ddp-buffer-broadcast"
    title = "Stop broadcasting buffers every forward pass"
    family = "communication"
    effort = Effort.ONE_LINE
    risk = Risk.CONVERGENCE
    risk_note = "Ranks keep their own statistics"
    requires = ("gpu", "launches", "ops")

    min_share: float = threshold(0.01, "smallest saving, as a share of the step, to report")

    def applies(self, facts: Facts) -> str | None:
        return None if len(self._broadcasts(facts)) else "DDP broadcasts no buffers in this trace."

    def check(self, facts: Facts) -> Findings:
        area = self._broadcasts(facts)
        saved = priced(
            facts,
            host_bounds(facts, area, REMOVABLE),
            [RemoveHost(area, REMOVABLE)],
            f"Assumes that {percent(REMOVABLE)} of the broadcast's host time goes away.",
        )
        if saved.bounds_ns[1] < self.min_share * facts.step_ns:
            return
        rows = np.flatnonzero(facts.regions.named(lambda name: name in _PACKING, OP))
        rows = rows[area.contains(facts.slices.start[rows])]
        sites = by_site(facts, rows)
        yield self.finding(
            why=(
                "DDP broadcasts the model's buffers before each forward pass, which blocks the host for "
                f"{ms(facts.steps.mean_ns(area))} of {each_step(facts)}."
            ),
            saving=saved,
            evidence=site_evidence(facts, sites),
            fix=Fix(
                "Pass broadcast_buffers=False to DDP; use SyncBatchNorm if the statistics must be shared.",
                edits=[SetArguments("DistributedDataParallel", {"broadcast_buffers": "False"})],
            ),
        )

    def _broadcasts(self, facts: Facts) -> Intervals:
        """From the first to the last packing operator of each forward pass that broadcasts."""
        slices, named = facts.slices, facts.regions.named
        forward = named(lambda name: name == _FORWARD, ANNOTATION, OP)
        packing = np.flatnonzero(named(lambda name: name in _PACKING, ANNOTATION, OP))
        sending = np.flatnonzero(named(lambda name: name in _BROADCASTS, ANNOTATION, OP))
        sends = slices.mask(slices.spans(sending, forward).slice)
        spans = slices.spans(packing, forward)
        sent = sends[spans.slice]
        return union(spans.start[sent], spans.end[sent])
