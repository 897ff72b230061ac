"""PY002: the main thread is ready to run, but no core is free."""

from __future__ import annotations

from traceopt.rules import (
    Effort,
    Evidence,
    Facts,
    Findings,
    Fix,
    Rule,
    SetVariable,
    counted,
    mean_step_ns,
    ms,
    percent,
    threshold,
    us,
    whole_run_saving,
)

ONE_THREAD = (
    "An operator waits for the last of its threads, so OMP_NUM_THREADS=1 may be faster while other programs run."
)


class CpuContention(Rule):
    """Measures how long the main thread was ready to run with no core free for it, as Linux counted it over the
    whole run. Compares the job's threads with the cores it may use: the threads of one operator, plus one for each
    DataLoader worker, for each rank on the machine.

    Why it costs: with more threads than cores, they take turns of a few milliseconds. The thread that launches kernels
    is delayed, and an operator that uses several threads finishes only with the last of them.

    How to fix: threads for operators, workers and ranks together should not exceed the cores.

        OMP_NUM_THREADS=4 torchrun --nproc-per-node 4 train.py
        torch.set_num_threads(4)
        loader = DataLoader(dataset, num_workers=3)

    On a machine with several NUMA nodes, bind each rank to the node of its GPU (`numactl --cpunodebind`, or torchrun's
    `--numa-binding`).

    When it is wrong: other programs on the machine also take cores. If the job itself has no more threads than
    cores, the finding says so and has no saving. It has none either if the workers alone make the difference in a
    run without a GPU: they and the operators have to do the same work on the same cores, whoever waits. Each worker
    counts as one thread, as torch sets it; libraries that start their own threads in workers (OpenCV, MKL under
    NumPy) add to that.

    Sources: Linux kernel documentation, "Scheduler statistics" (run_delay); PyTorch performance tuning guide.
    """

    code = "PY002"
    name = "cpu-contention"
    title = "Use no more threads than cores"
    family = "Python runtime"
    effort = Effort.ONE_LINE
    confidence = "medium"
    requires = ("settings", "ledger")

    min_share: float = threshold(0.03, "smallest wait for a core, as a share of the run, to report")

    def applies(self, facts: Facts) -> str | None:
        ledger, cores = facts.captured.ledger, facts.captured.environment.cores
        known = ledger is not None and ledger.core_wait_share is not None and cores is not None
        return None if known else "This system does not record how long threads wait for a core."

    def check(self, facts: Facts) -> Findings:
        ledger, environment = facts.captured.ledger, facts.captured.environment
        cores = environment.cores
        if ledger is None or cores is None or (ledger.core_wait_share or 0.0) < self.min_share:
            return
        threads = facts.captured.threads
        share = ledger.core_wait_share or 0.0
        wait_ns = share * mean_step_ns(ledger)
        own_ns = min(share, max(0.0, 1 - cores / threads)) * mean_step_ns(ledger)  # caused by the job's own threads
        crowded = threads > cores
        wasted = facts.has_gpu or threads - facts.captured.workers > cores
        yield self.finding(
            title=None if crowded else "Find out what else runs on these cores",
            why=(
                f"The main thread was ready but waited for a free core for {percent(share)} of the run, "
                f"{ms(wait_ns)} of each step. The rank runs {counted(threads, 'thread')} ({_sum(facts)}) on "
                f"{counted(cores, 'core')}" + ("." if crowded else "; other programs use the cores too.")
            ),
            saving=whole_run_saving(
                facts,
                ledger,
                0.0 if facts.has_gpu else 0.5 * own_ns,
                own_ns,
                wait_ns,
                "The measured wait, capped at the time that the job's own threads can block each other.",
            )
            if crowded and wasted
            else None,
            evidence=[Evidence("Ready to run, no core free", us(wait_ns), detail=_sum(facts))],
            fix=Fix(
                _advice(facts, wasted),
                edits=[SetVariable("OMP_NUM_THREADS", str(_fair_threads(facts, cores)))] if crowded else [],
            ),
        )

    def passed(self, facts: Facts) -> str:
        ledger = facts.captured.ledger
        share = (ledger.core_wait_share or 0.0) if ledger is not None else 0.0
        return f"The main thread waits for a free core for {percent(share)} of the run."


def _sum(facts: Facts) -> str:
    threads, workers = facts.captured.environment.threads or 1, facts.captured.workers
    ranks = facts.captured.environment.ranks_on_cores
    text = f"{threads} for operators and {counted(workers, 'worker')}"
    return text + (f"; {ranks} ranks share {facts.captured.environment.cpu_affinity} cores" if ranks > 1 else "")


def _fair_threads(facts: Facts, cores: int) -> int:
    """Operator threads that leave each worker a core."""
    return max(1, cores - facts.captured.workers)


def _advice(facts: Facts, wasted: bool) -> str:
    environment = facts.captured.environment
    cores = environment.cores or 1
    if facts.captured.threads <= cores:
        fewer = "" if facts.has_gpu or (environment.threads or 1) < 2 else f" {ONE_THREAD}"
        return f"Check what else runs on the machine, or reserve cores for the job.{fewer}"
    if facts.captured.workers >= cores:
        text = f"Use fewer workers than cores ({cores}), and one operator thread (OMP_NUM_THREADS=1)."
    else:
        threads = _fair_threads(facts, cores)
        text = f"Leave the workers their cores: set OMP_NUM_THREADS to {threads}."
        if not wasted:
            text += f" traceopt try --env OMP_NUM_THREADS={threads} measures whether that helps."
    nodes = environment.numa_nodes
    if nodes is not None and nodes[0] > 1 and nodes[1] > 1:
        text += f" The process runs on {nodes[1]} NUMA nodes. Bind each rank to the node of its GPU."
    return text
