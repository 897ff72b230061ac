"""DL009: worker processes of a DataLoader cost more than building the batches in the training process would."""

from __future__ import annotations

from traceopt.analyzer.vocabulary.causes.table import DATA_LOADING
from traceopt.rules import (
    Effort,
    Facts,
    Findings,
    Fix,
    RemoveHost,
    Rule,
    SetArguments,
    area_of,
    by_site,
    each_step,
    ms,
    percent,
    priced,
    site_evidence,
    site_locations,
    the_step,
    threshold,
)
from traceopt.rules.fixes.advice.constructed import loader_places
from traceopt.rules.fixes.advice.loader_workers import loader_rows, loading_plan

LOW, HIGH = 1.5, 0.5  # times the time to build a batch: the training process may have other data in its caches


class WorkersForTinyItems(Rule):
    """Measures how long the training loop waits for batches of worker processes, and compares it with the time that a
    worker takes to build them. `traceopt run` records the latter.

    Why it costs: each batch of a worker goes through shared memory and a queue. The training process must receive,
    unpack and map it. On few cores, workers also take time from the model. If an item takes microseconds, that is more
    than the work that it saves.

    How to fix: build the batches in the training process.

        loader = DataLoader(dataset, batch_size=64, num_workers=0)

    Remove `persistent_workers` and `prefetch_factor` too: a DataLoader without workers rejects them. If the items are
    rows of tensors in memory, DL008 makes batches cheaper still.

    When it is wrong: some batches may take much longer to build than others. Their time is then a part of the step. A
    machine with more free cores may hide what it costs to send a batch, but not what it costs to receive it.

    Sources: PyTorch documentation, "torch.utils.data": single- and multi-process data loading.
    """

    code = "DL009"
    name = "workers-for-tiny-items"
    title = "Build batches in the training process"
    family = "input pipeline"
    effort = Effort.ONE_LINE
    confidence = "medium"
    requires = ("work", "whole", "settings")

    min_share: float = threshold(0.03, "smallest expected saving, as a share of the step, to report")

    def applies(self, facts: Facts) -> str | None:
        if not len(facts.host.rows_of(DATA_LOADING)):
            return "No DataLoader in this trace."
        return None if loading_plan(facts).inline_ns is not None else "No worker processes built batches."

    def check(self, facts: Facts) -> Findings:
        stall_ns, inline_ns = facts.stalls.typical_ns(DATA_LOADING), loading_plan(facts).inline_ns
        if inline_ns is None or stall_ns - inline_ns < self.min_share * facts.step_ns:
            return
        rows = loader_rows(facts)
        sites = by_site(facts, rows, facts.stalled_within(facts.slices.start[rows], facts.slices.end[rows]))
        low, expected, high = (max(0.0, stall_ns - times * inline_ns) for times in (LOW, 1.0, HIGH))
        area = area_of(facts, rows)
        yield self.finding(
            why=(
                f"The loop waits {ms(stall_ns)} of {each_step(facts)} for batches of worker processes. Building them "
                f"takes only {ms(inline_ns)}; the rest is sending and receiving them."
            ),
            saving=priced(
                facts,
                (low, expected, high),
                [RemoveHost(area, expected / stall_ns)],
                "Assumes that the training process builds a batch as fast as a worker does. The range "
                f"covers {LOW} and {HIGH} times that time.",
                low=[RemoveHost(area, low / stall_ns)],
                high=[RemoveHost(area, high / stall_ns)],
            ),
            evidence=site_evidence(facts, sites),
            locations=[*loader_places(facts), *site_locations(sites, 2)],
            fix=Fix(
                "Build the batches in the training process, without the arguments that only workers need.",
                edits=[SetArguments("DataLoader", {"num_workers": "0"})],
            ),
            shares_cause_with=["DL006", "DL008"],
        )

    def passed(self, facts: Facts) -> str:
        share = percent(facts.stalls.typical_ns(DATA_LOADING) / facts.step_ns)
        return (
            f"Waiting for batches of workers takes {share} of {the_step(facts)}, which is not more than building them."
        )
