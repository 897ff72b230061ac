"""The steps of one rank over its whole run, in stretches of equal length: small enough to compare a thousand ranks."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from traceopt.analyzer.run_log.run_settings import Captured
from traceopt.analyzer.run_log.step_ledger import Ledger
from traceopt.analyzer.tables.schema import F8, I8

MOST_STRETCHES = 256
MANY = 8  # steps of a stretch: its longest one may be a pause, and is left out of its mean
DATA_PARALLEL = "DistributedDataParallel"  # in the class of a model: no rank waits for another before its backward pass


class RankHistory(Struct, frozen=True):
    """Arrays have a value for each stretch of `width` steps, from step 0 on. `usual` counts the steps without a
    profiler, over which `step_ns` (without evaluations and saves), `until_backward_ns`, `fetch_ns` and `gc_ns` are
    means. `save_ns` and `eval_ns` are sums over all steps.

    `until_backward_ns` and `fetch_ns` are zeros if they were not recorded, or the host runs ahead of its GPU, which
    hides them.
    """

    width: int
    steps: int
    run_ns: int
    ranks_per_node: int
    usual: I8
    step_ns: I8
    until_backward_ns: I8
    fetch_ns: I8
    gc_ns: I8
    save_ns: I8
    eval_ns: I8


def rank_history(captured: Captured) -> RankHistory | None:
    """None without a ledger that `traceopt run` kept."""
    ledger = captured.ledger
    if ledger is None or not len(ledger.usual):
        return None
    width = 1
    while len(ledger.step_ns) > MOST_STRETCHES * width:
        width *= 2
    parallel = any(DATA_PARALLEL in (model.class_name or "") for model in captured.models)
    until_backward_ns = ledger.until_backward_ns if parallel and not ledger.host_runs_ahead else None
    fetch_ns = None if ledger.host_runs_ahead else ledger.fetch_ns
    stretches = _Stretches(ledger, width)
    return RankHistory(
        width=width,
        steps=len(ledger.step_ns),
        run_ns=ledger.whole_run.total_ns,
        ranks_per_node=captured.environment.local_world_size or 1,
        usual=stretches.usual,
        step_ns=stretches.means(ledger.paced_ns),
        until_backward_ns=stretches.means(until_backward_ns),
        fetch_ns=stretches.means(fetch_ns),
        gc_ns=stretches.means(ledger.gc_ns),
        save_ns=stretches.sums(ledger.save_ns),
        eval_ns=stretches.sums(ledger.eval_ns),
    )


class _Stretches:
    def __init__(self, ledger: Ledger, width: int) -> None:
        self._steps = ledger.usual
        self._of = np.arange(len(ledger.step_ns)) // width
        self.usual = np.bincount(self._of[self._steps], minlength=int(self._of[-1]) + 1)

    def means(self, values: I8 | None) -> I8:
        """Over the steps without a profiler; 0 if there are none."""
        if values is None:
            return np.zeros(len(self.usual), np.int64)
        many, longest = self.usual >= MANY, np.zeros(len(self.usual), np.int64)
        np.maximum.at(longest, self._of[self._steps], values[self._steps])
        sums = self._summed(self._of[self._steps], values[self._steps]) - many * longest
        return (sums / np.maximum(1, self.usual - many)).astype(np.int64)

    def sums(self, values: I8) -> I8:
        return self._summed(self._of, values).astype(np.int64)

    def _summed(self, of: I8, values: I8) -> F8:
        return np.asarray(np.bincount(of, weights=values, minlength=len(self.usual)))
