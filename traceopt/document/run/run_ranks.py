"""The steps of all ranks over the whole run: a picture of a bounded size, and the ranks that are slow."""

from __future__ import annotations

import numpy as np

from traceopt.analyzer.ranks.run_facts import RunFacts
from traceopt.analyzer.tables.schema import F8
from traceopt.result.sections.rank_rows import RanksOfRun, RunRanks, SlowRanks
from traceopt.result.words.rounding import share, us

MOST_STRETCHES, MOST_ROWS = 128, 64  # of the picture
DECIMALS = 3  # of how much longer a step takes


def run_ranks(run: RunFacts) -> RunRanks | None:
    """None unless all ranks have a step ledger."""
    history = run.history
    if history is None:
        return None
    numbers = [rank.rank or 0 for rank in run.without_engines.ranks]
    order = np.argsort(numbers, kind="stable")
    ranks, stretches = history.longer.shape
    joined, together = -(-ranks // MOST_ROWS), -(-stretches // MOST_STRETCHES)
    slowest = np.maximum.reduceat(history.longer[order], np.arange(0, ranks, joined), axis=0)
    shares = (_means(values, together).tolist() for values in (history.eval_share, history.save_share))
    evaluation, checkpoint = (list(map(share, values)) for values in shares)
    return RunRanks(
        steps=history.steps,
        first_steps=list(range(0, history.steps, history.width * together)),
        us=[None if np.isnan(ns) else us(ns) for ns in _means(history.step_ns, together)],
        rows=[
            RanksOfRun(
                [numbers[index] for index in order[row * joined : (row + 1) * joined]],
                [None if np.isnan(value) else round(float(value), DECIMALS) for value in values],
            )
            for row, values in enumerate(_means(slowest, together))
        ],
        evaluation_share=evaluation,
        checkpoint_share=checkpoint,
        slow=[
            SlowRanks(
                ranks=sorted(numbers[index] for index in slow_rank.ranks),
                is_node=slow_rank.is_node,
                first_step=slow_rank.first_step,
                last_step=slow_rank.last_step,
                late_us_per_step=None if slow_rank.late_ns is None else us(slow_rank.late_ns),
                ratio=None if slow_rank.ratio is None else round(slow_rank.ratio, DECIMALS),
                share=share(slow_rank.share),
                cause=slow_rank.cause,
            )
            for slow_rank in history.slow
        ],
    )


def _means(values: F8, together: int) -> F8:
    """Means of so many neighboring values of a row that are known; NaN where none is."""
    edges, known = np.arange(0, values.shape[-1], together), ~np.isnan(values)
    counts = np.add.reduceat(known, edges, axis=-1, dtype=np.int64)
    sums = np.add.reduceat(np.where(known, values, 0.0), edges, axis=-1)
    return np.where(counts > 0, sums / np.maximum(1, counts), np.nan)
