"""Ranks in sentences."""

from __future__ import annotations

from collections.abc import Sequence

from traceopt.result.document import Result
from traceopt.result.sections.rank_rows import CommunicationGroup, RunRanks, SlowRanks
from traceopt.result.words import quantities

_CAUSES = {"data": "waiting for data", "gc": "collecting garbage"}
_ALONE = {"evaluation": ("evaluates", "evaluate"), "checkpoints": ("saves checkpoints", "save checkpoints")}

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
    if not group.ranks:
        return None if group.size is None else quantities.counted(group.size, "rank")
    return listed_ranks(group.ranks)


def listed_ranks(ranks: Sequence[int]) -> str:
    """ "3", "0–7", "0, 4, 8, 12" or "0, 8, …, 56 (8)"."""
    if len(ranks) > 2 and list(ranks) == list(range(ranks[0], ranks[-1] + 1)):
        return f"{ranks[0]}–{ranks[-1]}"
    if len(ranks) <= MOST_RANKS_OF_GROUP:
        return ", ".join(map(str, ranks))
    return f"{ranks[0]}, {ranks[1]}, …, {ranks[-1]} ({len(ranks)})"


def slow_ranks(result: Result, where_more: str = "The report") -> str | None:
    """ "Rank 3 was slow in steps 400 to 899, 1.4 times the others' median: 6% of the run."; None if no rank was.
    `where_more`: what has the others.
    """
    run = result.whole_run.ranks if result.whole_run is not None else None
    if run is None or not run.slow:
        return None
    slow = [row for row in run.slow if row.late_us_per_step is not None]  # before those that alone evaluate or save
    first, *others = slow or run.slow[:1]
    more = f" {where_more} has {quantities.counted(len(others), 'more slow period')}." if others else ""
    return f"{_slow(first, run)}{more}"


def _slow(row: SlowRanks, run: RunRanks) -> str:
    several, of_run = len(row.ranks) > 1, f"{quantities.percent(row.share)} of the run"
    who, were = who_is_slow(row), "were" if several else "was"
    where = f"in steps {row.first_step:,} to {row.last_step:,}"
    if row.last_step >= run.steps - 1:
        from_start = row.first_step < run.first_steps[1]
        where = "in the whole run" if from_start else f"from step {row.first_step:,} to the end"
    if row.late_us_per_step is None:
        one, many = _ALONE[row.cause or "evaluation"]
        return f"Only {quantities.in_sentence(who)} {many if several else one}: {of_run}."
    cause = f", {_CAUSES[row.cause]}" if row.cause in _CAUSES else ""
    if row.ratio is not None:
        return f"{who} {were} slow {where}, {row.ratio:.2g} times the others' median{cause}: {of_run}."
    late = quantities.ms_of_us(row.late_us_per_step)
    return f"{who} came {late} late to the backward pass {where}{cause}, and the other ranks waited: {of_run}."


def who_is_slow(row: SlowRanks) -> str:
    """ "Rank 3", "Ranks 8–15 (one machine)"."""
    return f"{named_ranks(row.ranks)} (one machine)" if row.is_node else named_ranks(row.ranks)


def named_ranks(ranks: Sequence[int]) -> str:
    """ "Rank 3", "Ranks 8–15"."""
    return f"Rank{'s' if len(ranks) > 1 else ''} {listed_ranks(ranks)}"


def why_slow(row: SlowRanks) -> str:
    """What the ranks do meanwhile; empty if that is not known."""
    alone = {
        cause: f"only {'they' if len(row.ranks) > 1 else 'it'} {words[len(row.ranks) > 1]}"
        for cause, words in _ALONE.items()
    }
    return {**_CAUSES, **alone}.get(row.cause or "", "")
