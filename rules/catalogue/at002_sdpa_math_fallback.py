"""AT002: scaled_dot_product_attention falls back to its math backend."""

from __future__ import annotations

from typing import Any

import msgspec

from traceopt.analyzer.vocabulary import op_names
from traceopt.analyzer.work.attention import SDPA
from traceopt.rules import (
    OP,
    Evidence,
    Facts,
    Findings,
    Fix,
    Rule,
    by_site,
    each_step,
    kernel_evidence,
    ms,
    percent,
    priced_work,
    site_locations,
    the_step,
    threshold,
    times,
)

MAX_HEAD = 256  # largest head size that the flash kernels support
UNKNOWN = (
    "The trace does not show the reason. It may be nested tensors, a mask that needs a gradient, or a disabled kernel.",
    "with torch.nn.attention.sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]):\n"
    "    out = F.scaled_dot_product_attention(q, k, v)  # warns why neither backend runs",
)


class SdpaMathFallback(Rule):
    """Measures the GPU time of `scaled_dot_product_attention` calls that run on the math backend (separate matmul and
    softmax kernels). The finding names the requirement of the fused kernels that the call does not meet, as far as
    shapes and dtypes show it.

    Why it costs: the math backend writes the whole score matrix to memory several times. The fused kernels (flash,
    memory-efficient, cuDNN) never do.

    How to fix: meet the one requirement that is missing.

        q, k, v = (t.unflatten(0, (batch, heads)) for t in (q, k, v))   # four dimensions
        mask = mask.to(q.dtype)                                          # or boolean
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    The flash kernels support FP16 and BF16, head sizes up to 256, and no mask except the causal one. The
    memory-efficient kernel also supports FP32 and masks.

    When it is wrong: for very short sequences the math backend is as fast. Deterministic algorithms may rule out the
    fused kernels.

    Sources: PyTorch documentation of scaled_dot_product_attention and torch.nn.attention.
    """

    code = "AT002"
    name = "sdpa-math-fallback"
    title = "Let scaled_dot_product_attention use a fused kernel"
    family = "attention"
    effort = "One line"
    risk = "Changes rounding"
    confidence = "medium"
    requires = ("gpu", "launches", "ops")

    min_share: float = threshold(0.02, "smallest time of the math backend, as a share of the step, to report")

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
                f"scaled_dot_product_attention runs on its math backend {times(facts, len(found.calls) / count)}, "
                f"which takes {ms(time)} of {each_step(facts)}. {text}"
            ),
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
            fix=Fix(text, code),
            shares_cause_with=["AT001", "LB003"],
        )

    def passed(self, facts: Facts) -> str:
        found = facts.math_attention
        share = (found.product_ns + found.other_ns) / facts.steps.window_ns
        return f"The math backend of scaled_dot_product_attention takes {percent(share)} of {the_step(facts)}."


def _reason(facts: Facts) -> tuple[str, str]:
    """Why no fused kernel could run the first such call, and the line to change."""
    settings = facts.captured.environment
    if settings.sdp_flash is False and settings.sdp_memory_efficient is False:
        text = "The script disables flash and memory-efficient attention."
        return text, "torch.backends.cuda.enable_mem_efficient_sdp(True)"
    call = facts.slices.ancestor(facts.math_attention.calls[:1], facts.regions.named(lambda name: name == SDPA, OP))
    row = int(facts.slices.row[call[0]]) if call[0] >= 0 else -1
    ops = facts.trace.ops
    if row < 0 or ops.dims[row] < 0:
        return UNKNOWN
    sizes, types = _json(facts, int(ops.dims[row])), _json(facts, int(ops.types[row]))
    return _unmet_requirement(sizes[:4], [op_names.profiler_dtype(str(name)) for name in types[:4]]) or UNKNOWN


def _unmet_requirement(sizes: list[Any], types: list[str | None]) -> tuple[str, str] | None:
    """The requirement of the fused kernels that query, key, value and mask do not meet, and the line to change."""
    tensors = [size for size in sizes[:3] if isinstance(size, list)]
    if len(tensors) < 3 or len(types) < 3:
        return None
    if any(len(size) != 4 for size in tensors):
        text = f"The fused kernels need four dimensions (batch, heads, tokens, size); the query has {len(tensors[0])}."
        return text, "q, k, v = (t.unflatten(0, (batch, heads)) for t in (q, k, v))"
    if len(set(types[:3])) > 1:
        text = f"Query, key and value have different dtypes ({', '.join(str(name) for name in types[:3])})."
        return text, "k, v = k.to(q.dtype), v.to(q.dtype)"
    if types[0] == "fp64":
        return "The fused kernels do not support float64.", "q, k, v = q.float(), k.float(), v.float()"
    head = tensors[0][3]
    if isinstance(head, int) and head > MAX_HEAD:
        return f"The head size {head} exceeds {MAX_HEAD}.", f"num_heads = hidden // {MAX_HEAD}"
    masked = len(sizes) > 3 and isinstance(sizes[3], list) and len(sizes[3]) > 0
    mask_type = types[3] if masked and len(types) > 3 else None
    if masked and mask_type not in (types[0], "bool"):
        return f"The mask is {mask_type}, but the query is {types[0]}.", "mask = mask.to(q.dtype)"
    if masked and isinstance(sizes[3][-1], int) and sizes[3][-1] % 8:
        text = (
            f"The mask's last dimension ({sizes[3][-1]}) is not a multiple of 8, which older PyTorch versions require."
        )
        return text, "mask = F.pad(mask, (0, -mask.shape[-1] % 8))[..., : mask.shape[-1]]"
    return None


def _json(facts: Facts, code: int) -> list[Any]:
    try:
        value = msgspec.json.decode(facts.trace.texts[code]) if code >= 0 else []
    except msgspec.DecodeError:
        return []
    return value if isinstance(value, list) else []
