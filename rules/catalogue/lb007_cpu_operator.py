"""LB007: operators compute on the CPU while the GPU waits."""

from __future__ import annotations

from traceopt.analyzer.vocabulary.causes.table import CPU_OP
from traceopt.rules import (
    Facts,
    Findings,
    Fix,
    Rule,
    by_site,
    each_step,
    ms,
    percent,
    priced_host,
    site_evidence,
    the_step,
    threshold,
)

# Share of the wait that a fix saves, low and expected: on the GPU, the same work takes a launch and a kernel.
LOW, EXPECTED = 0.5, 0.95


class CpuOperator(Rule):
    """Measures how long the GPU is idle while operators compute on the CPU: operators that launch nothing and take at
    least ten times as long as their dispatch, in gaps of a millisecond or longer.

    Why it costs: a tensor without a device is a CPU tensor. Creating random numbers, indexing, sorting or copying it
    takes the CPU a hundred times as long as it would take the GPU, and the GPU has no work meanwhile.

    How to fix: create and process the tensor on the GPU, or do the work in a data loader worker.

        noise = torch.randn(shape, device="cuda")    # instead of torch.randn(shape).to("cuda")
        order = torch.randperm(n, device="cuda")

    When it is wrong: a GPU draws other random numbers from the same seed. Work that belongs before the loop counts if
    the recorded step holds it. A large tensor may not fit into GPU memory.

    Sources: PyTorch, "Performance Tuning Guide", section "Create tensors directly on the target device".
    """

    code = "LB007"
    name = "cpu-operator"
    title = "Move CPU operators to the GPU or out of the step"
    family = "launch and dispatch"
    confidence = "medium"
    requires = ("gpu", "whole", "launches")

    min_share: float = threshold(0.03, "smallest GPU wait for CPU operators, as a share of the step, to report")

    def applies(self, facts: Facts) -> str | None:
        return None if facts.has_step_marks else "Without step marks, work before the loop looks the same."

    def check(self, facts: Facts) -> Findings:
        stall = facts.idle.typical_ns(CPU_OP)
        if stall < self.min_share * facts.step_ns:
            return
        found = facts.cpu_operators
        sites = by_site(facts, found.rows, found.cost_ns)
        yield self.finding(
            why=(
                f"The GPU waits {ms(stall)} of {each_step(facts)} for operators that run on the CPU, mostly "
                f"{facts.slices_by_name(found.rows, found.cost_ns)[0].name}."
            ),
            saving=priced_host(
                facts,
                found.area,
                stall,
                (LOW, EXPECTED, 1.0),
                f"Assumes {percent(LOW)}, {percent(EXPECTED)} or 100% of this time goes away.",
            ),
            evidence=site_evidence(facts, sites),
            fix=Fix(
                "Create the tensor on the GPU and process it there. Or do this work in the data loader workers.",
                'noise = torch.randn(shape, device="cuda")  # instead of torch.randn(shape).to("cuda")',
            ),
        )

    def passed(self, facts: Facts) -> str:
        share = percent(facts.idle.typical_ns(CPU_OP) / facts.step_ns)
        return f"The GPU waits for operators on the CPU for {share} of {the_step(facts)}."
