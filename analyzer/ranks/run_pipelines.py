"""The pipelines of a run: which ranks are their stages, and what equal stages would save."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import cached_property

from msgspec import Struct
from msgspec.structs import replace

from traceopt.analyzer.communication.pipeline import PipelineStage
from traceopt.analyzer.ranks.rank_summary import RankSummary
from traceopt.analyzer.vocabulary.phases.pipeline_actions import PipelineAction

_UNITS = {"F": 1, "B": 2, "I": 1, "W": 1}  # of time: a backward pass takes twice as long as the forward


class RunPipeline(Struct, frozen=True, dict=True):
    """The recorded stages of a pipeline, by index into RunFacts.ranks, in the order of the pipeline. Times in ns of the
    mean step.
    """

    stages: dict[int, PipelineStage]

    @property
    def is_whole(self) -> bool:
        return all(len(self.stages) == one.size for one in self.stages.values())

    @property
    def slowest(self) -> int:
        """The stage that computes longest: an index into RunFacts.ranks."""
        return max(self.stages, key=lambda index: self.stages[index].compute_ns)

    @property
    def mean_ns(self) -> float:
        return sum(one.compute_ns for one in self.stages.values()) / len(self.stages)

    @cached_property
    def uneven_ns(self) -> float:
        """What equal stages would save: the same schedule with the mean compute time on all ranks. 0 if the actions of
        the ranks do not go together.
        """
        orders = [
            [replace(one, stage=one.stage if stage.chunks > 1 else at) for one in stage.order]
            for at, stage in enumerate(self.stages.values())
        ]
        spent = [stage.compute_ns for stage in self.stages.values()]
        return max(0.0, _replayed_ns(orders, spent) - _replayed_ns(orders, [self.mean_ns] * len(spent)))


def _replayed_ns(orders: Sequence[Sequence[PipelineAction]], compute_ns: Sequence[float]) -> float:
    """How long the actions of all ranks take together if transfers take no time; 0 if one waits for what never comes.

    A loop, because each action begins when its rank has done those before, and its input has arrived.
    """
    done: dict[tuple[bool, int, int], float] = {}  # forward, stage, micro-batch
    produced = {_result(action) for order in orders for action in order if action.kind != "W"}
    units = [ns / sum(_UNITS[action.kind] for action in order) for order, ns in zip(orders, compute_ns, strict=True)]
    now, left = [0.0] * len(orders), [deque(order) for order in orders]
    moved = True
    while moved:
        moved = False
        for rank, queue in enumerate(left):
            while queue and ((needed := _needs(queue[0])) in done or needed not in produced):
                action = queue.popleft()
                now[rank] = max(now[rank], done.get(needed, 0.0)) + _UNITS[action.kind] * units[rank]
                if action.kind != "W":
                    done[_result(action)] = now[rank]
                moved = True
    return 0.0 if any(left) else max(now)


def _result(action: PipelineAction) -> tuple[bool, int, int]:
    return action.kind == "F", action.stage, action.micro_batch


def _needs(action: PipelineAction) -> tuple[bool, int, int]:
    """The result of another stage that an action takes in; one of its own stage for the gradients of weights."""
    apart = {"F": -1, "W": 0}.get(action.kind, 1)
    return action.kind == "F", action.stage + apart, action.micro_batch


def find_run_pipelines(ranks: Sequence[RankSummary]) -> list[RunPipeline]:
    """The pipelines whose ranks are recorded by number."""
    stage_of = {one.rank: (index, one.stage) for index, one in enumerate(ranks) if one.stage is not None}
    members = dict.fromkeys(stage.ranks for _, stage in stage_of.values())
    found = (dict(stage_of[rank] for rank in of_one if rank in stage_of) for of_one in members)
    return [RunPipeline(stages) for stages in found if stages]
