"""CP009: a CPU-only run computes norms along a dimension that is not the last."""

from __future__ import annotations

from traceopt.rules import Facts, Findings, Fix, Risk, Rule, each_step, ms, percent, the_step, threshold
from traceopt.rules.savings.work.cpu_operators import faster_operators, operator_evidence, operators_ns

ADVICE = (
    "Write the norm with operators that run on vectors, or let it reduce the last dimension. The clamp keeps the "
    "gradient of a zero vector zero, as norm does."
)
SPEEDUP = 20  # measured: 20 to 250 times, for norms of 2 to 32 numbers


class SlowNorm(Rule):
    """Measures the Euclidean norms of a run without a GPU that are taken along another dimension than the last and need
    at least 40 ns a result. Examples are the absolute value of complex numbers that are stored as two tensors, and the
    length of vectors whose coordinates are the first dimension.

    Why it costs: PyTorch computes a norm along the last dimension with vector instructions. Along another dimension it
    calls a function for each number, which takes 80 to 170 ns a result, whether it is a norm of 2 or of 32 numbers.

    How to fix: write the norm out, or stack along the last dimension.

        length = torch.stack([re, im], 0).norm(dim=0)                       # slow
        length = (re * re + im * im).clamp_min(1e-24).sqrt()                # 20 times as fast, and more
        length = x.square().sum(0).clamp_min(1e-24).sqrt()                  # for x.norm(dim=0)
        length = torch.stack([re, im], -1).norm(dim=-1)

    The clamp matters in training: the gradient of `sqrt` at zero is infinite, and that of `norm` is zero.

    When it is wrong: the written norm overflows for numbers above 1e19 in FP32, and gives 1e-12 for smaller lengths.
    Its results differ in the last digits. The saving assumes a speedup that was measured on a few CPUs.

    Sources: PyTorch source code, aten/src/ATen/native/cpu/ReduceOpsKernel.cpp (norm_kernel_tensor_iterator_impl).
    """

    code = "CP009"
    name = "slow-norm"
    title = "Write out norms along a leading dimension"
    family = "CPU runs"
    risk = Risk.ROUNDING
    confidence = "medium"
    requires = ("cpu_only", "shapes")

    min_share: float = threshold(0.05, "smallest time of such norms, as a share of the step, to report")
    low: float = threshold(0.7, "share of the gain, low")
    expected: float = threshold(0.9, "share of the gain, expected")

    def check(self, facts: Facts) -> Findings:
        norms = facts.cpu_work.slow_norms
        time_ns = 0.0 if norms is None else operators_ns(facts, [norms])
        if norms is None or time_ns < self.min_share * facts.step_ns:
            return
        yield self.finding(
            why=f"Norms along a dimension that is not the last take {ms(time_ns)} of {each_step(facts)}.",
            saving=faster_operators(
                facts,
                [([norms], SPEEDUP)],
                (self.low, self.expected, 1.0),
                f"Assumes {percent(self.low)}, {percent(self.expected)} or 100% of the gain at {SPEEDUP} times the "
                "speed.",
            ),
            evidence=operator_evidence(facts, [norms]),
            fix=Fix(ADVICE, "length = x.square().sum(0).clamp_min(1e-24).sqrt()  # instead of x.norm(dim=0)"),
        )

    def passed(self, facts: Facts) -> str:
        norms = facts.cpu_work.slow_norms
        share = 0.0 if norms is None else operators_ns(facts, [norms]) / facts.step_ns
        return f"Slow norms take {percent(share)} of {the_step(facts)}."
