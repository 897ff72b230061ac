"""AT001: attention runs as separate matmul, softmax and matmul kernels, written out or in the math backend."""

from __future__ import annotations

from msgspec.structs import replace

from traceopt.analyzer.work.attention import SDPA, MathAttention, UnfusedAttention
from traceopt.rules import (
    I8,
    OP,
    Effort,
    Evidence,
    Facts,
    Findings,
    Fix,
    Former,
    Price,
    RemoveHost,
    Replace,
    Risk,
    Rule,
    SiteCost,
    area_of,
    by_site,
    each_step,
    fused_attention,
    kernel_evidence,
    ms,
    percent,
    priced,
    shorter,
    site_evidence,
    site_locations,
    the_step,
    threshold,
    times,
    us,
)
from traceopt.rules.fixes.advice.sdpa_requirements import cpu_requirement, gpu_requirement
from traceopt.rules.savings.work.attention_experiments import fused_attention_work, softmaxes_of

BASIS = "Assumes a fused kernel, which removes the work between the matmuls and part of their memory traffic."
CALL, CALL_WITH_DROPOUT = (
    Replace("F.scaled_dot_product_attention", f"q, k, v, attn_mask=mask, scale=scale{drops}", "softmax(q @ k.mT) @ v")
    for drops in ("", ", dropout_p=dropout if self.training else 0.0")
)
ON_CPU = 'Call F.scaled_dot_product_attention, or load the model with attn_implementation="sdpa"'
# At worst, as expected, at best: of the time between the matmuls, and of the matmuls. On an H100, a fused kernel took
# half as long as the matmuls before, forward and backward (benchmarks/savings/captures.py).
REMOVED = (0.6, 0.0), (0.95, 0.3), (1.0, 0.5)
MATH_TITLE = "Let scaled_dot_product_attention use a fused kernel"
NO_DROPOUT = "Trains without dropout of the attention weights"
FIX, FIX_WITH_DROPOUT = (
    Fix(f'{ON_CPU} (or "flash_attention_2").{more}', edits=[call])
    for call, more in ((CALL, ""), (CALL_WITH_DROPOUT, " Pass it the dropout of the weights, in training only."))
)


def _price(facts: Facts, found: UnfusedAttention | MathAttention) -> Price:
    """One kernel in place of those of each chain, and one operator in place of those that launch them, with the matmuls
    and autograd's nodes.
    """
    count, slices = facts.steps.count, facts.slices
    low_ns, usual_ns, high_ns = (
        (other * found.other_ns + product * found.product_ns) / count for other, product in REMOVED
    )
    sizes = fused_attention_work(facts, softmaxes_of(facts, found.mask), (found.product_ns + found.other_ns) / count)
    basis = BASIS
    if sizes.speedup is not None:
        low_ns, usual_ns, high_ns = sizes.gains_ns((found.product_ns + found.other_ns) / count)
        basis = f"{sizes.words}."
    launches = facts.links.launch_slice[found.mask]
    plain = slices.outermost(facts.regions.named(_is_plain, OP))  # with those that they call
    operators = slices.ancestor(launches[launches >= 0], slices.mask(plain))
    left = int((found.mask & facts.gpu.kind.among("softmax")).sum()) / max(1, int(found.mask.sum()))
    host = RemoveHost(area_of(facts, operators[operators >= 0]), 1 - left)
    low, usual, high = (shorter(facts, found.mask, gain_ns) for gain_ns in (low_ns, usual_ns, high_ns))
    worst, best = (None, None) if low_ns == high_ns else (low if sizes.speedup is None else [*low, host], [*high, host])
    price = priced(facts, (low_ns, usual_ns, high_ns), [*usual, host], basis, low=worst, high=best)
    return replace(price, experiments=sizes.experiments)


def _is_plain(name: str) -> bool:
    """An operator of PyTorch or its node in autograd: others, such as a checkpoint, may hold a whole layer."""
    return name.startswith("aten::") or name.endswith("Backward0")


class UnfusedAttentionRule(Rule):
    """Measures attention that runs as separate kernels on one stream: batched matmul, softmax, batched matmul, with
    only scaling, masking, dropout and copies in between. It writes the whole score matrix to memory and reads it back.
    On a CPU-only run the rule looks at operators instead of kernels, forward and backward; if they drop weights, there
    is no finding, because the CPU's fused operator does not support that.

    Also measures calls of `scaled_dot_product_attention` that run on its math backend, which is the same kernels. The
    finding names the requirement of the fused kernels that the call does not meet, as far as shapes and dtypes show it;
    on a CPU-only run it needs one that the trace shows.

    Why it costs: the score matrix has one entry per head and pair of tokens. Each step between the matmuls reads and
    writes all of it. A fused kernel never writes it. On a CPU the matmuls take as long as before, and in training the
    fused backward computes the scores once more: that is one matmul for every six.

    How to fix: call the fused operator, or let the model library call it.

        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)   # in training also dropout_p=0.1

    Without `scale` it divides the scores by the square root of the head size. A boolean mask is true where attention is
    allowed, and `dropout_p` also drops weights in evaluation mode.

        model = AutoModel.from_pretrained(name, attn_implementation="sdpa")   # Hugging Face

    If it runs on the math backend, meet the one requirement that is missing.

        q, k, v = (t.unflatten(0, (batch, heads)) for t in (q, k, v))   # four dimensions
        mask = mask.to(q.dtype)                                          # or boolean

    The flash kernels support FP16 and BF16, head sizes up to 256, and no mask except the causal one. The
    memory-efficient kernel also supports FP32 and masks. The CPU's fused kernel supports FP32 and masks, but no dropout
    of the attention weights. nn.TransformerEncoderLayer has such a dropout of 0.1 by default.

    When it is wrong: short sequences gain little. If the attention weights are returned, or the fused kernels do not
    support a bias, the unfused form is needed. Deterministic algorithms may rule out the fused kernels.

    Sources: Dao et al., "FlashAttention" (2022); PyTorch documentation of scaled_dot_product_attention and
    torch.nn.attention.
    """

    code = "AT001"
    name = "unfused-attention"
    title = "Use fused attention (scaled_dot_product_attention)"
    family = "attention"
    risk = Risk.ROUNDING
    confidence = "medium"
    requires = ("work",)
    former = (Former("AT002", "sdpa-math-fallback"),)

    min_share: float = threshold(0.02, "smallest time of unfused attention, as a share of the step, to report")

    def applies(self, facts: Facts) -> str | None:
        if SDPA in facts.trace.names:
            return None
        if facts.has_gpu:
            runs = facts.gpu.kind.among("softmax").any() or len(facts.math_attention.calls)
            return None if runs else "No standalone softmax kernel in this trace."
        runs = len(facts.cpu_attention.calls) or len(facts.cpu_math_attention.calls)
        return None if runs else "No softmax between batched matmuls in this trace."

    def check(self, facts: Facts) -> Findings:
        if facts.has_gpu:
            yield from self._written_out(facts)
            yield from self._math_backend(facts)
        else:
            yield from self._written_out_on_cpu(facts)
            yield from self._math_backend_on_cpu(facts)

    def _written_out(self, facts: Facts) -> Findings:
        unfused, count = facts.unfused_attention, facts.steps.count
        time_ns = (unfused.product_ns + unfused.other_ns) / count
        own = facts.math_attention.mask  # inside scaled_dot_product_attention
        if time_ns < self.min_share * facts.step_ns or (unfused.mask & own).sum() > 0.5 * unfused.mask.sum():
            return
        yield self.finding(
            why=(
                f"Unfused attention (matmul, softmax, matmul) runs {times(facts, unfused.count / count)}. It takes "
                f"{ms(time_ns)} of {each_step(facts)}, {ms(unfused.other_ns / count)} of it between the matmuls."
            ),
            saving=_price(facts, unfused),
            evidence=kernel_evidence(facts, unfused.mask),
            fix=FIX_WITH_DROPOUT if unfused.drops else FIX,
        )

    def _math_backend(self, facts: Facts) -> Findings:
        math, count = facts.math_attention, facts.steps.count
        time_ns = (math.product_ns + math.other_ns) / count
        if not len(math.calls) or time_ns < self.min_share * facts.step_ns:
            return
        fix = gpu_requirement(facts, math.calls)
        sites = _sites_of(facts, math.calls)
        yield self.finding(
            title=MATH_TITLE,
            effort=Effort.ONE_LINE,
            why=(
                f"scaled_dot_product_attention runs on its math backend {times(facts, len(math.calls) / count)}, "
                f"which takes {ms(time_ns)} of {each_step(facts)}. "
            )
            + fix.text,
            saving=_price(facts, math),
            evidence=[
                Evidence("Math backend", calls_per_step=len(math.calls) / count),
                *kernel_evidence(facts, math.mask),
            ],
            locations=site_locations(sites),
            fix=fix,
            shares_cause_with=["LB003"],
        )

    def _written_out_on_cpu(self, facts: Facts) -> Findings:
        unfused = facts.cpu_attention
        fused = fused_attention(facts, unfused)
        if fused.time_ns < self.min_share * facts.step_ns or unfused.drops or not fused.expected_ns:
            return
        both = "forward and backward, " if facts.trains else ""
        sites = _sites_of(facts, unfused.calls)
        yield self.finding(
            why=(
                f"Unfused attention (matmul, softmax, matmul) takes {ms(fused.time_ns)} of {each_step(facts)}, "
                f"{both}{ms(fused.other_ns)} of it between the matmuls."
            ),
            saving=fused.price,
            evidence=site_evidence(facts, sites),
            fix=Fix(f"{ON_CPU}.", edits=[CALL]),
        )

    def _math_backend_on_cpu(self, facts: Facts) -> Findings:
        """Only with a reason that the trace shows: without one there is nothing to change."""
        math = facts.cpu_math_attention
        fused = fused_attention(facts, math)
        if not len(math.calls) or fused.time_ns < self.min_share * facts.step_ns or not fused.expected_ns:
            return
        if (unmet := cpu_requirement(facts, math.calls)) is None:
            return
        fix, ends_dropout = unmet
        calls, sites = len(math.calls) / facts.steps.count, _sites_of(facts, math.calls)
        yield self.finding(
            title=MATH_TITLE,
            effort=Effort.ONE_LINE,
            why=(
                f"scaled_dot_product_attention runs on its math backend {times(facts, calls)}, which takes "
                f"{ms(fused.time_ns)} of {each_step(facts)}, {ms(fused.other_ns)} of it between the matmuls."
            ),
            saving=fused.price,
            evidence=[Evidence("Math backend", us(fused.time_ns), calls), *site_evidence(facts, sites)],
            fix=fix,
            risk=Risk.CONVERGENCE if ends_dropout else None,
            risk_note=NO_DROPOUT if ends_dropout else None,
        )

    def passed(self, facts: Facts) -> str:
        if facts.has_gpu:
            written, math = facts.unfused_attention, facts.math_attention
            shares = [(one.product_ns + one.other_ns) / facts.steps.window_ns for one in (written, math)]
            reason = ""
        else:
            shares = [one.area.total / facts.steps.window_ns for one in (facts.cpu_attention, facts.cpu_math_attention)]
            drops = " It uses dropout, for which a CPU has no fused operator." if facts.cpu_attention.drops else ""
            reason = drops or (" The trace does not show why." if shares[1] >= self.min_share else "")
        return (
            f"Unfused attention takes {percent(shares[0])} of {the_step(facts)}, and the math backend of "
            f"scaled_dot_product_attention {percent(shares[1])}.{reason}"
        )


def _sites_of(facts: Facts, calls: I8) -> list[SiteCost]:
    return by_site(facts, calls)
