"""GM004: many small matmuls of the same shape run one by one."""

from __future__ import annotations

from traceopt.rules import Effort, Facts, Findings, Fix, Rule, each_step, ms, per_step, priced, threshold
from traceopt.rules.savings.work.merged_gemms import MergedGemms, as_one, describe, may_depend, merged, roofline


class ManySmallGemms(Rule):
    """Measures runs of matmuls of the same shape with nothing but copies in between, such as those of a Python loop
    over heads, experts, groups or ensemble members. The rule counts their kernel time, and the time in which the GPU
    waits for launches between them.

    Why it costs: each matmul needs its own launch and is too small to fill the device, so it takes as long as one of
    its tiles. One batched matmul runs all tiles in parallel.

    How to fix: turn the loop index into a batch dimension.

        y = torch.bmm(x, w)                       # x: [groups, m, k], w: [groups, k, n]
        y = torch.einsum("gmk,gkn->gmn", x, w)
        y = torch.func.vmap(layer)(params, x)     # whole modules
        y = torch.nn.functional.grouped_mm(x, w, offs=ends)   # experts of unequal size

    When it is wrong: matmuls that could use each other's result (N or M equal to K) are ignored, because they may be a
    chain, which cannot be batched. If the inputs must be stacked first, the copy costs part of the gain.

    Sources: NVIDIA, "cuBLAS", batched and grouped GEMM; PyTorch documentation of torch.bmm and torch.func.vmap.
    """

    code = "GM004"
    name = "many-small-gemms"
    title = "Batch the small matmuls of a loop"
    family = "matrix shapes"
    effort = Effort.REFACTORING
    confidence = "medium"
    requires = ("gpu", "launches", "shapes")

    min_share: float = threshold(0.02, "smallest gain, as a share of the step, to report")
    min_calls: int = threshold(8, "fewest matmuls of the same shape in a row that count as a loop")
    low: float = threshold(0.5, "share of the gain, low")
    expected: float = threshold(0.85, "share of the gain, expected")

    def applies(self, facts: Facts) -> str | None:
        return None if len(facts.gemm_calls) else "No matmul with a recorded shape in this trace."

    def check(self, facts: Facts) -> Findings:
        found = self._merges(facts)
        count = facts.steps.count
        gain = sum(gemm.gain_ns for gemm in found) / count
        if gain < self.min_share * facts.step_ns:
            return
        time, starved = (sum(getattr(gemm, name) for gemm in found) / count for name in ("now_ns", "starved_ns"))
        calls = sum(len(gemm.calls) for gemm in found) / count
        launching = f", {ms(starved)} of it waiting for launches" if starved > 0.1 * time else ""
        yield self.finding(
            why=(
                f"{calls:,.0f} small matmuls {per_step(facts)} run one by one, in runs of the same shape. They take "
                f"{ms(time)} of {each_step(facts)}{launching}; batched they would take {ms(time - gain)}."
            ),
            saving=priced(
                facts,
                (self.low * gain, self.expected * gain, gain),
                as_one(facts, found, self.expected),
                "Assumes one batched matmul runs in fewer waves of thread blocks, each as long as the longest now; "
                f"bounded by {roofline(facts, found)}.",
                low=as_one(facts, found, self.low),
                high=as_one(facts, found, 1.0),
            ),
            evidence=describe(facts, found),
            fix=Fix(
                "Stack the operands and multiply them in one call.",
                "y = torch.bmm(x, w)  # instead of: for g in range(groups): y[g] = x[g] @ w[g]",
            ),
            shares_cause_with=["LB002"] if starved > 0.1 * time else [],
        )

    def _merges(self, facts: Facts) -> list[MergedGemms]:
        gemm_calls = facts.gemm_calls
        runs = gemm_calls.runs(gemm_calls.sizes, self.min_calls)
        found = merged(facts, [run for run in runs if not may_depend(gemm_calls.sizes[run])])
        return [gemm for gemm in found if gemm.gain_ns > 0]

    def passed(self, facts: Facts) -> str:
        runs = facts.gemm_calls.runs(facts.gemm_calls.sizes, self.min_calls)
        longest = max((len(run) for run in runs), default=0)
        if not longest:
            return f"The trace has no {self.min_calls} matmuls of the same shape in a row."
        return f"Up to {longest:,} matmuls of the same shape run in a row; batching saves too little or is impossible."
