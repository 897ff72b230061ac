"""What a fused optimizer saves where one of torch.optim runs foreach operators."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from traceopt.analyzer.arrays.intervals import Intervals, union
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.replay.changes import RemoveHost
from traceopt.analyzer.tables.schema import I8, Mask
from traceopt.analyzer.timeline.call_tree import OP
from traceopt.rules.savings.price import Price
from traceopt.rules.savings.pricing import priced, shorter
from traceopt.rules.savings.roofline import HBM_SHARE, peak_caveat
from traceopt.rules.savings.starvation import host_bounds

# Bytes that one pass moves per FP32 parameter: each value is read once and written once.
FUSED_BYTES = {"Adam": 28, "AdamW": 28, "SGD": 20, "Adagrad": 20}


class ForeachOptimizer(Struct, frozen=True):
    """The foreach operators of an optimizer that has a fused version, on the thread that launches its kernels."""

    class_name: str
    rows: I8
    kernels: Mask

    def per_step(self, facts: Facts) -> float:
        return len(self.rows) / facts.steps.count

    def area(self, facts: Facts) -> Intervals:
        return union(facts.slices.start[self.rows], facts.slices.end[self.rows])

    def price(self, facts: Facts) -> Price:
        spans = facts.slices.spans(self.rows, facts.regions.optimizer)
        from_first_to_last = union(spans.start, spans.end)
        gpu_ns = float(facts.gpu.in_window[self.kernels].sum()) / facts.steps.count
        share = 1 - 1 / max(1.0, self.per_step(facts))
        more_ns = max(0.0, gpu_ns - _fused_ns(facts, self.class_name))
        return priced(
            facts,
            host_bounds(facts, from_first_to_last, share, (0.0, more_ns)),
            [RemoveHost(self.area(facts), share)],
            f"Assumes one operator replaces {self.per_step(facts):.0f} foreach operators. The high end also removes "
            "the host time between them and the kernel time beyond one pass over the parameters"
            f"{peak_caveat(facts, 'hbm_gb_per_s')}.",
            high=[RemoveHost(from_first_to_last), *shorter(facts, self.kernels, more_ns)],
        )


def foreach_optimizer(facts: Facts, class_name: str) -> ForeachOptimizer | None:
    """The foreach operators that an optimizer of this class runs, if PyTorch has a fused version of it."""
    rows = np.flatnonzero(facts.regions.named(lambda name: name.startswith("aten::_foreach_"), OP))
    rows = rows[facts.slices.ancestor(rows, facts.regions.optimizer) >= 0].astype(np.int64)
    if class_name not in FUSED_BYTES or not len(rows):
        return None
    kernels = facts.gpu.is_kernel & facts.regions.work_under(facts.regions.optimizer) & facts.gpu.is_inside
    return ForeachOptimizer(class_name, rows[facts.slices.thread[rows] == facts.steps.thread], kernels)


def _fused_ns(facts: Facts, class_name: str) -> float:
    """Time of one pass over the recorded parameters at memory bandwidth; 0 if either is unknown."""
    accelerator = facts.device.accelerator
    bandwidth = accelerator.hbm_gb_per_s if accelerator is not None else None
    counts = [o.parameters or 0 for o in facts.captured.optimizers if (o.class_name or "").endswith(f".{class_name}")]
    return sum(counts) * FUSED_BYTES[class_name] / (bandwidth * HBM_SHARE) if bandwidth else 0.0
