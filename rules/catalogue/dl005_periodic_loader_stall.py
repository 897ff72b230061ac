"""DL005: steps wait for data in turns, as many apart as there are workers."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from msgspec import Struct

from traceopt.analyzer.arrays.percentiles import median
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.tables.schema import I8
from traceopt.result.finding import Evidence, Fix
from traceopt.result.quantities import ms, percent
from traceopt.result.rounding import us
from traceopt.rules.advice.loader_workers import loader_rows, plan_loader
from traceopt.rules.evidence import by_site, site_locations
from traceopt.rules.rule import Findings, Rule, threshold
from traceopt.rules.savings.whole_run import judged_steps, mean_step_ns, whole_run_saving


class PeriodicLoaderStall(Rule):
    """Measures over all steps of the run the waits for data that come every so many steps as the loader has workers,
    with hardly any wait in between.

    Why it costs: all workers begin at the same time and take equally long. When that is longer than the steps that
    their batches feed, the loop runs through the batches and then waits for the next round. The median step shows
    nothing of it; the run pays for every round.

    How to fix: what makes the workers keep up: more of them, or cheaper items.

        DataLoader(dataset, num_workers=12, prefetch_factor=4, persistent_workers=True)

    A larger prefetch_factor only bridges rounds of varying length: workers that are too slow on average empty every
    queue.

    When it is wrong: what happens at an interval that is the number of workers by chance (logging, evaluation) slows
    the same steps, but not inside the loader, which alone is measured here.

    Sources: PyTorch documentation, "torch.utils.data": the batches of an epoch are given to the workers in turn.
    """

    code: ClassVar[str] = "DL005"
    name: ClassVar[str] = "periodic-loader-stall"
    title: ClassVar[str] = "Let the workers of the data loader keep up"
    family: ClassVar[str] = "input pipeline"
    effort: ClassVar[str] = "One line"
    risk: ClassVar[str] = "More CPU memory"
    requires: ClassVar[tuple[str, ...]] = ("settings", "ledger")

    min_share: float = threshold(0.03, "smallest cost, as a share of the median step, to report")
    min_regular: float = threshold(0.6, "share of the waits that must be as many steps apart as there are workers")
    min_rounds: int = threshold(3, "waits needed to speak of a period")

    def applies(self, facts: Facts) -> str | None:
        workers = _workers(facts)
        if workers is None or _waits(facts) is None:
            return "No DataLoader with worker processes was watched."
        return "A single worker has no turns." if workers == 1 else None

    def check(self, facts: Facts) -> Findings:
        ledger, workers, waits = facts.captured.ledger, _workers(facts), _waits(facts)
        if ledger is None or workers is None or waits is None or not len(waits.round):
            return
        apart = np.diff(waits.round)
        plan = plan_loader(facts, float(waits.wait_ns.mean()), waits.rest_ns)
        period = round(workers / plan.fetches)
        regular = float(np.mean(apart == period)) if len(apart) else 0.0
        if len(waits.round) < self.min_rounds or period < 2 or regular < self.min_regular:
            return
        cost_ns = float(waits.wait_ns.mean()) - max(waits.quick_ns, facts.stalls.typical_ns("data_loading"))
        saved = whole_run_saving(
            facts,
            ledger,
            0.7 * cost_ns,
            cost_ns,
            cost_ns,
            "The waits of the whole run beyond that of the median step, spread over all steps; down to 70% of them "
            "where handing batches over costs time.",
        )
        if saved.share < self.min_share:
            return
        rows = loader_rows(facts)
        sites = by_site(facts, rows, facts.slices.end[rows] - facts.slices.start[rows])
        yield self.finding(
            why=(
                f"Every {period} steps, when each of the {workers} workers has delivered, the loop waits "
                f"{ms(waits.long_ns)} for data; in between {ms(waits.quick_ns)}. Over the run that is {ms(cost_ns)} a "
                "step."
            ),
            saving=saved,
            evidence=[
                Evidence(
                    "long waits for data",
                    us(float(waits.wait_ns[waits.long].sum()) / len(waits.wait_ns)),
                    round(len(waits.round) / len(waits.wait_ns), 3),
                    f"in {len(waits.round)} of {len(waits.wait_ns)} steps, {regular:.0%} of them {period} apart",
                )
            ],
            locations=site_locations(sites, 1),
            fix=Fix(plan.advice, plan.code),
            shares_cause_with=["DL001", "EF002"],
        )

    def passed(self, facts: Facts) -> str:
        ledger, waits = facts.captured.ledger, _waits(facts)
        if ledger is None or waits is None:
            return "No waits to compare."
        share = float(waits.wait_ns.mean()) / max(1.0, mean_step_ns(ledger))
        return f"Waiting for data takes {percent(share)} of the run's steps, without costly turns of the workers."


class _Waits(Struct, frozen=True):
    """The time in the loader of steps inside an epoch, ns; `round`: the numbers of those that wait far longer."""

    wait_ns: I8
    rest_ns: float  # of the median step
    long: I8  # indices into wait_ns
    round: I8

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
    """Of the training's loader; None without."""
    loader = facts.captured.training_loader
    return loader.num_workers or None if loader is not None else None
