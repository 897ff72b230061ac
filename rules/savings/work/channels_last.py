"""What channels_last saves: transposes around convolutions, and batch norms that read their tensors poorly."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt

from traceopt.analyzer.facts import Facts
from traceopt.analyzer.tables.schema import Mask
from traceopt.analyzer.timeline.call_tree import OP
from traceopt.analyzer.vocabulary import op_names
from traceopt.analyzer.vocabulary.causes.work_kinds import DEPTHWISE_CONVOLUTIONS, work_kind
from traceopt.result.finding import Evidence
from traceopt.result.words.message import percent
from traceopt.rules.savings.price import Price
from traceopt.rules.savings.pricing import hide, priced
from traceopt.rules.savings.roofline import peak_caveat
from traceopt.rules.savings.work.precision import kernel_evidence

# At worst, as expected, at best: the share of the transposes that goes, and the share of the peak memory bandwidth that
# batch norms reach with channels last (docs/accuracy.md, nchw_conv on an H100: 47% over both passes).
TRANSPOSES = (0.5, 0.9, 1.0)
BANDWIDTH = (0.3, 0.45, 0.6)


class ChannelsLast:
    """Times in ns of the device's work inside the window."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self.transposes: Mask = facts.gpu.kind.among("layout") & facts.gpu.is_inside
        accelerator = facts.device.accelerator
        self._bandwidth = accelerator.hbm_gb_per_s if accelerator else None

    @property
    def transposes_ns(self) -> float:
        """Per step, from the first start to the last end where they overlap."""
        return self._facts.gpu.spent_ns(self.transposes) / self._facts.steps.count

    @property
    def batch_norms_ns(self) -> float:
        """Time per step of the batch norms that would be faster."""
        return float(self._facts.gpu.in_window[self._slow_batch_norms].sum() / self._facts.steps.count)

    @cached_property
    def depthwise(self) -> Mask:
        """Depthwise convolutions by PyTorch's own kernels, which it calls for NCHW tensors alone."""
        gpu, names = self._facts.gpu, self._facts.trace.names
        own = np.array([work_kind("", name) is DEPTHWISE_CONVOLUTIONS for name in names] or [False])
        return np.asarray(gpu.is_kernel & gpu.is_inside & own[gpu.work.name])

    @property
    def depthwise_ns(self) -> float:
        """Per step."""
        return self._facts.gpu.spent_ns(self.depthwise) / self._facts.steps.count

    @cached_property
    def undone_share(self) -> float:
        """Of the convolutions: those behind a padding that gives a channels-first tensor. A copy would follow it."""
        regions = self._facts.regions
        convolutions = regions.named(lambda name: name == "aten::convolution", OP)
        paddings = regions.named(op_names.is_channels_first_padding, OP)
        outermost = self._facts.slices.outermost(paddings) if paddings.any() else ()
        return min(1.0, len(outermost) / max(1, int(convolutions.sum())))

    def price(self) -> Price:
        facts, count = self._facts, self._facts.steps.count
        kept = 1 - self.undone_share
        gains = [kept * self._gains(*shares) for shares in zip(TRANSPOSES, BANDWIDTH, strict=True)]
        low, expected, high = (hide(facts, np.flatnonzero(gain > 0), gain[gain > 0]) for gain in gains)
        least_ns, usual_ns, most_ns = (float(gain.sum() / count) for gain in gains)
        basis = "Assumes 50%, 90% or 100% of the transposes' time goes away; some remain if an operator needs NCHW."
        if self.batch_norms_ns:
            low_share, usual_share, high_share = map(percent, BANDWIDTH)
            basis += (
                f" Batch norms then reach {low_share}, {usual_share} or {high_share} of the memory bandwidth"
                f"{peak_caveat(facts, 'hbm_gb_per_s')}."
            )
        return priced(facts, (least_ns, usual_ns, most_ns), expected, basis, low=low, high=high)

    def evidence(self) -> list[Evidence]:
        return kernel_evidence(self._facts, self.transposes | self._slow_batch_norms)

    @cached_property
    def _slow_batch_norms(self) -> Mask:
        return self._of_batch_norms(BANDWIDTH[1]) > 0

    def _gains(self, transposes: float, bandwidth: float) -> npt.NDArray[np.float64]:
        """What each row of the device's work saves."""
        return np.where(self.transposes, transposes * self._facts.gpu.in_window, self._of_batch_norms(bandwidth))

    def _of_batch_norms(self, share: float) -> npt.NDArray[np.float64]:
        """What each row takes longer than its call needs at this share of the peak memory bandwidth."""
        norms, time = self._facts.batch_norms, self._facts.gpu.in_window
        gains = np.zeros(len(time))
        rows = np.flatnonzero(norms.work & self._facts.gpu.is_inside)
        if self._bandwidth is None or not len(rows):
            return gains
        call = norms.call[rows]
        took = np.bincount(call, weights=time[rows], minlength=len(norms.least_bytes))
        needed = norms.least_bytes / (self._bandwidth * share)
        spared = np.divide(took - needed, took, out=np.zeros(len(took)), where=took > needed)
        gains[rows] = spared[call] * time[rows]
        return gains
