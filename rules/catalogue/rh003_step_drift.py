"""RH003: the steps become slower during the run, or some of them are slow at regular distances."""

from __future__ import annotations

from traceopt.analyzer.run_log.step_drift import Change, Period, main_cause
from traceopt.rules import Effort, Evidence, Facts, Findings, Fix, Rule, ms, percent, size, threshold, us


class StepDrift(Rule):
    """Measures how the step times change over the whole run, recorded or not, as `traceopt run` wrote them. It looks
    for a lasting change at one step, for steps that gradually become longer, and for long steps at regular distances.
    Evaluations, torch.save and steps with a profiler are left out.

    Why it costs: a trace shows a few steps. A run that becomes slower after them takes longer than the trace says.

    How to fix: the report says whether the difference is the wait for data, garbage collection, larger batches of the
    DataLoader, or none of them, and whether memory grows meanwhile. For data, look at the loader and the storage. For
    the rest, compare two recordings, one from before and one from after the change.

        traceopt run --wait 1700 --warmup 3 --active 5 train.py     # before the change
        traceopt run --wait 1900 --warmup 3 --active 5 train.py     # after it
        traceopt compare BEFORE AFTER

    Steps that grow usually do more work: longer sequences, a list that keeps tensors, a cache that is searched.

    When it is wrong: a planned change of batch size or sequence length looks like a fault. Only one lasting change is
    looked for; a run that is slow for a while and recovers may pass. The tests are conservative: they find a change in
    at most 1 of 100 random series, autocorrelated ones included.

    Sources: A. N. Pettitt, "A non-parametric approach to the change-point problem", 1979; K. H. Hamed and A. R. Rao,
    "A modified Mann-Kendall trend test for autocorrelated data", 1998; P. K. Sen, "Estimates of the regression
    coefficient based on Kendall's tau", 1968.
    """

    code = "RH003"
    name = "step-drift"
    title = "Find out why steps become slower during the run"
    family = "run health"
    effort = Effort.DEPENDS
    confidence = "medium"
    requires = ("ledger",)

    min_share: float = threshold(0.05, "smallest difference as a share of the median step")
    crowded_share: float = threshold(0.1, "wait for a free core, as a share of the run, that may explain slower steps")

    def applies(self, facts: Facts) -> str | None:
        return "Too few steps without a profiler to judge a drift." if facts.step_drift is None else None

    def check(self, facts: Facts) -> Findings:
        drift = facts.step_drift
        if drift is None:
            return
        change = drift.change
        if change is not None and change.after_ns - change.before_ns >= self.min_share * change.before_ns:
            yield self.finding(
                why=_why(change, self._crowded(facts)),
                fix=Fix(_fix(change)),
                evidence=[
                    Evidence("Median step before", us(change.before_ns)),
                    Evidence("Median step after", us(change.after_ns)),
                    *_memory(change),
                ],
            )
        period = drift.period
        if period is not None and period.extra_ns / period.every >= self.min_share * facts.step_ns:
            yield self.finding(
                title="Find out what makes single steps slow at regular distances",
                why=_why_periodic(period),
                fix=Fix(f"Look for what the script does every {period.every:,} steps, and do it less often."),
                evidence=[Evidence("Longer than the median step by", us(period.extra_ns), period.count)],
                occasional=True,
            )

    def _crowded(self, facts: Facts) -> bool:
        ledger = facts.captured.ledger
        return ledger is not None and (ledger.core_wait_share or 0.0) >= self.crowded_share

    def passed(self, facts: Facts) -> str:
        drift = facts.step_drift
        return f"{drift.steps if drift else 0:,} steps without a profiler show no lasting change."


def _why(change: Change, crowded: bool) -> str:
    times, part = f"from {ms(change.before_ns)} to {ms(change.after_ns)}", _part(change, crowded)
    share = percent(change.after_ns / change.before_ns - 1)
    if change.step is not None:
        return f"From about step {change.step:,} on, the median step takes {share} longer: {times}. {part}"
    return f"The steps become longer during the run, by {share}: {times}. {part}"


def _part(change: Change, crowded: bool) -> str:
    match main_cause(change):
        case "data":
            return f"The wait for data grows by {ms(change.data_ns)}."
        case "gc":
            return f"Garbage collection grows by {ms(change.gc_ns)}."
        case "sample size":
            return (
                f"A sample of the batches has {change.sample_size:.2g} times as many elements as before: longer "
                "sequences, or larger inputs."
            )
        case "samples":
            return f"The batches have {change.samples:.2g} times as many samples as before."
        case "memory" if change.memory is not None:
            memory = change.memory
            return (
                f"Memory grows with them: {memory.of}, from {size(memory.before_bytes)} to {size(memory.after_bytes)}."
            )
        case _ if crowded:
            return "Other programs used the cores during the run, which may explain it."
        case _:
            return "Neither the wait for data nor garbage collection explains it."


def _fix(change: Change) -> str:
    match main_cause(change):
        case "data":
            return "Look at what the data loader reads from then on, and at the storage."
        case "gc":
            return "Find what keeps more and more Python objects alive, or call gc.freeze() after start-up."
        case "sample size" | "samples":
            return "If the growth is not planned, limit the length of sequences, or batch samples of similar length."
        case "memory":
            return "Look for a list or a cache that keeps tensors or objects of earlier steps, and for larger inputs."
        case None:
            return "Record one trace from the start and one from the end of the run (--wait), and compare them."


def _memory(change: Change) -> list[Evidence]:
    memory = change.memory
    if memory is None:
        return []
    sizes = f"{size(memory.before_bytes)} before, {size(memory.after_bytes)} after"
    return [Evidence(f"Median memory of {memory.of}", detail=sizes)]


def _why_periodic(period: Period) -> str:
    return (
        f"Every {period.every:,} steps, one takes {ms(period.extra_ns)} longer than the median step ({period.count:,} "
        f"times, first in step {period.first_step:,}). These are neither evaluations nor torch.save."
    )
