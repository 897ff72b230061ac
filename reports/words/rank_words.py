"""Ranks in sentences."""

from __future__ import annotations

from traceopt.result.document import Result
from traceopt.result.rows import CommunicationGroup
from traceopt.result.words import quantities

MOST_RANKS_OF_GROUP = 4  # listed one by one
RANKS_DIFFER_SHARE = 0.05  # of the step: with less, the ranks take the same time


def rank_phrase(result: Result) -> str | None:
    run = result.run
    if run.shown_rank is None:
        return None
    total = run.world_size or len(run.ranks)
    return f"rank {run.shown_rank} of {total}" if total > 1 else f"rank {run.shown_rank}"


def span_of_ranks(result: Result) -> str | None:
    """ "12.5–18.7 ms": the step of the fastest and of the slowest rank; None if all take about the same time, or if
    only one step was recorded, which begins on each rank when its recording begins.
    """
    if result.step.count < 2:
        return None
    times = [row.step_us for row in result.ranks if row.step_us is not None and row.engine is None]
    if not times or max(times) <= (1 + RANKS_DIFFER_SHARE) * min(times):
        return None
    return quantities.from_to(quantities.ms_of_us(min(times)), quantities.ms_of_us(max(times)), "–")


def ranks_missing(result: Result) -> str:
    """ "7 of 8 ranks are missing": communication cannot be judged as with all of them; empty if none is."""
    world, known = result.run.world_size or 0, len(result.run.ranks)
    if not 0 < known < world:
        return ""
    return f"{world - known:,} of {world:,} ranks {'is' if world - known == 1 else 'are'} missing"


def ranks_of_group(group: CommunicationGroup) -> str | None:
    """ "0–7", "0, 4, 8, 12" or "0, 8, …, 56 (8)": the members of a group; its size alone if they are unknown."""
    ranks = group.ranks
    if not ranks:
        return None if group.size is None else quantities.counted(group.size, "rank")
    if len(ranks) > 2 and ranks == list(range(ranks[0], ranks[-1] + 1)):
        return f"{ranks[0]}–{ranks[-1]}"
    if len(ranks) <= MOST_RANKS_OF_GROUP:
        return ", ".join(map(str, ranks))
    return f"{ranks[0]}, {ranks[1]}, …, {ranks[-1]} ({len(ranks)})"
