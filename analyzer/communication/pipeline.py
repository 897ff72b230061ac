"""A rank as a stage of a pipeline: its schedule, how long it computes, and how long it waits for other stages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from msgspec import Struct

from traceopt.analyzer.arrays.intervals import Intervals
from traceopt.analyzer.communication.parallelism import PIPELINE
from traceopt.analyzer.communication.process_groups import ProcessGroup
from traceopt.analyzer.communication.stage_waits import StageWaits
from traceopt.analyzer.tables.json_values import listed
from traceopt.analyzer.tables.schema import I8, Mask
from traceopt.analyzer.tables.trace import Trace
from traceopt.analyzer.timeline.call_tree import ANNOTATION, OP
from traceopt.analyzer.timeline.regions import Regions
from traceopt.analyzer.timeline.steps import Steps
from traceopt.analyzer.vocabulary import op_names
from traceopt.analyzer.vocabulary.phases.pipeline_actions import ActionKind, PipelineAction, pipeline_action

Schedule = Literal["GPipe", "1F1B", "GPipe or 1F1B", "interleaved", "zero bubble"]
_PEER = 2  # of the arguments of c10d::send and c10d::recv_


class PipelineStage(Struct, frozen=True):
    """What one rank does in a pipeline. Times in ns of the mean step."""

    ranks: tuple[int, ...]  # of the pipeline; empty: not recorded
    size: int  # number of these ranks
    order: tuple[PipelineAction, ...]  # what it does in a step
    compute_ns: float  # without the optimizer's
    bubble_ns: float  # waiting for other stages

    @property
    def micro_batches(self) -> int:
        return len({action.micro_batch for action in self.order if action.kind == "F"})

    @property
    def chunks(self) -> int:
        """Parts of the model that the rank holds."""
        return len({action.stage for action in self.order})

    @property
    def schedule(self) -> Schedule:
        if any(action.kind == "W" for action in self.order):
            return "zero bubble"
        if self.chunks > 1:
            return "interleaved"
        first_backward = next(at for at, action in enumerate(self.order) if action.kind != "F")
        if first_backward < self.micro_batches:
            return "1F1B"
        return "GPipe" if self.micro_batches > self.size else "GPipe or 1F1B"

    def least_ns(self, micro_batches: int | None = None, chunks: int | None = None) -> float:
        """The bubble of the schedule if all stages compute as long as this one, transfers take no time, and a backward
        pass takes twice the time of the forward (Narayanan et al., 2021; Qi et al., 2023). With other micro-batches of
        the same batch, or other chunks, if they are given.
        """
        count = micro_batches or self.micro_batches
        others: float = self.size - 1
        if self.schedule == "zero bubble":
            others = (others + max(0, self.size - count)) / 3
        return self.compute_ns * others / (count * (chunks or self.chunks))

    @property
    def doubling_saves_ns(self) -> float:
        """What twice as many micro-batches of half the size save."""
        return self._saves_ns(self.least_ns(micro_batches=2 * self.micro_batches))

    @property
    def interleaving_saves_ns(self) -> float:
        """What twice as many chunks of half the layers save."""
        return self._saves_ns(self.least_ns(chunks=2 * self.chunks))

    def _saves_ns(self, least_ns: float) -> float:
        return min(self.bubble_ns, self.least_ns() - least_ns)


def find_pipeline_stage(
    regions: Regions, steps: Steps, waits: StageWaits, groups: Sequence[ProcessGroup], compute: Intervals
) -> PipelineStage | None:
    """None unless the size of the pipeline is known, and the order of forward and backward passes: by annotations, or
    by the neighbors that the rank sends to and receives from. `compute`: without the optimizer's.
    """
    group = next((group for group in groups if group.parallelism == PIPELINE and group.size > 1), None)
    if group is None:
        return None
    order = _annotated(regions, steps) or _by_neighbors(regions, steps, group.ranks)
    kinds = {action.kind for action in order}
    if "F" not in kinds or kinds == {"F"}:
        return None
    return PipelineStage(
        ranks=group.ranks,
        size=group.size,
        order=order,
        compute_ns=steps.mean_ns(compute),
        bubble_ns=waits.total_ns / steps.count,
    )


def _annotated(regions: Regions, steps: Steps) -> tuple[PipelineAction, ...]:
    rows = _in_fullest_step(regions.named(lambda name: pipeline_action(name) is not None, ANNOTATION), regions, steps)
    named = (pipeline_action(regions.trace.names[code]) for code in regions.slices.name[rows].tolist())
    return tuple(action for action in named if action is not None)


def _by_neighbors(regions: Regions, steps: Steps, ranks: tuple[int, ...]) -> tuple[PipelineAction, ...]:
    """The order on a rank with one chunk, numbered as they come. A forward begins with what the stage before sends, a
    backward with what the next one sends; those of the first and of the last stage end with what they send themselves.

    Empty if the rank has other peers, or exchanges data at the same time, as the ranks of a ring do.
    """
    trace, rank = regions.trace, regions.trace.meta.rank
    rows = _in_fullest_step(regions.named(op_names.is_point_to_point, OP), regions, steps)
    peers = [_peer(trace, code) for code in trace.ops.concrete[regions.slices.row[rows]].tolist()]
    if rank not in ranks or not peers:
        return ()
    own = ranks.index(rank)
    if any(peer is None or abs(peer - own) != 1 for peer in peers):
        return ()
    receives = [op_names.is_receive(trace.names[code]) for code in regions.slices.name[rows].tolist()]
    forward_from = (True, own - 1) if own else (False, 1)
    backward_from = (True, own + 1) if own < len(ranks) - 1 else (False, own - 1)
    kinds: dict[tuple[bool, int | None], ActionKind] = {forward_from: "F", backward_from: "B"}
    found = [kinds[call] for call in zip(receives, peers, strict=True) if call in kinds]
    count = {kind: found.count(kind) for kind in ("F", "B")}
    ahead = min(count["F"], len(ranks) - own)
    if not count["F"] or count["F"] != count["B"] or "B" in found[:ahead]:
        return ()
    number = {"F": iter(range(count["F"])), "B": iter(range(count["B"]))}
    return tuple(PipelineAction(kind, 0, next(number[kind])) for kind in found)


def _peer(trace: Trace, concrete: int) -> int | None:
    """The other rank of `c10d::send`, counted in the group; None: not recorded."""
    values = listed(trace.texts[concrete]) if concrete >= 0 else None
    peer = values[_PEER] if values is not None and len(values) > _PEER else None
    return int(peer) if isinstance(peer, str) and peer.isdecimal() else None


def _in_fullest_step(mask: Mask, regions: Regions, steps: Steps) -> I8:
    """The slices of the mask in the first step with most of them, in order of time."""
    slices = regions.slices
    rows: I8 = np.flatnonzero(mask)
    rows = rows[np.argsort(slices.start[rows], kind="stable")]
    step = steps.host_step_of(slices.start[rows])
    fullest: I8 = rows[step == np.bincount(step[step >= 0], minlength=1).argmax()]
    return fullest
