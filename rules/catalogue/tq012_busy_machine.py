"""TQ012: other programs held the cores while the run was recorded."""

from __future__ import annotations

from traceopt.rules import TRACE_QUALITY, Facts, Findings, Fix, Rule, percent, threshold


class BusyMachine(Rule):
    """Measures how long the main thread was ready to run with no core free for it, if the job itself does not need more
    threads than it has cores (PY002 reports those).

    Why it matters: operators and Python take longer by a different amount in every step, and small operators that use
    several threads take many times as long. Shares and savings are then those of the busy machine.

    How to fix: record again when nothing else runs, or reserve cores for the job.

        taskset --cpu-list 0-7 traceopt run train.py   # if other programs are kept off these cores

    When it is wrong: libraries may start more threads than PyTorch reports, so the job may wait for itself.

    Sources: Linux kernel documentation, "Scheduler statistics" (run_delay).
    """

    code = "TQ012"
    name = "busy-machine"
    title = "Record on an idle machine"
    family = TRACE_QUALITY
    requires = ("settings", "ledger")

    min_share: float = threshold(0.2, "smallest wait for a core, as a share of the run, to report")

    def applies(self, facts: Facts) -> str | None:
        if _share(facts) is None:
            return "This system does not record how long threads wait for a core."
        crowded = facts.captured.threads > (facts.captured.environment.cores or 1)
        return "The job itself has more threads than cores." if crowded else None

    def check(self, facts: Facts) -> Findings:
        share = _share(facts)
        if share is None or share < self.min_share:
            return
        yield self.finding(
            why=(
                "Other programs used the cores: the main thread was ready but waited for a free one for "
                f"{percent(share)} of the run. Times are longer than on an idle machine, and not all alike."
            ),
            fix=Fix("Record again when nothing else runs."),
        )

    def passed(self, facts: Facts) -> str:
        return f"The main thread waits for a free core for {percent(_share(facts) or 0.0)} of the run."


def _share(facts: Facts) -> float | None:
    return facts.captured.ledger.core_wait_share if facts.captured.ledger is not None else None
