"""A rank as a stage of a pipeline: its schedule, how long it computes, and how long it waits for other stages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from msgspec import Struct

from traceopt.analyzer.arrays.intervals import union
from traceopt.analyzer.communication.parallelism import PIPELINE
from traceopt.analyzer.communication.process_groups import ProcessGroup
from traceopt.analyzer.communication.stage_waits import StageWaits
from traceopt.analyzer.timeline.call_tree import ANNOTATION
from traceopt.analyzer.timeline.regions import Regions
from traceopt.analyzer.timeline.steps import Steps
from traceopt.analyzer.vocabulary.phases.pipeline_actions import PipelineAction, pipeline_action

Schedule = Literal["GPipe", "1F1B", "GPipe or 1F1B", "interleaved", "zero bubble"]


class PipelineStage(Struct, frozen=True):
    """What one rank does in a pipeline. Times in ns of the mean step."""

    ranks: tuple[int, ...]  # of the pipeline; empty: not recorded
    size: int  # number of these ranks
    order: tuple[PipelineAction, ...]  # what it does in a step
    compute_ns: float  # without the optimizer's
    bubble_ns: float  # waiting for other stages

    @property
    def micro_batches(self) -> int:
        return len({one.micro_batch for one in self.order if one.kind == "F"})

    @property
    def chunks(self) -> int:
        """Parts of the model that the rank holds."""
        return len({one.stage for one in self.order})

    @property
    def schedule(self) -> Schedule:
        if any(one.kind == "W" for one in self.order):
            return "zero bubble"
        if self.chunks > 1:
            return "interleaved"
        first_backward = next(at for at, one in enumerate(self.order) if one.kind != "F")
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
    regions: Regions, steps: Steps, waits: StageWaits, groups: Sequence[ProcessGroup]
) -> PipelineStage | None:
    """None unless forward and backward are annotated, the rank sends or receives, and its pipeline's size is known."""
    group = next((one for one in groups if one.parallelism == PIPELINE and one.size > 1), None)
    order = _order(regions, steps) if len(waits.rows) and group is not None else ()
    if group is None or {one.kind for one in order} <= {"F"}:
        return None
    work, updates = regions.gpu.work, regions.work_under(regions.optimizer)
    rows = np.flatnonzero(regions.gpu.is_compute & ~updates)
    return PipelineStage(
        ranks=group.ranks,
        size=group.size,
        order=order,
        compute_ns=steps.mean_ns(union(work.start[rows], work.end_of(rows))),
        bubble_ns=waits.total_ns / steps.count,
    )


def _order(regions: Regions, steps: Steps) -> tuple[PipelineAction, ...]:
    """The actions of the first step with most of them, in order of time."""
    slices = regions.slices
    rows = np.flatnonzero(regions.named(lambda name: pipeline_action(name) is not None, ANNOTATION))
    rows = rows[np.argsort(slices.start[rows], kind="stable")]
    step = steps.host_step_of(slices.start[rows])
    fullest = np.bincount(step[step >= 0], minlength=1).argmax()
    named = (pipeline_action(regions.trace.names[code]) for code in slices.name[rows[step == fullest]].tolist())
    return tuple(one for one in named if one is not None)
