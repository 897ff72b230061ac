"""OP004: the optimizer runs on the CPU, and the GPU waits for it."""

from __future__ import annotations

import numpy as np

from traceopt.analyzer.arrays.intervals import complement
from traceopt.analyzer.vocabulary.causes.table import CPU_OPTIMIZER
from traceopt.rules import (
    I8,
    Changes,
    Facts,
    Findings,
    Fix,
    Intervals,
    RemoveHost,
    Rule,
    area_of,
    by_site,
    each_step,
    hide,
    ms,
    percent,
    priced,
    site_evidence,
    the_step,
    threshold,
)

# Share of the wait and the copies that goes. Low: if the states do not fit, some of it overlaps the passes.
LOW, EXPECTED = 0.3, 0.9
BETWEEN = ("HtoD", "DtoH")  # kinds of copies


class OptimizerOnCpu(Rule):
    """Measures how long the GPU is idle while `Optimizer.step` runs on the CPU, and the copies of gradients to the host
    and of weights back that nothing overlaps. The states of the optimizer are then kept in the memory of the host
    (CPU offload of DeepSpeed ZeRO, FSDP or torchao).

    Why it costs: an update reads and writes all states. The memory of a host is ten times slower than that of a GPU,
    and the GPU cannot begin the next step without the new weights.

    How to fix: keep the states on the GPU if they fit. Adam needs 8 bytes per parameter for its states, and 4 for FP32
    weights. States in 8 bits need 2, and FSDP or ZeRO divide them among the ranks.

        optimizer = torch.optim.AdamW(model.parameters(), fused=True)

    If they do not fit, overlap: torchao's CPUOffloadOptimizer copies gradients during the backward pass, and weights
    back during the update. DeepSpeed updates a part on the GPU (`ratio` of offload_optimizer). With gradient
    accumulation, an update serves more samples.

    When it is wrong: the states may not fit, and the range then begins with what an overlap saves.

    Sources: Ren et al., "ZeRO-Offload" (2021); DeepSpeed documentation, "ZeRO-Offload"; torchao documentation,
    CPUOffloadOptimizer.
    """

    code = "OP004"
    name = "optimizer-on-cpu"
    title = "Keep the optimizer's states on the GPU"
    family = "optimizer"
    confidence = "medium"
    requires = ("gpu", "whole", "launches")

    min_share: float = threshold(0.03, "smallest GPU wait for the optimizer, as a share of the step, to report")

    def applies(self, facts: Facts) -> str | None:
        return None if facts.regions.optimizer.any() else "The trace shows no Optimizer.step."

    def check(self, facts: Facts) -> Findings:
        wait = facts.idle.typical_ns(CPU_OPTIMIZER)
        if wait < self.min_share * facts.step_ns:
            return
        rows, copies = facts.host.rows_of(CPU_OPTIMIZER), _copies(facts)
        copied = float(facts.gpu.step_ns[copies].sum()) / facts.steps.count
        cost = wait + copied
        sites = by_site(facts, rows, facts.stalled_within(facts.slices.start[rows], facts.slices.end[rows]))
        yield self.finding(
            why=(
                f"The GPU waits {ms(wait)} of {each_step(facts)} for Optimizer.step on the CPU. Copies between host "
                f"and GPU before and after it take another {ms(copied)}."
            ),
            saving=priced(
                facts,
                (LOW * cost, EXPECTED * cost, cost),
                _without(facts, copies, EXPECTED),
                f"Assumes {percent(LOW)}, {percent(EXPECTED)} or 100% of the wait and the copies goes away.",
                low=_without(facts, copies, LOW),
                high=_without(facts, copies, 1.0),
            ),
            evidence=site_evidence(facts, sites),
            fix=Fix(
                "Keep the states on the GPU if they fit: with fused=True, in 8 bits, or divided among the ranks (FSDP, "
                "ZeRO). If not, overlap copies and update with the passes: CPUOffloadOptimizer of torchao, or `ratio` "
                "of DeepSpeed's offload_optimizer.",
                "optimizer = torch.optim.AdamW(model.parameters(), fused=True)  # states on the GPU",
            ),
        )

    def passed(self, facts: Facts) -> str:
        share = percent(facts.idle.typical_ns(CPU_OPTIMIZER) / facts.step_ns)
        return f"The GPU waits for an optimizer on the CPU for {share} of {the_step(facts)}."


def _copies(facts: Facts) -> I8:
    """The copies between host and GPU from the last compute before an update to the first after it."""
    rows = np.concatenate(
        [np.empty(0, np.int64), *(copy.rows for copy in facts.copies if copy.kind.startswith(BETWEEN))]
    )
    start = facts.gpu.work.start[rows]
    pauses = complement(facts.gpu.compute, *facts.steps.span)
    updates = area_of(facts, facts.host.rows_of(CPU_OPTIMIZER)).within(pauses.start, pauses.end) > 0
    around = Intervals(pauses.start[updates], pauses.end[updates])
    return rows[around.contains(start)]


def _without(facts: Facts, copies: I8, share: float) -> Changes:
    update = area_of(facts, facts.host.rows_of(CPU_OPTIMIZER))
    return [RemoveHost(update, share), *hide(facts, copies, share * facts.gpu.work.duration[copies])]
