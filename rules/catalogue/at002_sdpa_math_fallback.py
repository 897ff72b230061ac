"""AT002: scaled_dot_product_attention falls back to its math path."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from traceopt.analyzer.facts import Facts
from traceopt.analyzer.timeline.call_tree import OP
from traceopt.analyzer.vocabulary import op_names
from traceopt.analyzer.work.attention import SDPA
from traceopt.result.finding import Confidence, Evidence, Fix
from traceopt.result.quantities import ms, percent
from traceopt.rules.evidence import by_site, site_locations
from traceopt.rules.rule import Findings, Rule, threshold
from traceopt.rules.savings.precision import kernel_evidence
from traceopt.rules.savings.pricing import priced_work

MAX_HEAD = 256  # the largest head that the flash kernels take
UNKNOWN = (
    "The trace does not tell why: nested tensors, a mask that needs a gradient, or a switched-off kernel are left.",
    "with torch.nn.attention.sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]):\n"
    "    out = F.scaled_dot_product_attention(q, k, v)  # warns why neither takes it",
)


class SdpaMathFallback(Rule):
    """Measures the GPU time of `scaled_dot_product_attention` where it runs as products and a softmax of their own, and
    says which condition of the fused kernels is not met, as far as shapes and types tell.

    Why it costs: the math path writes the whole score matrix to memory, several times. The fused kernels (flash,
    memory-efficient, cuDNN) never do.

    How to fix: meet the one condition that is not met.

        q, k, v = (t.unflatten(0, (batch, heads)) for t in (q, k, v))   # four dimensions
        mask = mask.to(q.dtype)                                          # or boolean
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    Flash takes FP16 and BF16 with heads up to 256 and no mask but the causal one; the memory-efficient kernel takes
    FP32 and masks too.

    When it is wrong: for very short sequences the math path is as fast. Deterministic algorithms may forbid the others.

    Sources: PyTorch documentation of scaled_dot_product_attention and torch.nn.attention.
    """

    code: ClassVar[str] = "AT002"
    name: ClassVar[str] = "sdpa-math-fallback"
    title: ClassVar[str] = "Let scaled_dot_product_attention use a fused kernel"
    family: ClassVar[str] = "attention"
    effort: ClassVar[str] = "One line"
    risk: ClassVar[str] = "Changes rounding"
    confidence: ClassVar[Confidence] = "medium"
    requires: ClassVar[tuple[str, ...]] = ("gpu", "launches", "ops")

    min_share: float = threshold(0.02, "smallest time of the math path, as a share of the step, to report")

    def applies(self, facts: Facts) -> str | None:
        named = SDPA in facts.trace.names or len(facts.math_attention.calls)
        return None if named else "scaled_dot_product_attention is not called in this trace."

    def check(self, facts: Facts) -> Findings:
        found, count = facts.math_attention, facts.steps.count
        time = (found.product_ns + found.other_ns) / count
        if not len(found.calls) or time < self.min_share * facts.step_ns:
            return
        text, code = _reason(facts)
        sites = by_site(facts, found.calls, (facts.slices.end - facts.slices.start)[found.calls])
        yield self.finding(
            why=(
                f"scaled_dot_product_attention runs its math path {len(found.calls) / count:,.0f} times a step, which "
                f"takes {ms(time)} of each {ms(facts.step_ns)} step. {text}"
            ),
            saving=priced_work(
                facts,
                found.mask,
                (
                    0.6 * found.other_ns / count,
                    (0.9 * found.other_ns + 0.3 * found.product_ns) / count,
                    0.9 * time,
                ),
                "A fused kernel spares what lies between the products and part of their memory traffic.",
            ),
            evidence=[
                Evidence("Math path", calls_per_step=len(found.calls) / count),
                *kernel_evidence(facts, found.mask),
            ],
            locations=site_locations(sites),
            fix=Fix(text, code),
            shares_cause_with=["AT001", "LB003"],
        )

    def passed(self, facts: Facts) -> str:
        found = facts.math_attention
        share = (found.product_ns + found.other_ns) / facts.steps.window_ns
        return f"The math path of scaled_dot_product_attention takes {percent(share)} of the step."


def _reason(facts: Facts) -> tuple[str, str]:
    """Why no fused kernel took the (first) call, and the line to change."""
    settings = facts.captured.environment
    if settings.sdp_flash is False and settings.sdp_memory_efficient is False:
        text = "The script has switched flash and memory-efficient attention off."
        return text, "torch.backends.cuda.enable_mem_efficient_sdp(True)"
    call = facts.slices.ancestor(facts.math_attention.calls[:1], facts.regions.named(lambda name: name == SDPA, OP))
    row = int(facts.slices.row[call[0]]) if call[0] >= 0 else -1
    ops = facts.trace.ops
    if row < 0 or ops.dims[row] < 0:
        return UNKNOWN
    sizes, types = _json(facts, int(ops.dims[row])), _json(facts, int(ops.types[row]))
    return _condition(sizes[:4], [op_names.profiler_dtype(str(name)) for name in types[:4]]) or UNKNOWN


def _condition(sizes: list[Any], types: list[str | None]) -> tuple[str, str] | None:
    """The condition of the fused kernels that query, key, value and mask do not meet."""
    tensors = [size for size in sizes[:3] if isinstance(size, list)]
    if len(tensors) < 3 or len(types) < 3:
        return None
    if any(len(size) != 4 for size in tensors):
        text = f"The fused kernels take four dimensions (batch, heads, tokens, size); these have {len(tensors[0])}."
        return text, "q, k, v = (t.unflatten(0, (batch, heads)) for t in (q, k, v))"
    if len(set(types[:3])) > 1:
        text = f"Query, key and value have different types ({', '.join(str(name) for name in types[:3])})."
        return text, "k, v = k.to(q.dtype), v.to(q.dtype)"
    if types[0] == "fp64":
        return "The fused kernels do not take float64.", "q, k, v = q.float(), k.float(), v.float()"
    head = tensors[0][3]
    if isinstance(head, int) and head > MAX_HEAD:
        return f"The head size {head} is above {MAX_HEAD}.", f"num_heads = hidden // {MAX_HEAD}"
    masked = len(sizes) > 3 and isinstance(sizes[3], list) and len(sizes[3]) > 0
    mask_type = types[3] if masked and len(types) > 3 else None
    if masked and mask_type not in (types[0], "bool"):
        return f"The mask is {mask_type}, the query {types[0]}.", "mask = mask.to(q.dtype)"
    if masked and isinstance(sizes[3][-1], int) and sizes[3][-1] % 8:
        text = f"The mask's last dimension ({sizes[3][-1]}) is no multiple of 8, which older versions need."
        return text, "mask = F.pad(mask, (0, -mask.shape[-1] % 8))[..., : mask.shape[-1]]"
    return None


def _json(facts: Facts, code: int) -> list[Any]:
    try:
        value = msgspec.json.decode(facts.trace.texts[code]) if code >= 0 else []
    except msgspec.DecodeError:
        return []
    return value if isinstance(value, list) else []
