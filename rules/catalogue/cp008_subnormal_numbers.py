"""CP008: a CPU-only run computes with subnormal numbers, which its CPU handles slowly."""

from __future__ import annotations

import numpy as np

from traceopt.analyzer.run_log.tensor_values import SubnormalTensors
from traceopt.rules import (
    Call,
    Effort,
    Facts,
    Findings,
    Fix,
    Price,
    Risk,
    Rule,
    area_of,
    by_calling_site,
    each_step,
    ms,
    percent,
    priced_host,
    site_evidence,
    the_step,
    threshold,
)

USUAL = 0.5  # of the measured rate of matmuls: what those of a model usually reach
_KINDS = {
    "parameter": "parameters",
    "gradient": "gradients",
    "optimizer state": "optimizer states",
    "activation": "activations",
}


class SubnormalNumbers(Rule):
    """Measures the operators of a run without a GPU that work on tensors with subnormal (denormal) numbers: FP32
    numbers below 1.2e-38. `traceopt run` looks for them in a sample of the weights, gradients, optimizer states,
    activations and other tensors. It also measures, on a copy of the sample, how much slower this CPU computes with
    them.

    Why it costs: the CPU's vector instructions handle normal numbers only. For a subnormal one, many CPUs stop and run
    microcode, which takes more than a hundred times as long. Such numbers come from weight decay over a long training,
    from states and momenta that decay, from a softmax or `exp` of very negative numbers, and from tiny initial weights.

    How to fix: let the CPU take them for zero. Do so at the very start of the script: the setting holds for the calling
    thread and the threads that it starts later, so operators that already ran in parallel keep their threads as they
    are.

        import torch
        torch.set_flush_denormal(True)

    The CPU must support it: x86 with SSE3 and 64-bit Arm do. The function returns False if it does not. Data loader
    workers inherit the setting if they are forked.

    When it is wrong: the fix changes results below 1.2e-38, which become 0. Few methods need such numbers. If they are
    a sign of an unstable model, find their cause. Shapes say which operators are slow, so an operator with another
    tensor of the same shape may be counted too; none is expected to become faster than this CPU's measured rates.

    Sources: PyTorch documentation of torch.set_flush_denormal; Intel, "Set the FTZ and DAZ Flags".
    """

    code = "CP008"
    name = "subnormal-numbers"
    title = "Flush subnormal numbers to zero"
    family = "CPU runs"
    effort = Effort.ONE_LINE
    risk = Risk.NUMERICS
    risk_note = "Values below 1.2e-38 become 0"
    requires = ("cpu_only", "shapes")

    min_share: float = threshold(0.05, "smallest expected saving, as a share of the step, to report")

    def applies(self, facts: Facts) -> str | None:
        subnormals = facts.captured.subnormals
        if subnormals is None:
            return "Nobody looked for subnormal numbers; traceopt run does."
        if subnormals.flushed:
            return "The CPU flushes subnormal numbers to zero."
        return None if subnormals.tensors else "No tensor that was looked at has subnormal numbers."

    def check(self, facts: Facts) -> Findings:
        price = _price(facts)
        if price.est_ns < self.min_share * facts.step_ns:
            return
        rows = facts.subnormal_work.rows
        duration_ns = facts.slices.duration_of(rows)
        worst = max(_tensors(facts), key=lambda tensor: tensor.slowdown)
        yield self.finding(
            why=(
                f"Operators on tensors with subnormal numbers take {ms(_time_ns(facts))} of {each_step(facts)}: "
                f"{_kinds(facts)}. Multiplying these numbers takes {worst.slowdown:.1f} times as long on this CPU."
            ),
            saving=price,
            evidence=site_evidence(facts, by_calling_site(facts, rows, duration_ns), "Operators with these tensors", 4),
            fix=Fix(
                "Let the CPU take them for zero, at the start of the script, before operators start threads.",
                edits=[Call("torch.set_flush_denormal", "True")],
            ),
        )

    def passed(self, facts: Facts) -> str:
        share = percent(_time_ns(facts) / facts.step_ns)
        return f"Operators on tensors with subnormal numbers take {share} of {the_step(facts)}."


def _tensors(facts: Facts) -> tuple[SubnormalTensors, ...]:
    subnormals = facts.captured.subnormals
    return subnormals.tensors if subnormals is not None else ()


def _kinds(facts: Facts) -> str:
    """ "parameters (up to 98% of a tensor)"."""
    shares: dict[str, float] = {}
    for tensor in _tensors(facts):
        kind = _KINDS.get(tensor.kind, "other tensors")
        shares[kind] = max(shares.get(kind, 0.0), tensor.share)
    return ", ".join(f"{kind} (up to {percent(share)} of a tensor)" for kind, share in shares.items())


def _time_ns(facts: Facts) -> float:
    return facts.steps.mean_ns(area_of(facts, facts.subnormal_work.rows))


def _price(facts: Facts) -> Price:
    work = facts.subnormal_work
    area, time_ns = area_of(facts, work.rows), _time_ns(facts)
    duration_ns = facts.slices.end[work.rows] - facts.slices.start[work.rows]
    slowed_ns = duration_ns / work.slower
    usual_ns = np.where(work.is_product & (work.least_ns > 0), work.least_ns / USUAL, slowed_ns)
    after = (2 * duration_ns / (1 + work.slower), np.minimum(slowed_ns, usual_ns), np.zeros(len(work.rows)))
    low, expected, high = (
        float(np.maximum(0, duration_ns - np.maximum(after_ns, work.least_ns)).sum()) / max(1, int(duration_ns.sum()))
        for after_ns in after
    )
    return priced_host(
        facts,
        area,
        time_ns,
        (low, expected, high),
        f"Assumes that matmuls reach {percent(USUAL)} of the rate measured on this CPU, and that other operators "
        "become as much faster as a multiplication of a copy of the numbers. At least, all become half as much faster; "
        "at most, all reach the measured rates.",
        faster=True,
    )
