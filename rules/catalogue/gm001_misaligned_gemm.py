"""GM001: matmuls with an N or K that is not aligned for Tensor Cores."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from traceopt.analyzer.vocabulary.architectures import needed_multiple
from traceopt.result.experiments import DTYPES, Comparison
from traceopt.result.words.kernel_names import gemm_name
from traceopt.rules import (
    OP,
    TENSOR_CORE,
    Effort,
    Evidence,
    Facts,
    Findings,
    Fix,
    GemmShape,
    Location,
    Mask,
    Risk,
    Rule,
    each_step,
    location_of,
    ms,
    named,
    peak_caveat,
    per_second,
    per_step,
    priced_work,
    short_name,
    threshold,
    work_of,
)
from traceopt.rules.savings.measured import MeasuredWork, Part, measured
from traceopt.rules.savings.roofline import alignment_gains_ns, too_narrow


class MisalignedGemm(Rule):
    """Measures matmuls on Tensor Cores whose N or K (the contiguous dimensions) is not a multiple of 16 bytes: 8
    elements of a 16-bit dtype, 4 of TF32, 16 of an 8-bit dtype. M alone is harmless. If shapes were not recorded (CUDA
    graphs), kernels named `align1` or `align2` count.

    Why it costs: the operands can only be loaded in small pieces, and a slower kernel is chosen. The loss is estimated
    from aligned matmuls of the same dtype and similar size in the same trace, or from a factor of two if there are
    none.

    How to fix: pad the dimension at its source.

        vocab_size = (50257 + 63) // 64 * 64        # 50304: the classic case
        hidden = (hidden + 63) // 64 * 64           # SwiGLU widths such as 8/3 x d
        x = F.pad(x, (0, -x.shape[-1] % 8))         # odd feature counts

    For sequence lengths in attention, pad them or use a fused attention kernel (AT001).

    A padded width or vocabulary belongs to a new model: weights of the old sizes have to be padded, too. Words that are
    only padding get a part of the softmax until the training has pushed them down.

    When it is wrong: memory-bound matmuls lose little, so the roofline bounds the estimate. New cuBLAS versions hide
    part of the loss.

    Sources: NVIDIA, "Matrix Multiplication Background User's Guide", section on Tensor Core requirements.
    """

    code = "GM001"
    name = "misaligned-gemm"
    title = f"Pad matmul dimensions for {TENSOR_CORE}s"
    family = "matrix shapes"
    effort = Effort.ONE_LINE
    risk = Risk.OTHER
    risk_note = "Checkpoints have the old sizes"
    confidence = "medium"
    requires = ("gpu",)

    min_share: float = threshold(0.005, "smallest saving, as a share of the step, to report")
    fallback_speedup: float = threshold(2.0, "speed-up to expect if the trace has no aligned matmul to compare with")

    def applies(self, facts: Facts) -> str | None:
        kernels = facts.tensor_core_work.used & facts.gpu.kind.among("gemm")
        return None if kernels.any() else f"No matmul runs on {TENSOR_CORE}s in this trace."

    def check(self, facts: Facts) -> Findings:
        shapes = _misaligned(facts)
        gains = alignment_gains_ns(facts, shapes, self.fallback_speedup)
        priced = [(gain, shape) for gain, shape in zip(gains, shapes, strict=True) if gain[2] > 0]
        priced.sort(key=lambda p: -p[0][1])
        low, est, high = (sum(gain[i] for gain, _ in priced) for i in range(3))
        shapes = [shape for _, shape in priced]
        sizes = measured(facts, [_part(facts, shape) for shape in shapes])
        if sizes.speedup is not None:
            low, est, high = sizes.gains_ns(sum(s.duration_ns for s in shapes))
        unnamed, kernels = self._without_shapes(facts)
        unnamed_ns = int(facts.gpu.step_ns[unnamed].sum())
        gain = 1 - 1 / self.fallback_speedup
        est, high = est + unnamed_ns * gain, high + unnamed_ns * min(1.0, 1.5 * gain)
        low += unnamed_ns * 0.4 * gain
        count = facts.steps.count
        if est / count < self.min_share * facts.step_ns:
            return
        time = sum(s.duration_ns for s in shapes) + unnamed_ns
        yield self.finding(
            why=(
                f"Matmuls with an N or K that {TENSOR_CORE}s cannot load at full width take {ms(time / count)} of "
                f"{each_step(facts)}{_example(shapes)}."
            ),
            saving=replace(
                priced_work(
                    facts,
                    work_of(facts, shapes) | unnamed,
                    (low / count, est / count, high / count),
                    self._basis(facts, sizes),
                ),
                experiments=sizes.experiments,
            ),
            evidence=[*(_evidence(facts, s) for s in shapes[:5]), *kernels],
            locations=[place for s in shapes[:5] if (place := _location(facts, s)) is not None][:3],
            fix=Fix(_fix_text(facts, shapes) + ("" if facts.trains else LOADED), _fix_code(facts, shapes)),
            shares_cause_with=["AT001"] if any("bmm" in s.op for s in shapes) else [],
        )

    def _basis(self, facts: Facts, sizes: MeasuredWork) -> str:
        if sizes.speedup is not None:
            return f"{sizes.source.words}: padded, {sizes.speedup:.1f} times as fast."
        return (
            "Assumes the rate of aligned matmuls of the same dtype and similar size in this trace, else "
            f"{self.fallback_speedup:g} times the speed; bounded by memory bandwidth"
            f"{peak_caveat(facts, 'hbm_gb_per_s')}."
        )

    def _without_shapes(self, facts: Facts) -> tuple[Mask, list[Evidence]]:
        """Kernels with a small alignment in their name and no recorded shape, and their evidence."""
        gpu = facts.gpu
        narrow = gpu.of_class(lambda kernel: too_narrow(kernel.alignment, kernel.dtype)) & gpu.kind.among("gemm")
        owned = np.zeros(len(facts.trace.ops) + 1, bool)
        for shape in facts.gemms.shapes:
            owned[shape.rows] = True
        mask = facts.tensor_core_work.used & narrow & gpu.is_inside & ~owned[facts.links.op]
        return mask, [
            Evidence(
                named(short_name(one.name)), round(one.total / facts.steps.count / 1e3, 3), detail="shape not recorded"
            )
            for one in facts.work_by_name(mask)[:3]
        ]

    def passed(self, facts: Facts) -> str:
        if not facts.gemms.shapes:
            return "No kernel name shows a small alignment; shapes were not recorded."
        bad = sum(shape.duration_ns for shape in _misaligned(facts))
        return f"Misaligned matmuls take {ms(bad / facts.steps.count)} {per_step(facts)}; padding would save little."


def _misaligned(facts: Facts) -> list[GemmShape]:
    """Matmuls with a misaligned N or K, or with a kernel for misaligned operands: if transposed, M is contiguous too.

    FP32 needs no alignment, unless TF32 is on and only the alignment keeps this matmul from using it.
    """
    tf32_on = any(shape.dtype == "tf32" for shape in facts.gemms.shapes)
    return [
        shape
        for shape in facts.gemms.shapes
        if (shape.dtype != "fp32" or tf32_on)
        and (facts.gemms.aligned(shape) is False or too_narrow(shape.kernel_alignment, shape.dtype))
        and shape.m > 1
        and shape.n > 1
    ]


def _multiple(facts: Facts, shape: GemmShape) -> int:
    least, full = needed_multiple(shape.dtype, facts.device.arch)
    return full if min(shape.n, shape.k) >= 8 * full else least


def _padded(facts: Facts, shape: GemmShape) -> list[tuple[str, int, int]]:
    """Dimensions to pad, as (name, now, padded)."""
    least, _ = needed_multiple(shape.dtype, facts.device.arch)
    multiple = _multiple(facts, shape)
    misaligned = [(name, size) for name, size in (("N", shape.n), ("K", shape.k)) if size % least]
    misaligned = misaligned or [("M", shape.m)]  # contiguous if the operand is transposed
    return [(name, size, -(-size // multiple) * multiple) for name, size in misaligned if size % least]


def _part(facts: Facts, shape: GemmShape) -> Part:
    """The matmul, and it with padded sizes."""
    padded = {name.lower(): size for name, _, size in _padded(facts, shape)}
    comparison = Comparison(shape.work, replace(shape.work, **padded)) if shape.dtype in DTYPES else None
    return Part(shape.duration_ns / facts.steps.count, comparison)


def _example(shapes: list[GemmShape]) -> str:
    if not shapes:
        return ""
    s = shapes[0]
    batch = f"{s.batch} x " if s.batch > 1 else ""
    return f" (most expensive: {batch}M={s.m}, N={s.n}, K={s.k} in {s.dtype})"


LOADED = " Pad the weights with zeros when they are loaded, and drop the extra part of the result."
LARGEST_HEAD = 256  # that fused attention supports; models have no larger

# What a padded size is in the user's model, and the line that sets it.
_ROLES = {
    "vocabulary": "vocab_size = {padded}  # was {now}; nothing predicts the extra tokens",
    "head size": "head_dim = {padded}  # was {now}; change the number of heads with it",
    "tokens or samples of the batch": "x = F.pad(x, (0, 0, 0, {padded} - {now}))  # mask the padding in the result",
    "sequence length": "x = F.pad(x, (0, 0, 0, {padded} - {now}))  # (batch, sequence, width); mask it in attention",
    "dimension": "x = F.pad(x, (0, {padded} - {now}))  # zeros; drop the extra part of the result",
    "SwiGLU width": "ffn_hidden = {padded}  # was {now}: 8/3 of the hidden size, rounded up",
    "width": "width = {padded}  # was {now}; the extra columns are masked or ignored",
}


def _role(facts: Facts, shape: GemmShape, now: int) -> str:
    """What a size most likely is in the model, judged by its matmul. Only a softmax between batched matmuls proves that
    they are attention.
    """
    if shape.batch > 1:
        if not (work_of(facts, [shape]) & facts.unfused_attention.mask).any():
            return "dimension"
        return "head size" if _is_head_size(shape, now) else "sequence length"
    if now == facts.gemms.batch_rows(shape):
        return "tokens or samples of the batch"
    if now >= 20_000 and now == max(shape.m, shape.n, shape.k):
        return "vocabulary"
    others = [size for size in (shape.n, shape.k) if size != now]
    return "SwiGLU width" if any(abs(now / size / (8 / 3) - 1) < 0.05 for size in others) else "width"


def _is_head_size(shape: GemmShape, size: int) -> bool:
    """Whether N or K of an attention's product is the head size; the other sizes count tokens.

    The scores are tokens x tokens from K = the head size, and the output is tokens x the head size. In self-attention
    the other of N and K therefore equals M. With other keys than queries, a size like 64 is the head's.
    """
    other = shape.k if size == shape.n else shape.n
    if size in (shape.m, other) or size > LARGEST_HEAD:
        return False
    return other == shape.m or other > LARGEST_HEAD or other % 8 != 0


def _fix_text(facts: Facts, shapes: list[GemmShape]) -> str:
    sizes: dict[int, tuple[str, int]] = {}
    for shape in shapes[:5]:
        for _, now, padded in _padded(facts, shape):
            sizes.setdefault(now, (_role(facts, shape, now), padded))
    if not sizes:
        return "Pad the dimensions of the layers behind these kernels to multiples of 64 elements."
    listed = ", ".join(f"{role} {now} to {padded}" for now, (role, padded) in list(sizes.items())[:4])
    return f"Pad the size at its source: {listed}."


def _fix_code(facts: Facts, shapes: list[GemmShape]) -> str:
    for shape in shapes:
        for _, now, padded in _padded(facts, shape):
            return _ROLES[_role(facts, shape, now)].format(now=now, padded=padded)
    return "size = (size + 63) // 64 * 64"


def _location(facts: Facts, shape: GemmShape) -> Location | None:
    return location_of(facts, int(facts.slices.of(OP, len(facts.trace.ops))[shape.rows[0]]))


def _evidence(facts: Facts, shape: GemmShape) -> Evidence:
    rate = f", {per_second(shape.tflops, 'TFLOP')}" if shape.tflops else ""
    bad = ", ".join(f"{name}={now}" for name, now, _ in _padded(facts, shape))
    return Evidence(
        what=named(gemm_name(shape)),
        us_per_step=round(shape.duration_ns / facts.steps.count / 1e3, 3),
        calls_per_step=round(shape.calls / facts.steps.count, 3),
        detail=f"misaligned: {bad}{rate}" if bad else f"kernel for misaligned operands{rate}",
        location=_location(facts, shape),
    )
