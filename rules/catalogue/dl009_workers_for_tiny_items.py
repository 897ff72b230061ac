"""DL009: worker processes of a DataLoader cost more than building the batches in the training process would."""

from __future__ import annotations

from msgspec import Struct

from traceopt.analyzer.arrays.intervals import complement
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
    median,
    ms,
    percent,
    priced,
    saving,
    site_evidence,
    site_locations,
    the_step,
    threshold,
)
from traceopt.rules.fixes.advice.constructed import loader_places
from traceopt.rules.fixes.advice.loading.loader_plans import loader_rows, loader_sites, loading_plan, plan_loader
from traceopt.rules.fixes.advice.loading.loader_workers import BEST, EXPECTED, WORST, LoaderPlan

LOW, HIGH = 1.5, 0.5  # times the time to build a batch: the training process may have other data in its caches
UNLIKE = 1.25  # times the share that recorded steps wait: if the others of the run wait more, their wait counts


class WorkersForTinyItems(Rule):
    """Measures how long the training loop waits for batches of worker processes, and compares it with the time that a
    worker takes to build them. `traceopt run` records the latter, and how long the steps wait that it does not record.
    Without a GPU these waits count if they are longer: the profiler gives the workers time to get ahead of the loop.

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
        wait = _wait(facts)
        plan, inline_ns = wait.plan, wait.plan.inline_ns
        if inline_ns is None or wait.ns - inline_ns < self.min_share * wait.step_ns:
            return
        sites = loader_sites(facts)
        spared = [max(0.0, wait.ns - times * inline_ns) for times in (LOW, 1.0, HIGH)]
        relief = [plan.relief_ns(contention) for contention in (BEST, EXPECTED, WORST)]
        low, expected, high = (
            (one + other) * facts.step_ns / wait.step_ns for one, other in zip(spared, relief, strict=True)
        )
        basis = (
            "Assumes that the training process builds a batch as fast as a worker does. The range covers "
            f"{LOW} and {HIGH} times that time."
        )
        if relief[-1]:
            basis += f" Without workers beside it, the rest of the step takes up to {ms(relief[-1])} less."
        if wait.recorded:
            waiting = area_of(facts, loader_rows(facts))
            rest = complement(waiting, *facts.recorded_steps.host_span)
            changes = [
                [RemoveHost(waiting, one / wait.ns), RemoveHost(rest, other / plan.rest_ns, faster=True)]
                for one, other in zip(spared, relief, strict=True)
            ]
            price = priced(facts, (low, expected, high), changes[1], basis, low=changes[0], high=changes[2])
        else:
            price = saving(facts, low, expected, high, basis)
        yield self.finding(
            why=(
                f"{wait.where} waits {ms(wait.ns)} of each {ms(wait.step_ns)} step for batches of worker processes. "
                f"Building them takes only {ms(inline_ns)}; the rest is sending and receiving them."
            ),
            saving=price,
            evidence=site_evidence(facts, sites),
            locations=[*loader_places(facts), *site_locations(sites, 2)],
            fix=Fix(
                "Build the batches in the training process, without the arguments that only workers need.",
                edits=[SetArguments("DataLoader", {"num_workers": "0"})],
            ),
            shares_cause_with=["DL006", "DL008"],
        )

    def passed(self, facts: Facts) -> str:
        wait = _wait(facts)
        share = percent(wait.ns / wait.step_ns)
        return f"Waiting for batches of workers takes {share} of {the_step(facts)}, not more than building them."


class _Wait(Struct, frozen=True):
    """How long a step of `step_ns` waits for batches. `recorded`: the recorded steps do; else the others of the run."""

    plan: LoaderPlan
    ns: float
    step_ns: float
    recorded: bool

    @property
    def where(self) -> str:
        return "The loop" if self.recorded else "While nothing is recorded, the loop"


def _wait(facts: Facts) -> _Wait:
    """Recorded steps may wait less than the others: workers fill their queue while the profiler starts, and stay ahead
    of a loop that the profiler slows down. Only a recording shows how much of the wait a busy GPU hides.
    """
    recorded = _Wait(loading_plan(facts), facts.stalls.typical_ns(DATA_LOADING), facts.step_ns, recorded=True)
    ledger = facts.captured.ledger
    if facts.has_gpu or ledger is None or ledger.fetch_ns is None or ledger.usual_step_ns is None:
        return recorded
    wait_ns, step_ns = median(ledger.fetch_ns[ledger.usual]), ledger.usual_step_ns
    if wait_ns / step_ns < UNLIKE * recorded.ns / facts.step_ns:
        return recorded
    return _Wait(plan_loader(facts, wait_ns, step_ns - wait_ns), wait_ns, step_ns, recorded=False)
