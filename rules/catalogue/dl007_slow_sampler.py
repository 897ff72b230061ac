"""DL007: the sampler of a DataLoader takes much of the wait for data, and workers do not run it."""

from __future__ import annotations

from traceopt.analyzer.vocabulary.causes.table import DATA_LOADING
from traceopt.rules import (
    Facts,
    Findings,
    Fix,
    RemoveHost,
    Rule,
    area_of,
    by_calling_site,
    each_step,
    functions_inside,
    ms,
    percent,
    places,
    priced,
    site_evidence,
    the_step,
    threshold,
)

LOW, EXPECTED = 0.4, 0.8  # of the sampler's time: choosing the next batch from a list takes next to none


class SlowSampler(Rule):
    """Measures the sampler of a DataLoader: the code that chooses which samples come next, such as a batch sampler that
    groups samples of similar length. On a GPU only the time in which the GPU waits counts.

    Why it costs: the sampler runs in the main process, also with worker processes. What it computes for each batch
    delays the step.

    How to fix: compute the order of an epoch once, with NumPy, and let the sampler read it.

        def __iter__(self):
            order = np.argsort(self.lengths + self.rng.random(len(self.lengths)))  # similar lengths together
            batches = np.array_split(order, len(self))
            self.rng.shuffle(batches)
            yield from (batch.tolist() for batch in batches)

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
        stall = _stall_ns(facts)
        if stall < self.min_share * facts.step_ns:
            return
        calls = facts.sampler_calls
        cost_ns = facts.stalled_within(facts.slices.start[calls], facts.slices.end[calls])
        sampler = functions_inside(facts, calls)
        evidence = site_evidence(facts, sampler or by_calling_site(facts, calls, cost_ns), "The sampler", 1)
        area = area_of(facts, calls)
        yield self.finding(
            why=(
                f"The sampler of the data loader takes {ms(stall)} of {each_step(facts)}. It runs in the main process, "
                "with or without workers."
            ),
            saving=priced(
                facts,
                (LOW * stall, EXPECTED * stall, stall),
                [RemoveHost(area, EXPECTED)],
                f"Assumes the fix removes {percent(LOW)}, {percent(EXPECTED)} or 100% of the sampler's time.",
                low=[RemoveHost(area, LOW)],
                high=[RemoveHost(area)],
            ),
            evidence=evidence,
            locations=places(evidence),
            fix=Fix(
                "Compute the batches of an epoch once, with NumPy, and let the sampler return one after the other.",
                "batches = np.array_split(np.argsort(lengths), len(lengths) // size)  # once per epoch",
            ),
        )

    def passed(self, facts: Facts) -> str:
        return f"The sampler of the data loader takes {percent(_stall_ns(facts) / facts.step_ns)} of {the_step(facts)}."


def _stall_ns(facts: Facts) -> float:
    """Per step; on a GPU, while it waits."""
    calls = facts.sampler_calls
    stalled = facts.stalled_within(facts.slices.start[calls], facts.slices.end[calls])
    return float(stalled.sum()) / facts.steps.count
