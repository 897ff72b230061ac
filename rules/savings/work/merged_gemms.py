"""What merging consecutive matmuls saves: fewer and fuller waves of thread blocks, fewer launches."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceopt.analyzer.facts import Facts
from traceopt.analyzer.replay.changes import Change, MergeKernels
from traceopt.analyzer.tables.schema import I8
from traceopt.analyzer.timeline.call_tree import OP
from traceopt.analyzer.work.gemms import GemmShape
from traceopt.result.finding import Evidence, Location
from traceopt.rules.evidence import location_of
from traceopt.rules.savings.roofline import memory_ns, peak_caveat

MERGED_PEAK_SHARE = 0.5  # of the peak: the least to expect from a matmul of the merged size


class MergedGemms(Struct, frozen=True):
    """One run of calls, and the time that one merged call would take, over the window."""

    calls: I8
    now_ns: int  # kernels, and GPU idle time for launches between them
    starved_ns: int
    merged_ns: float

    @property
    def gain_ns(self) -> float:
        return max(0.0, self.now_ns - self.merged_ns)


def merged(facts: Facts, runs: Sequence[I8]) -> list[MergedGemms]:
    """A MergedGemms for each run with recorded thread blocks; none if the device's multiprocessor count is unknown.

    A matmul that leaves multiprocessors idle takes as long as one of its thread blocks. The merged call runs the blocks
    of all calls in full waves, each as long as the longest wave now. The roofline is the lower bound.
    """
    gemm_calls, units = facts.gemm_calls, facts.device.multiprocessors
    if units is None or not runs:
        return []
    first, last = (np.array([run[end] for run in runs]) for end in (0, -1))
    starved = facts.gaps.starved.within(gemm_calls.start[first], gemm_calls.end[last]).tolist()
    rooflines: dict[tuple[int, ...], float] = {}  # the same runs repeat in every step
    out = []
    for run, starved_ns in zip(runs, starved, strict=True):
        blocks, busy = gemm_calls.blocks[run], gemm_calls.busy_ns[run]
        if (blocks <= 0).any():
            continue
        wave_ns = float((busy / -(-blocks // units)).max())
        shapes = tuple(gemm_calls.shape[run].tolist())
        if shapes not in rooflines:
            rooflines[shapes] = _roofline_ns(facts, [facts.gemms.shapes[shape] for shape in shapes])
        after = max(wave_ns * -(-int(blocks.sum()) // units), rooflines[shapes])
        out.append(MergedGemms(run, int(busy.sum()) + starved_ns, starved_ns, after))
    return out


def roofline(facts: Facts, merges: list[MergedGemms]) -> str:
    """ "the roofline", with a caveat if a peak is unverified or from the user's settings."""
    shapes = facts.gemm_calls.shape
    used = {facts.gemms.shapes[shape].dtype for merge in merges for shape in shapes[merge.calls].tolist()}
    return f"the roofline{peak_caveat(facts, 'hbm_gb_per_s', *used)}"


def _roofline_ns(facts: Facts, shapes: list[GemmShape]) -> float:
    accelerator = facts.device.accelerator
    peak = accelerator.peak(shapes[0].dtype) if accelerator else None
    if not peak:
        return 0.0
    flops = sum(shape.flops / shape.calls for shape in shapes)
    traffic = sum(memory_ns(facts, shape, shape.dtype) / shape.calls for shape in shapes)
    return max(flops / (peak * MERGED_PEAK_SHARE * 1e3), traffic)


def may_depend(sizes: npt.NDArray[np.int64]) -> bool:
    """Whether a call could use the previous call's result: its M x N as the next M x K or K x N."""
    return bool(((sizes[:, 1] == sizes[:, 2]) | (sizes[:, 0] == sizes[:, 2])).any())


def describe(facts: Facts, merges: list[MergedGemms], limit: int = 5) -> list[Evidence]:
    """One row per kind of run, largest saving first."""
    gemm_calls, count = facts.gemm_calls, facts.steps.count
    kinds: dict[tuple[object, ...], list[MergedGemms]] = {}
    for merge in merges:
        kinds.setdefault((_words(gemm_calls.of(int(merge.calls[0]))), len(merge.calls)), []).append(merge)
    rows = sorted(kinds.items(), key=lambda item: -sum(one.gain_ns for one in item[1]))
    return [
        Evidence(
            what=f"{calls} x {words}",
            us_per_step=round(sum(one.now_ns for one in alike) / count / 1e3, 3),
            calls_per_step=round(len(alike) / count, 3),
            detail=f"{int(gemm_calls.blocks[alike[0].calls[0]])} thread blocks each on {facts.device.multiprocessors} "
            "multiprocessors",
            location=place(facts, int(alike[0].calls[0])),
        )
        for (words, calls), alike in rows[:limit]
    ]


def place(facts: Facts, call: int) -> Location | None:
    """The user's line behind a call."""
    return location_of(facts, int(facts.slices.of(OP, len(facts.trace.ops))[facts.gemm_calls.row[call]]))


def _words(shape: GemmShape) -> str:
    batch = f"{shape.batch} x " if shape.batch > 1 else ""
    return f"{shape.op} {batch}{shape.m}x{shape.n}x{shape.k} {shape.dtype}"


def as_one(facts: Facts, merges: list[MergedGemms], share: float) -> list[Change]:
    """Merges each run into one call, with a share of the saving in kernel time and launches. A share above 1 includes
    the backward pass.
    """
    gemm_calls = facts.gemm_calls
    group_of_op, factor = np.full(len(facts.trace.ops) + 1, -1), np.ones(len(merges))
    for number, one in enumerate(merges):
        group_of_op[gemm_calls.row[one.calls]] = number
        busy = max(1, one.now_ns - one.starved_ns)
        factor[number] = 1 - share * max(0.0, 1 - one.merged_ns / busy)
    return [MergeKernels(group_of_op[facts.gemms.owner], np.maximum(factor, 0), min(share, 1.0))]
