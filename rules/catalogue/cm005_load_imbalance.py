"""CM005: load imbalance: some ranks have more to compute than others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from traceopt.analyzer.vocabulary.causes.table import COMPUTE
from traceopt.rules import (
    Change,
    Effort,
    Evidence,
    Findings,
    Fix,
    Ranks,
    RunFacts,
    RunRule,
    ScaleWork,
    median,
    ms,
    on_rank,
    percent,
    rank_name,
    ranks_saving,
    step_of_ranks,
    threshold,
)


class LoadImbalance(RunRule):
    """Compares how long each rank's GPU computes in the same step, and measures the waits in collectives that the
    difference causes.

    Why it costs: a step lasts as long as its slowest rank. Inputs of unequal length, uneven shards of a table or uneven
    experts make the other ranks wait.

    How to fix: give all ranks about the same amount of work in each step.

        sampler = DistributedLengthGroupedSampler(dataset, ...)      # batches of similar length on all ranks
        batches = pack(sequences, max_tokens=8192)                   # a budget of tokens, not of samples

    For sharded tables and experts, use a planner that knows their cost, or capacity limits.

    When it is wrong: a rank with slower kernels (clocks, another process on the GPU) looks the same. Compare the time
    of one kernel on two ranks. Without a GPU, threads that wait for a CPU core look the same, too; if they do, or
    `traceopt run` did not record that they do not, the confidence is low. Pipeline stages are uneven by design.

    Sources: TorchRec documentation, sharding planner; Rajbhandari et al., "DeepSpeed-MoE" (2022).
    """

    code = "CM005"
    name = "load-imbalance"
    title = "Give all ranks the same amount of work"
    family = "communication"
    effort = Effort.REFACTORING

    min_share: float = threshold(0.03, "smallest excess over the mean rank, as a share of the step, to report")

    def check_run(self, run: RunFacts) -> Findings:
        waits = run.waits.sum(axis=1)
        excess = median(np.minimum(run.imbalance_ns, waits))
        if excess < self.min_share * run.step_ns:
            return
        compute = run.part(COMPUTE)
        mean = compute.mean(axis=0)
        most, least = int(mean.argmax()), int(mean.argmin())
        always = bool((compute.argmax(axis=1) == most).all())
        who = f"{rank_name(run, most)} in every step" if always else "a different rank from step to step"
        wait = float(np.median(np.minimum(waits, compute.max(axis=1) - compute.min(axis=1))))
        free_cores = all(rank.free_cores for rank in run.ranks)
        finding = self.finding(
            why=(
                f"In {step_of_ranks(run)}, the rank with the most compute ({who}) takes {ms(excess)} longer "
                f"than the mean of all {len(run.ranks)} ranks. The others wait for it in collectives."
            ),
            saving=ranks_saving(
                run,
                0.7 * excess,
                excess,
                wait,
                "The slowest rank's compute time above the mean in the median step; at most its difference to the "
                "fastest rank.",
            ),
            evidence=[
                Evidence(f"Compute on {rank_name(run, i)}", round(float(mean[i]) / 1e3, 3))
                for i in dict.fromkeys((most, least, *run.longest_first(mean)[:3]))
            ],
            fix=Fix(
                "Balance by cost: the same number of tokens (not samples) on every rank, shards of similar cost."
                + ("" if free_cores else " First make sure that the threads of all ranks fit on the CPU cores."),
                "sampler = DistributedLengthGroupedSampler(dataset, ...)",
            ),
            confidence="high" if len(run.step_names) > 1 and free_cores else "low",
            shares_cause_with=["CM001", "CM003", "CM004"],
        )
        yield on_rank(finding, run, most) if always else finding

    def remedy(self, ranks: Ranks) -> list[Sequence[Change]] | None:
        """Every rank computes for the mean time of all ranks."""
        if not all(facts.has_gpu for facts in ranks.facts):
            return None
        spent = ranks.run.part(COMPUTE).mean(axis=0)
        factors = spent.mean() / np.maximum(spent, 1)
        return [
            [ScaleWork(facts.gpu.is_compute, float(factor))] for facts, factor in zip(ranks.facts, factors, strict=True)
        ]

    def passed_run(self, run: RunFacts) -> str:
        excess = median(run.imbalance_ns) / run.step_ns if len(run.imbalance_ns) else 0.0
        return (
            f"The rank that computes longest is {percent(excess)} of the step above the mean of {len(run.ranks)} ranks."
        )
