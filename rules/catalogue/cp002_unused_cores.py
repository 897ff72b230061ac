"""CP002: operators of a CPU-only run use fewer threads than there are cores."""

from __future__ import annotations

from traceopt.rules import (
    Effort,
    Evidence,
    Facts,
    Findings,
    Fix,
    Rule,
    SetVariable,
    each_step,
    ms,
    percent,
    threshold,
    us,
)
from traceopt.rules.savings.work.cpu_operators import faster

MOST_WAIT = 0.03  # of the run: with a longer wait for a core, other programs use the cores that seem free


class UnusedCores(Rule):
    """Compares the threads that one operator may use (`torch.get_num_threads()`) with the physical cores that this rank
    may use, less one for each DataLoader worker, in a run without a GPU.

    Why it costs: matmuls and convolutions divide their work among these threads, and so do all operators on tensors of
    some ten thousand elements or more. With one thread the other cores idle. torchrun sets `OMP_NUM_THREADS=1` for each
    process unless you set it.

    How to fix: divide the cores among the ranks, and leave one for each busy DataLoader worker.

        OMP_NUM_THREADS=8 torchrun --nproc-per-node 2 train.py
        torch.set_num_threads(8)

    When it is wrong: small operators do not get faster with more threads, and random numbers are drawn by one. The
    saving follows from matmul rates that `traceopt run` measured on this machine after the run, with the run's threads
    and with all cores; operators that the memory limits gain less. Without this measurement the finding has no saving.
    Other programs may need the cores.

    Sources: PyTorch documentation, "CPU threading and TorchScript inference"; torchrun's own warning about
    OMP_NUM_THREADS.
    """

    code = "CP002"
    name = "unused-cores"
    title = "Use all cores for operators"
    family = "CPU runs"
    effort = Effort.ONE_LINE
    confidence = "medium"
    requires = ("cpu_only", "shapes", "settings")

    min_share: float = threshold(0.2, "smallest time of operators that use threads, as a share of the step, to report")
    min_factor: float = threshold(2.0, "smallest number of cores per thread to report")
    min_speedup: float = threshold(1.3, "smallest measured speedup with all cores to report")
    low: float = threshold(0.3, "share of the measured speedup's gain, low")
    expected: float = threshold(0.6, "share of the measured speedup's gain, expected")

    def applies(self, facts: Facts) -> str | None:
        environment = facts.captured.environment
        if environment.threads is None or environment.physical_cores is None:
            return "The threads or the cores of this run were not recorded."
        return None if facts.cpu_work.threaded.total else "No operator works on large tensors in this trace."

    def check(self, facts: Facts) -> Findings:
        threads, cores = facts.captured.environment.threads or 1, _cores_for_operators(facts)
        ledger, threaded = facts.captured.ledger, facts.cpu_work.threaded
        time_ns = facts.steps.mean_ns(threaded)
        crowded = ledger is not None and (ledger.core_wait_share or 0.0) >= MOST_WAIT
        if crowded or cores < self.min_factor * threads or time_ns < self.min_share * facts.step_ns:
            return
        peaks = facts.cpu_work.peaks
        speedup = peaks.all_threads_speedup if peaks is not None else None
        if speedup is not None and speedup < self.min_speedup:
            return
        saving = None
        if peaks is not None and speedup is not None and peaks.all_threads is not None and peaks.all_threads <= cores:
            saving = faster(
                facts,
                [(threaded, speedup)],
                (self.low, self.expected, 1.0),
                f"Assumes {percent(self.low)}, {percent(self.expected)} or 100% of the gain from the measured speedup "
                f"of matmuls with {peaks.all_threads} threads, {speedup:.1f} times.",
            )
        name = "thread" if threads == 1 else "threads"
        yield self.finding(
            why=(
                f"Operators use {threads} {name}, but {cores} cores are free for them. Operators on large tensors take "
                f"{ms(time_ns)} of {each_step(facts)}."
            ),
            saving=saving,
            confidence=None if saving is not None else "low",
            evidence=[Evidence("Operators on large tensors", us(time_ns), detail=f"{threads} of {cores} cores")],
            fix=Fix(_advice(facts, cores), edits=[SetVariable("OMP_NUM_THREADS", str(cores))]),
            shares_cause_with=["DL001", "DL002"],  # their workers need the same cores
        )

    def passed(self, facts: Facts) -> str:
        threads, cores = facts.captured.environment.threads or 1, _cores_for_operators(facts)
        return f"Threads per operator: {threads}; physical cores for operators: {cores}."


def _cores_for_operators(facts: Facts) -> int:
    """Physical cores of this rank without one for each worker of its loader."""
    loader = facts.captured.training_loader
    workers = (loader.num_workers or 0) if loader is not None else 0
    return max(1, (facts.captured.environment.physical_cores or 1) - workers)


def _advice(facts: Facts, cores: int) -> str:
    environment = facts.captured.environment
    text = f"Set OMP_NUM_THREADS to {cores}, or call torch.set_num_threads({cores})."
    if environment.ranks_on_cores > 1 and environment.variables.get("OMP_NUM_THREADS") == "1":
        text += " torchrun sets OMP_NUM_THREADS to 1 unless you set it."
    return text
