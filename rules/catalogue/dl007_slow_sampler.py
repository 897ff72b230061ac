"""DL007: the sampler of a DataLoader takes much of the wait for data, and workers do not run it."""

from __future__ import annotations

import numpy as np

from traceopt.analyzer.vocabulary.causes.table import DATA_LOADING
from traceopt.rules import (
    I8,
    Facts,
    Findings,
    Fix,
    Rule,
    area_of,
    by_calling_site,
    each_step,
    functions_inside,
    ms,
    percent,
    priced_host,
    site_evidence,
    the_step,
    threshold,
)

# Of the time, low and expected: choosing the next batch from a list takes next to none, a new iterator is rarely made.
ORDER_REMOVED, ITERATORS_REMOVED = (0.4, 0.8), (0.7, 0.95)
ONE_ITERATOR = Fix(
    "Make the iterator once, before the loop, and take the next batch from it in each step. Make a new one at the end "
    "of the data. If each step is meant to get the same batch, read it once, before the loop.",
    "def forever(loader):\n    while True:\n        yield from loader\n\n"
    "batches = forever(loader)  # before the loop\nx, y = next(batches)       # in it, not next(iter(loader))",
)
ONE_ORDER = Fix(
    "Compute the batches of an epoch once, with NumPy, and let the sampler return one after the other.",
    "batches = np.array_split(np.argsort(lengths), len(lengths) // size)  # once per epoch",
)


class SlowSampler(Rule):
    """Measures the sampler of a DataLoader: the code that chooses which samples come next, such as a batch sampler that
    groups samples of similar length. On a GPU only the time in which the GPU waits counts. If each batch is read from a
    new iterator, as `next(iter(loader))` does in each step, the time to make the iterator counts, too.

    Why it costs: the sampler runs in the main process, also with worker processes. What it computes for each batch
    delays the step. A new iterator shuffles the whole data set, of which one batch is read, and starts new workers.

    How to fix: compute the order of an epoch once, with NumPy, and let the sampler read it.

        def __iter__(self):
            order = np.argsort(self.lengths + self.rng.random(len(self.lengths)))  # similar lengths together
            batches = np.array_split(order, len(self))
            self.rng.shuffle(batches)
            yield from (batch.tolist() for batch in batches)

    If each batch is read from a new iterator, make the iterator once. An order that is computed once is no fix there:
    each new iterator would begin with the same batch.

        def forever(loader):
            while True:
                yield from loader

        batches = forever(loader)    # before the loop
        x, y = next(batches)         # in each step, not next(iter(loader))

    When it is wrong: the next batch may depend on the losses of the last one, as in hard example mining. The profiler
    slows Python, so the sampler takes less time without it.

    Sources: PyTorch documentation, "torch.utils.data": data loading order and Sampler.
    """

    code = "DL007"
    name = "slow-sampler"
    title = "Compute the order of the samples once per epoch"
    family = "input pipeline"
    confidence = "medium"
    requires = ("work", "whole", "stacks")

    min_share: float = threshold(0.03, "smallest time of the sampler, as a share of the step, to report")

    def applies(self, facts: Facts) -> str | None:
        return None if len(facts.host.rows_of(DATA_LOADING)) else "No DataLoader in this trace."

    def check(self, facts: Facts) -> Findings:
        calls, cost_ns = _calls_and_costs(facts)
        stall, fresh = float(cost_ns.sum()) / facts.steps.count, facts.fresh_iterators
        if stall < self.min_share * facts.step_ns:
            return
        sites = [] if len(fresh) else functions_inside(facts, calls)
        what = "A new iterator and its order" if len(fresh) else "The sampler"
        low, expected = ITERATORS_REMOVED if len(fresh) else ORDER_REMOVED
        takes = f"takes {ms(stall)} of {each_step(facts)}."
        yield self.finding(
            title="Make the iterator of the data loader once" if len(fresh) else None,
            why=(
                f"Each batch is read from a new iterator of the data loader. Making it, with its new order, {takes}"
                if len(fresh)
                else f"The sampler of the data loader {takes} It runs in the main process, with or without workers."
            ),
            saving=priced_host(
                facts,
                area_of(facts, calls),
                stall,
                (low, expected, 1.0),
                f"Assumes the fix removes {percent(low)}, {percent(expected)} or 100% of this time.",
            ),
            evidence=site_evidence(facts, sites or by_calling_site(facts, calls, cost_ns), what, 1),
            fix=ONE_ITERATOR if len(fresh) else ONE_ORDER,
        )

    def passed(self, facts: Facts) -> str:
        share = percent(float(_calls_and_costs(facts)[1].sum()) / facts.steps.window_ns)
        what = (
            "New iterators of the data loader take"
            if len(facts.fresh_iterators)
            else "The sampler of the data loader takes"
        )
        return f"{what} {share} of {the_step(facts)}."


def _calls_and_costs(facts: Facts) -> tuple[I8, I8]:
    """Where the main thread chooses samples, or makes an iterator for each batch: slices, and the time of each in ns;
    on a GPU only while it waits.
    """
    calls = np.sort(np.concatenate([facts.sampler_calls, facts.fresh_iterators]))
    return calls, facts.stalled_within(facts.slices.start[calls], facts.slices.end[calls])
