"""Chains of fusible kernels on a stream, which a fusing compiler could turn into one kernel."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceopt.analyzer.timeline.gpu_work import GpuWork

MAX_GAIN = 0.75  # of a chain's time: long chains also contain kernels that cannot be merged


class Chains(Struct, frozen=True):
    """Chains of at least two kernels; counts and times (ns) are those in the window, `group` goes beyond it."""

    mask: npt.NDArray[np.bool_]  # the device's work inside the window that is part of a chain
    group: npt.NDArray[np.int64]  # number of the chain for each row of the device's work; -1: none
    count: int
    kernels: int
    time_ns: int
    fused_gain_ns: int  # time saved if only the longest kernel's time of each chain remains


def find_chains(
    gpu: GpuWork, fusible: npt.NDArray[np.bool_], step: npt.NDArray[np.int64], op: npt.NDArray[np.integer]
) -> Chains:
    """`fusible` marks kernels, `step` is the step of each, and `op` its operator's name, -1: unknown. A chain is a run
    of fusible kernels in one step, on one stream, without other work between them. One kernel of one operator again and
    again is no chain: it may work on one tensor after the other, which cannot be merged.
    """
    work = gpu.work
    order = np.lexsort((work.start, work.queue))
    duration = gpu.step_ns[order]
    candidate = fusible[order] & (work.duration[order] > 0)
    stream, step = work.queue[order], step[order]
    together = np.append(False, (stream[1:] == stream[:-1]) & (step[1:] == step[:-1]))
    starts = candidate & ~(np.append(False, candidate[:-1]) & together)
    chain = np.cumsum(starts) * candidate  # 0: in no chain
    op, name = op[order], work.name[order]
    first = np.append(0, np.flatnonzero(starts))[chain]  # row of the chain's first kernel
    other = (op != op[first]) | (op < 0) | (name != name[first])
    varied = np.bincount(chain, weights=other, minlength=1) > 0
    in_chain = candidate & varied[chain] & (np.bincount(chain)[chain] >= 2)
    total = np.bincount(chain[in_chain], weights=duration[in_chain], minlength=len(varied))
    longest = np.zeros(len(varied))
    np.maximum.at(longest, chain[in_chain], duration[in_chain])
    gain = np.minimum(total - longest, MAX_GAIN * total)
    group = np.full(len(work), -1)
    group[order[in_chain]] = np.unique(chain[in_chain], return_inverse=True)[1]
    mask = (group >= 0) & gpu.is_inside
    return Chains(mask, group, int((total > 0).sum()), int(mask.sum()), int(total.sum()), int(gain.sum()))
