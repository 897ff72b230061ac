"""Runs of fusible kernels on a stream: what a fusing compiler could make one kernel of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from traceopt.analyzer.gpu import GpuWork

MAX_GAIN = 0.75  # of a chain's time: long chains also hold kernels that cannot be merged


@dataclass(frozen=True, slots=True)
class Chains:
    """Runs of at least two kernels. `mask` marks their kernels among the device's work; times in ns over the window."""

    mask: npt.NDArray[np.bool_]
    count: int
    kernels: int
    time_ns: int
    fused_gain_ns: int  # what is saved when of each chain only its longest kernel's time remains


def find_chains(gpu: GpuWork, fusible: npt.NDArray[np.bool_]) -> Chains:
    """`fusible` marks kernels; a chain is a run of them on one stream with no other work between."""
    work = gpu.work
    order = np.lexsort((work.start, work.stream))
    duration = gpu.in_window[order]
    candidate = fusible[order] & (duration > 0)
    stream = work.stream[order]
    starts = candidate & ~(np.append(False, candidate[:-1]) & np.append(False, stream[1:] == stream[:-1]))
    chain = np.cumsum(starts) * candidate  # 0: in no chain
    length = np.bincount(chain)
    in_chain = candidate & (length[chain] >= 2)
    total = np.bincount(chain[in_chain], weights=duration[in_chain], minlength=len(length))
    longest = np.zeros(len(length))
    np.maximum.at(longest, chain[in_chain], duration[in_chain])
    gain = np.minimum(total - longest, MAX_GAIN * total)
    mask = np.zeros(len(work), bool)
    mask[order[in_chain]] = True
    return Chains(mask, int((length[1:] >= 2).sum()), int(in_chain.sum()), int(total.sum()), int(gain.sum()))
