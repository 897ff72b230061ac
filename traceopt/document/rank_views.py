"""The other ranks that the report can show: their steps and spans, the ranks that findings name first."""

from __future__ import annotations

from collections.abc import Iterator

from traceopt.analyzer.ranks.run_facts import RunFacts
from traceopt.document.merge import MergedRun
from traceopt.document.timeline.spans import MOST_LETTERS
from traceopt.result.document import RankView, Result

MOST_WITH_SPANS = 3  # ranks that are certain to have room in the report; more have if they have few spans
MOST_VIEWS = 15  # ranks besides the shown one


def rank_views(merged: MergedRun, run: RunFacts, result: Result) -> list[RankView]:
    """As many ranks as have room together with the spans of the shown one."""
    if len(run.ranks) < 2 or result.timeline is None or result.timeline.table is None:
        return []
    left = MOST_LETTERS - len(result.timeline.table.columns)
    views: list[RankView] = []
    late = _late(run)
    for rank in dict.fromkeys([*late, *_worth_a_look(result)]):
        part = None if rank == result.run.shown_rank else merged.view(rank)
        step, timeline = (None, None) if part is None else part.unpacked()
        if step is None or timeline is None or timeline.table is None:
            continue
        left -= len(timeline.table.columns)
        if left < 0 or len(views) == MOST_VIEWS:
            break
        views.append(RankView(rank, rank in late, step, timeline.table))
    return views


def _worth_a_look(result: Result) -> Iterator[int]:
    """Ranks: those of findings that the shown rank does not have, the slowest, all."""
    for finding in result.findings:
        if result.run.shown_rank not in finding.ranks:
            yield from finding.ranks
    slowest_first = sorted(result.ranks, key=lambda row: -(row.step_us or 0.0))
    yield from (row.rank for row in slowest_first[:1] if row.rank is not None)
    yield from result.run.ranks


def _late(run: RunFacts) -> list[int]:
    """The ranks for which the others wait."""
    run = run.without_engines
    late = None if run.straggler is None else run.straggler.ranks
    return [rank for index in late or [] if (rank := run.ranks[index].rank) is not None]
