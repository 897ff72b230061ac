"""DL005: the loop waits for data periodically, once per round of the loader workers."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from traceopt.analyzer.vocabulary.causes.table import DATA_LOADING
from traceopt.rules import (
    I8,
    Effort,
    Evidence,
    Facts,
    Findings,
    Fix,
    Risk,
    Rule,
    by_site,
    mean_step_ns,
    median,
    ms,
    percent,
    site_locations,
    threshold,
    us,
    whole_run_saving,
)
from traceopt.rules.fixes.advice.constructed import loader_places
from traceopt.rules.fixes.advice.loading.loader_plans import loader_rows, plan_loader
from traceopt.rules.savings.whole_run import judged_steps


class PeriodicLoaderStall(Rule):
    """Measures waits for data that recur once per round of the loader workers, with hardly any wait in between. The
    rule looks at all steps of the run.

    Why it costs: all workers start at the same time and take equally long. If building a batch takes longer than the
    steps that one round of batches feeds, the loop uses the batches up and then waits for the next round. The median
    step does not show this, but the run pays for every round.

    How to fix: help the workers keep up, with more workers or cheaper items.

        DataLoader(dataset, num_workers=12, prefetch_factor=4, persistent_workers=True)

    A larger prefetch_factor only evens out rounds of varying length. Workers that are too slow on average empty every
    queue.

    When it is wrong: other work may recur at the same interval by chance (logging, evaluation). It slows the same
    steps, but outside the loader, and the rule measures only time inside the loader.

    Sources: PyTorch documentation, "torch.utils.data": the batches of an epoch are assigned to the workers in turn.
    """

    code = "DL005"
    name = "periodic-loader-stall"
    title = "Help the data loader workers keep up"
    family = "input pipeline"
    effort = Effort.ONE_LINE
    risk = Risk.MEMORY
    risk_note = "More CPU memory"
    requires = ("settings", "ledger")

    min_share: float = threshold(0.03, "smallest cost, as a share of the step, to report")
    min_regular: float = threshold(0.6, "smallest share of long waits that are one round of the workers apart")
    min_rounds: int = threshold(3, "fewest long waits that count as periodic")

    def applies(self, facts: Facts) -> str | None:
        workers = _workers(facts)
        if workers is None or _waits(facts) is None:
            return "No DataLoader with worker processes was recorded."
        return "The loader has a single worker, so there are no rounds of workers." if workers == 1 else None

    def check(self, facts: Facts) -> Findings:
        ledger, workers, waits = facts.captured.ledger, _workers(facts), _waits(facts)
        if ledger is None or workers is None or waits is None or not len(waits.long_steps):
            return
        apart = np.diff(waits.long_steps)
        plan = plan_loader(facts, float(waits.wait_ns.mean()), waits.rest_ns)
        period = round(workers / plan.fetches)
        regular = float(np.mean(apart == period)) if len(apart) else 0.0
        if len(waits.long_steps) < self.min_rounds or period < 2 or regular < self.min_regular:
            return
        cost_ns = float(waits.wait_ns.mean()) - max(waits.quick_ns, facts.stalls.typical_ns(DATA_LOADING))
        saved = whole_run_saving(
            facts,
            ledger,
            0.7 * cost_ns,
            cost_ns,
            cost_ns,
            "The run's waits beyond the usual wait, spread over all steps; 70% of them if receiving "
            "batches from workers costs time.",
        )
        if saved.share < self.min_share:
            return
        stalled, steps = len(waits.long_steps), len(waits.wait_ns)
        rows = loader_rows(facts)
        sites = by_site(facts, rows)
        yield self.finding(
            why=(
                f"Every {period} steps, after a batch from each of the {workers} workers, the loop waits "
                f"{ms(waits.long_ns)} for data. In between it waits {ms(waits.quick_ns)}. Averaged over the run, this "
                f"costs {ms(cost_ns)} per step."
            ),
            saving=saved,
            evidence=[
                Evidence(
                    "Long waits for data",
                    us(float(waits.wait_ns[waits.long].sum()) / steps),
                    round(stalled / steps, 3),
                    f"{stalled} of {steps} steps, {percent(regular)} of them {period} steps apart",
                )
            ],
            locations=[*loader_places(facts), *site_locations(sites, 1)],
            fix=Fix(plan.advice, edits=plan.edits),
            shares_cause_with=["DL001", "EF002"],
        )

    def passed(self, facts: Facts) -> str:
        ledger, waits = facts.captured.ledger, _waits(facts)
        if ledger is None or waits is None:
            return "No waits to compare."
        share = float(waits.wait_ns.mean()) / max(1.0, mean_step_ns(ledger))
        return f"Waiting for data takes {percent(share)} of the run's step time, with no costly periodic waits."


class _Waits(Struct, frozen=True):
    """Time in the loader of steps inside an epoch, ns."""

    wait_ns: I8
    rest_ns: float  # of the median step, outside the loader
    long: I8  # indices into wait_ns of the steps that wait far longer
    long_steps: I8  # their step numbers

    @property
    def long_ns(self) -> float:
        return float(self.wait_ns[self.long].mean())

    @property
    def quick_ns(self) -> float:
        return median(np.delete(self.wait_ns, self.long))


def _waits(facts: Facts) -> _Waits | None:
    ledger, loader = facts.captured.ledger, facts.captured.training_loader
    if ledger is None or ledger.fetch_ns is None or loader is None:
        return None
    steps = np.setdiff1d(judged_steps(ledger), [start.step for start in loader.starts])
    if not len(steps):
        return None
    wait = ledger.fetch_ns[steps]
    long = np.flatnonzero(wait > wait.mean())
    if len(long) and median(wait[long]) < 3 * median(np.delete(wait, long)):
        long = long[:0]
    return _Waits(wait, median(ledger.step_ns[steps] - wait), long, steps[long])


def _workers(facts: Facts) -> int | None:
    """Worker processes of the training loader; None if it has none."""
    loader = facts.captured.training_loader
    return loader.num_workers or None if loader is not None else None
