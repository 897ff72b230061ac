"""AT001: attention runs as separate matmul, softmax and matmul kernels."""

from __future__ import annotations

import numpy as np

from traceopt.analyzer.work.attention import UnfusedAttention
from traceopt.rules import (
    OP,
    Facts,
    Findings,
    Fix,
    Price,
    RemoveHost,
    Risk,
    Rule,
    area_of,
    by_site,
    each_step,
    fused_attention,
    kernel_evidence,
    ms,
    percent,
    places,
    priced,
    shorter,
    site_evidence,
    site_locations,
    the_step,
    threshold,
    times,
)

BASIS = "Assumes a fused kernel, which removes the work between the matmuls and part of their memory traffic."
CALL = "out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)"
ON_CPU = 'Call F.scaled_dot_product_attention, or load the model with attn_implementation="sdpa"'
# At worst, as expected, at best: of the time between the matmuls, and of the matmuls. On an H100, a fused kernel took
# half as long as the matmuls before, forward and backward (benchmarks/savings/captures.py).
REMOVED = (0.6, 0.0), (0.95, 0.3), (1.0, 0.5)
OPERATORS = 0.9  # of the host's time in the operators between the matmuls: the fused one takes the rest
FIX = Fix(f'{ON_CPU} (or "flash_attention_2").', CALL)


def _price(facts: Facts, found: UnfusedAttention) -> Price:
    """One kernel in place of those between the products. The operators that launch them go away, too."""
    count, slices = facts.steps.count, facts.slices
    low_ns, usual_ns, high_ns = (
        (other * found.other_ns + product * found.product_ns) / count for other, product in REMOVED
    )
    launches = facts.links.launch_slice[facts.gpu.rows[np.flatnonzero(found.mask & ~facts.gpu.kind.among("gemm"))]]
    operators = slices.ancestor(launches[launches >= 0], slices.kind == OP)
    host = RemoveHost(area_of(facts, operators[operators >= 0]), OPERATORS)
    low, usual, high = (shorter(facts, found.mask, gain_ns) for gain_ns in (low_ns, usual_ns, high_ns))
    return priced(facts, (low_ns, usual_ns, high_ns), [*usual, host], BASIS, low=low, high=[*high, host])


class UnfusedAttentionRule(Rule):
    """Measures attention that runs as separate kernels on one stream: batched matmul, softmax, batched matmul, with
    only scaling, masking, dropout and copies in between. It writes the whole score matrix to memory and reads it back.
    On a CPU-only run the rule looks at operators instead of kernels, forward and backward; if they drop weights, there
    is no finding, because the CPU's fused operator does not support that.

    Why it costs: the score matrix has one entry per head and pair of tokens. Each step between the matmuls reads and
    writes all of it. A fused kernel never writes it. On a CPU the matmuls take as long as before, and in training the
    fused backward computes the scores once more: that is one matmul for every six.

    How to fix: call the fused operator, or let the model library call it.

        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=False)

        model = AutoModel.from_pretrained(name, attn_implementation="sdpa")   # Hugging Face

    When it is wrong: short sequences gain little. If the attention weights are returned, or the fused kernels do not
    support a bias, the unfused form is needed.

    Sources: Dao et al., "FlashAttention" (2022); PyTorch documentation of scaled_dot_product_attention.
    """

    code = "AT001"
    name = "unfused-attention"
    title = "Use fused attention (scaled_dot_product_attention)"
    family = "attention"
    risk = Risk.ROUNDING
    confidence = "medium"
    requires = ("work",)

    min_share: float = threshold(0.02, "smallest time of unfused attention, as a share of the step, to report")

    def applies(self, facts: Facts) -> str | None:
        if not facts.has_gpu:
            return None if len(facts.cpu_attention.calls) else "No softmax between batched matmuls in this trace."
        return None if facts.gpu.kind.among("softmax").any() else "No standalone softmax kernel in this trace."

    def check(self, facts: Facts) -> Findings:
        return self._on_gpu(facts) if facts.has_gpu else self._on_cpu(facts)

    def _on_gpu(self, facts: Facts) -> Findings:
        found = facts.unfused_attention
        count = facts.steps.count
        time = (found.product_ns + found.other_ns) / count
        own = facts.math_attention.mask  # inside scaled_dot_product_attention: AT002 reports the reason
        if time < self.min_share * facts.step_ns or (found.mask & own).sum() > 0.5 * found.mask.sum():
            return
        evidence = kernel_evidence(facts, found.mask)
        yield self.finding(
            why=(
                f"Unfused attention (matmul, softmax, matmul) runs {times(facts, found.count / count)}. It takes "
                f"{ms(time)} of {each_step(facts)}, {ms(found.other_ns / count)} of it between the matmuls."
            ),
            saving=_price(facts, found),
            evidence=evidence,
            locations=places(evidence),
            fix=FIX,
        )

    def _on_cpu(self, facts: Facts) -> Findings:
        found, slices = facts.cpu_attention, facts.slices
        fused = fused_attention(facts, found)
        if fused.time_ns < self.min_share * facts.step_ns or found.drops or not fused.expected_ns:
            return
        both = "forward and backward, " if facts.trains else ""
        sites = by_site(facts, found.calls, slices.end[found.calls] - slices.start[found.calls])
        yield self.finding(
            why=(
                f"Unfused attention (matmul, softmax, matmul) takes {ms(fused.time_ns)} of {each_step(facts)}, "
                f"{both}{ms(fused.other_ns)} of it between the matmuls."
            ),
            saving=fused.price,
            evidence=site_evidence(facts, sites),
            locations=site_locations(sites),
            fix=Fix(f"{ON_CPU}.", CALL),
        )

    def passed(self, facts: Facts) -> str:
        if not facts.has_gpu:
            share = facts.cpu_attention.area.total / facts.steps.window_ns
            drops = " It uses dropout, for which a CPU has no fused operator." if facts.cpu_attention.drops else ""
            return f"Unfused attention takes {percent(share)} of {the_step(facts)}.{drops}"
        found = facts.unfused_attention
        share = (found.product_ns + found.other_ns) / facts.steps.window_ns
        if len(facts.math_attention.calls):
            return (
                f"The math backend of scaled_dot_product_attention takes {percent(share)} of {the_step(facts)}; see "
                "AT002."
            )
        return f"Unfused attention takes {percent(share)} of {the_step(facts)}."
