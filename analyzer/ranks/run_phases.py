"""The phases of reinforcement learning in a run whose processes have different tasks, and the idle GPUs in each."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from traceopt.analyzer.arrays.intervals import Intervals, clip, merge
from traceopt.analyzer.attribution.rl_phases import is_rl
from traceopt.analyzer.ranks.rank_phases import RankPhases
from traceopt.analyzer.vocabulary.phases.rl_phases import PHASES, PhaseName
from traceopt.result.finding import Location

MIN_COMMON = 0.5  # of the shortest recording that all processes must have recorded


class RunPhase(Struct, frozen=True):
    """The time in which any process is in the phase, as a share of the time that all processes recorded.

    `ranks`: the processes that are ever in it. `idle_gpus`: how many of the run's `gpus` are idle on average during the
    phase; None without GPU work. `idle_of_rank`: the idle share of each process with a GPU, by its index.
    """

    name: PhaseName
    ranks: list[int]
    share: float
    gpus: int
    idle_gpus: float | None
    idle_of_rank: dict[int, float]
    place: Location | None


def find_run_phases(ranks: Sequence[RankPhases | None], trains: Sequence[bool]) -> list[RunPhase]:
    """The phases in the order of a step. None if all processes have the same phases, or if this is no reinforcement
    learning: together they have a rollout and something that only follows one, or a process that does not train marks
    rollouts, and one that trains marks training.
    """
    marked = {index: phases for index, phases in enumerate(ranks) if phases is not None}
    kinds = {frozenset(phases.names) for phases in marked.values()}
    if len(kinds) < 2:
        return []
    generates = any("rollout" in phases.names and not trains[index] for index, phases in marked.items())
    learns = any("train" in phases.names and trains[index] for index, phases in marked.items())
    if not is_rl(frozenset().union(*kinds)) and not (generates and learns):
        return []
    begin = max(phases.recorded_from for phases in marked.values())
    end = min(phases.recorded_to for phases in marked.values())
    shortest = min(phases.recorded_to - phases.recorded_from for phases in marked.values())
    if end - begin < MIN_COMMON * shortest:
        return []
    phases = (_phase(name, marked, begin, end) for name in PHASES)
    return [phase for phase in phases if phase is not None]


def _phase(name: PhaseName, marked: dict[int, RankPhases], begin: int, end: int) -> RunPhase | None:
    areas = {index: clip(phases.area(name), begin, end) for index, phases in marked.items()}
    together: Intervals = merge(*areas.values())
    if not together.total:
        return None
    idle_ns = {index: one.idle_ns(together) for index, one in marked.items()}
    idle = {index: spent / together.total for index, spent in idle_ns.items() if spent is not None}
    mine = [index for index, area in areas.items() if len(area)]
    return RunPhase(
        name=name,
        ranks=mine,
        share=together.total / (end - begin),
        gpus=len(idle),
        idle_gpus=sum(idle.values()) if idle else None,
        idle_of_rank=idle,
        place=next((marked[index].places[name] for index in mine if name in marked[index].places), None),
    )
