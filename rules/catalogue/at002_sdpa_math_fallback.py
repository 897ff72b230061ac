"""AT002: scaled_dot_product_attention falls back to its math backend."""

from __future__ import annotations

from traceopt.analyzer.work.attention import SDPA
from traceopt.rules import (
    Effort,
    Evidence,
    Facts,
    Findings,
    Risk,
    Rule,
    by_site,
    each_step,
    fused_attention,
    kernel_evidence,
    ms,
    percent,
    priced_work,
    site_evidence,
    site_locations,
    the_step,
    threshold,
    times,
    us,
)
from traceopt.rules.fixes.advice.sdpa_requirements import cpu_requirement, gpu_requirement

NO_DROPOUT = "Trains without dropout of the attention weights"


class SdpaMathFallback(Rule):
    """Measures the GPU time of `scaled_dot_product_attention` calls that run on the math backend (separate matmul and
    softmax kernels). The finding names the requirement of the fused kernels that the call does not meet, as far as
    shapes and dtypes show it. On a CPU-only run the rule looks at operators, forward and backward, and only reports
    calls whose unmet requirement the trace shows.

    Why it costs: the math backend writes the whole score matrix to memory several times. The fused kernels (flash,
    memory-efficient, cuDNN) never do.

    How to fix: meet the one requirement that is missing.

        q, k, v = (t.unflatten(0, (batch, heads)) for t in (q, k, v))   # four dimensions
        mask = mask.to(q.dtype)                                          # or boolean
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    The flash kernels support FP16 and BF16, head sizes up to 256, and no mask except the causal one. The
    memory-efficient kernel also supports FP32 and masks. The CPU's fused kernel supports FP32 and masks, but no dropout
    of the attention weights. nn.TransformerEncoderLayer has such a dropout of 0.1 by default.

    When it is wrong: for very short sequences the math backend is as fast. Deterministic algorithms may rule out the
    fused kernels.

    Sources: PyTorch documentation of scaled_dot_product_attention and torch.nn.attention.
    """

    code = "AT002"
    name = "sdpa-math-fallback"
    title = "Let scaled_dot_product_attention use a fused kernel"
    family = "attention"
    effort = Effort.ONE_LINE
    risk = Risk.ROUNDING
    confidence = "medium"
    requires = ("work",)

    min_share: float = threshold(0.02, "smallest time of the math backend, as a share of the step, to report")

    def applies(self, facts: Facts) -> str | None:
        found = facts.math_attention if facts.has_gpu else facts.cpu_math_attention
        named = SDPA in facts.trace.names or len(found.calls)
        return None if named else "scaled_dot_product_attention is not called in this trace."

    def check(self, facts: Facts) -> Findings:
        return self._on_gpu(facts) if facts.has_gpu else self._on_cpu(facts)

    def _on_gpu(self, facts: Facts) -> Findings:
        found, count = facts.math_attention, facts.steps.count
        time = (found.product_ns + found.other_ns) / count
        if not len(found.calls) or time < self.min_share * facts.step_ns:
            return
        fix = gpu_requirement(facts, found.calls)
        sites = by_site(facts, found.calls, (facts.slices.end - facts.slices.start)[found.calls])
        yield self.finding(
            why=(
                f"scaled_dot_product_attention runs on its math backend {times(facts, len(found.calls) / count)}, "
                f"which takes {ms(time)} of {each_step(facts)}. "
            )
            + fix.text,
            saving=priced_work(
                facts,
                found.mask,
                (
                    0.6 * found.other_ns / count,
                    (0.9 * found.other_ns + 0.3 * found.product_ns) / count,
                    0.9 * time,
                ),
                "Assumes a fused kernel, which removes the work between the matmuls and part of their memory traffic.",
            ),
            evidence=[
                Evidence("Math backend", calls_per_step=len(found.calls) / count),
                *kernel_evidence(facts, found.mask),
            ],
            locations=site_locations(sites),
            fix=fix,
            shares_cause_with=["AT001", "LB003"],
        )

    def _on_cpu(self, facts: Facts) -> Findings:
        """Only with a reason that the trace shows: without one there is nothing to change."""
        found, slices = facts.cpu_math_attention, facts.slices
        fused = fused_attention(facts, found)
        if not len(found.calls) or fused.time_ns < self.min_share * facts.step_ns or not fused.expected_ns:
            return
        if (unmet := cpu_requirement(facts, found.calls)) is None:
            return
        fix, ends_dropout = unmet
        calls = len(found.calls) / facts.steps.count
        sites = by_site(facts, found.calls, (slices.end - slices.start)[found.calls])
        yield self.finding(
            why=(
                f"scaled_dot_product_attention runs on its math backend {times(facts, calls)}, which takes "
                f"{ms(fused.time_ns)} of {each_step(facts)}, {ms(fused.other_ns)} of it between the matmuls."
            ),
            saving=fused.price,
            evidence=[
                Evidence("Math backend", us(fused.time_ns), calls),
                *site_evidence(facts, sites),
            ],
            locations=site_locations(sites),
            fix=fix,
            risk=Risk.CONVERGENCE if ends_dropout else None,
            risk_note=NO_DROPOUT if ends_dropout else None,
        )

    def passed(self, facts: Facts) -> str:
        if not facts.has_gpu:
            share = facts.cpu_math_attention.area.total / facts.steps.window_ns
            reason = " The trace does not show why." if share >= self.min_share else ""
            return (
                f"The math backend of scaled_dot_product_attention takes {percent(share)} of {the_step(facts)}.{reason}"
            )
        found = facts.math_attention
        share = (found.product_ns + found.other_ns) / facts.steps.window_ns
        return f"The math backend of scaled_dot_product_attention takes {percent(share)} of {the_step(facts)}."
