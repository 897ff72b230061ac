"""DL006: DataLoader workers are restarted at every epoch."""

from __future__ import annotations

import math

from msgspec import Struct

from traceopt.analyzer.run_log.loaders import Loader
from traceopt.rules import (
    Effort,
    Evidence,
    Facts,
    Findings,
    Fix,
    Location,
    Risk,
    Rule,
    SetArguments,
    by_site,
    counted,
    ms,
    percent,
    site_locations,
    threshold,
    us,
    whole_run_saving,
)
from traceopt.rules.fixes.advice.loading.loader_plans import loader_rows


class WorkerRestart(Rule):
    """Measures the time to stop the workers of a DataLoader at the end of an epoch, to start new ones, and to wait for
    their first batch, as far as that wait exceeds building one batch. The cost is spread over the steps between
    restarts. Loaders of one kind that are read in turn are each started once: that is no restart.

    Why it costs: each worker is a new process. It is forked with the parent's memory, or (with spawn) imports the
    program again. It opens the data again and builds its first batch while the queue is empty. Runs with short epochs
    pay this often, and so do runs that evaluate every few steps.

    How to fix: keep the workers alive.

        loader = DataLoader(dataset, num_workers=8, persistent_workers=True)

    A loader must live as long as its workers: build it once, outside the loop over epochs. `traceopt run` counts the
    loaders that a script constructs. If each start of workers is for a new loader, `persistent_workers` changes
    nothing. If the training process can also build the batches of such a loader in less time than it takes to start and
    stop its workers, as for the clients of a federated training, the advice is `num_workers=0`.

    When it is wrong: persistent workers keep their memory and their copy of the dataset. An epoch number that the
    parent sets on the dataset does not reach them. In a run with long epochs the cost is small, and the rule stays
    silent.

    Sources: PyTorch documentation of DataLoader, argument persistent_workers.
    """

    code = "DL006"
    name = "worker-restart"
    title = "Keep data loader workers alive between epochs"
    family = "input pipeline"
    effort = Effort.ONE_LINE
    risk = Risk.MEMORY
    risk_note = "Workers keep their memory"
    requires = ("settings", "ledger")

    min_share: float = threshold(0.01, "smallest cost, spread over all steps, as a share of the step, to report")

    def applies(self, facts: Facts) -> str | None:
        workers = any(loader.num_workers for loader in facts.captured.loaders)
        return None if workers else "No DataLoader with worker processes was recorded."

    def check(self, facts: Facts) -> Findings:
        ledger = facts.captured.ledger
        costs = _costs(facts)
        if ledger is None or not costs:
            return
        low, est, high = (
            sum(getattr(cost, name) / cost.steps for cost in costs) for name in ("low_ns", "est_ns", "high_ns")
        )
        inline = all(cost.better_inline for cost in costs)
        inline_ns = sum(cost.all_inline_ns / cost.steps for cost in costs) if inline else 0.0
        saved = whole_run_saving(
            facts,
            ledger,
            max(0.0, low - inline_ns),
            max(0.0, est - inline_ns),
            high,
            "All restarts of the run, spread over the steps between them: the time to stop and start the processes, "
            "plus the wait for the first batch beyond the time to build one"
            + (", less the time to build all batches in the training process." if inline else "."),
        )
        if saved.share < self.min_share:
            return
        count = sum(cost.restarts for cost in costs)
        stop_start_ns, blocked_ns, building_ns = (
            sum(getattr(cost, name) for cost in costs) for name in ("low_ns", "high_ns", "all_inline_ns")
        )
        rows = loader_rows(facts)
        sites = by_site(facts, rows)
        title, fix = _fix(costs, inline)
        yield self.finding(
            title=title,
            risk=Risk.NONE if inline else None,
            why=(
                f"The workers were restarted {counted(count, 'time')}, about once every "
                f"{max(cost.every for cost in costs):,.0f} steps. A restart blocks the loop for "
                f"{ms(blocked_ns / count)}: {ms(stop_start_ns / count)} to stop and start the processes, then the wait "
                f"for the first batch. On average, this costs {ms(est)} per step."
                + (" Each start is for a new DataLoader." if all(cost.rebuilt for cost in costs) else "")
                + (f" It takes {ms(building_ns / count)} to build all batches of one." if inline else "")
            ),
            saving=saved,
            evidence=[
                Evidence(
                    f"{cost.restarts} restarts of {cost.workers} workers",
                    us(cost.high_ns / cost.steps),
                    round(cost.restarts / cost.steps, 4),
                    f"about every {cost.every:,.0f} steps",
                )
                for cost in costs
            ],
            locations=[cost.place for cost in costs if cost.place is not None] or site_locations(sites, 1),
            fix=fix,
        )

    def passed(self, facts: Facts) -> str:
        ledger = facts.captured.ledger
        costs = _costs(facts)
        if ledger is None or not costs:
            return "The workers were started only once."
        share = sum(cost.high_ns for cost in costs) / max(1, int(ledger.step_ns.sum()))
        return f"Restarting workers takes {percent(share)} of the run."


class _Cost(Struct, frozen=True):
    """Cost of all restarts of one loader. Low: processes only. High: with the whole wait for the first batch."""

    workers: int
    restarts: int
    steps: int  # that the restarts are spread over
    low_ns: float
    est_ns: float
    high_ns: float
    inline_ns: float  # to build the batches of one start in the training process; infinite if unknown
    rebuilt: bool  # each start is for a new DataLoader, whose workers cannot persist
    place: Location | None  # of the loader's construction

    @property
    def every(self) -> float:
        """Steps from one restart to the next."""
        return self.steps / self.restarts

    @property
    def all_inline_ns(self) -> float:
        return self.restarts * self.inline_ns

    @property
    def better_inline(self) -> bool:
        return self.rebuilt and self.all_inline_ns < self.low_ns


def _costs(facts: Facts) -> list[_Cost]:
    count = facts.captured.ledger.count if facts.captured.ledger is not None else 0
    return [cost for loader in facts.captured.loaders if (cost := _cost(loader, count)) is not None]


def _cost(loader: Loader, count: int) -> _Cost | None:
    """`count`: steps of the run."""
    if loader.persistent_workers or not loader.num_workers or not loader.restarts:
        return None
    build_ns = loader.build.batch_ns if loader.build is not None else 0.0
    low = est = high = 0.0
    for before, start in loader.restarts:
        processes = (before.end_ns or 0) + start.start_ns
        first = start.first_batch_ns or 0
        low += processes
        est += processes + max(0.0, first - build_ns)
        high += processes + first
    return _Cost(
        loader.num_workers,
        len(loader.restarts),
        _steps(loader, count),
        low,
        est,
        high,
        build_ns * (loader.batches or 0) / len(loader.starts) or math.inf,
        loader.rebuilt,
        loader.built.site if loader.built is not None else None,
    )


def _steps(loader: Loader, count: int) -> int:
    """The steps from the first start to the last, or to the end of the run if no restart came for a longer time: else
    the cost of a restart would depend on when the run was ended.
    """
    first, last = loader.starts[0].step, loader.starts[-1].step
    regular = count - last <= (last - first) / len(loader.restarts)
    return max(1, (last if regular else count) - first)


def _fix(costs: list[_Cost], inline: bool) -> tuple[str | None, Fix]:
    """The title, None for the rule's own, and the fix."""
    if inline:
        return "Load short epochs without worker processes", Fix(
            "Build the batches in the training process: each loader reads too few to pay for starting workers.",
            edits=[SetArguments("DataLoader", {"num_workers": "0"})],
        )
    if any(cost.rebuilt for cost in costs):
        return "Build the data loader once, with persistent workers", Fix(
            "Build each DataLoader once, outside the loop over epochs, with persistent_workers=True. A new loader "
            "starts new workers, even with this argument."
        )
    return None, Fix(
        "Keep the workers alive between epochs, and build the DataLoader once, outside the loop over epochs.",
        edits=[SetArguments("DataLoader", {"persistent_workers": "True"})],
    )
