"""Which work runs in FP32 without Tensor Cores, and what a narrower dtype would save: shared by precision rules."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from traceopt.analyzer.arrays.grouping import distinct_values
from traceopt.analyzer.arrays.percentiles import median
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.tables.schema import Mask
from traceopt.analyzer.timeline.call_tree import OP
from traceopt.analyzer.vocabulary.architectures import fp64_ratio, geforce_ratio
from traceopt.analyzer.vocabulary.kernels.kernel_labels import short_name
from traceopt.analyzer.vocabulary.kernels.kernel_names import FUSIBLE_KINDS
from traceopt.analyzer.work.gemms import GemmShape
from traceopt.result.experiments import Attention, Comparison, Matmul
from traceopt.result.finding import Evidence
from traceopt.result.words.message import ms, named, percent
from traceopt.result.words.quantities import count
from traceopt.rules.evidence import library_around, operator_of_work, place_of_work
from traceopt.rules.savings.measured import MeasuredWork, Part, measured
from traceopt.rules.savings.price import Price
from traceopt.rules.savings.pricing import priced, shorter, within
from traceopt.rules.savings.roofline import HBM_SHARE, at_rate_ns, peak_caveat
from traceopt.rules.step_words import the_step

MUCH_LINEAR_ALGEBRA = 0.1  # of the step
CAST_BYTES = 6  # of an element: autocast reads 4 and writes 2, or the other way round for its gradient
ROOFLINE_EFFICIENCY = (0.25, 0.5, 0.9)  # of the peak: low, expected, high; devices reach 80 to 90 % at most


def fp32_work(facts: Facts) -> Mask:
    """Matmuls, convolutions and attention in FP32, on kernels known not to use Tensor Cores. Shape (len(gpu.work),)."""
    return facts.tensor_core_work.unused & facts.tensor_core_work.dtype.among("fp32", "")


def needs_precision(facts: Facts) -> str | None:
    """Why products are left in the precision that they have; None: nothing speaks for it. Rounded products can make a
    matrix singular, or not positive definite.
    """
    share = facts.linear_algebra_share
    if share < MUCH_LINEAR_ALGEBRA:
        return None
    return f"Solvers and decompositions (torch.linalg) take {percent(share)} of {the_step(facts)}: they need precision."


def mixed_share(facts: Facts) -> float:
    """Share (0..1) of the time in matmuls, convolutions and attention that runs on Tensor Cores in a type narrower than
    TF32. Fused attention and TF32 use Tensor Cores in a run without mixed precision.
    """
    work = facts.tensor_core_work
    narrow = work.used & ~work.dtype.among("fp32", "tf32")
    return work.time_ns(narrow) / work.eligible_ns if work.eligible_ns else 0.0


def peak_ratio(facts: Facts, dtype: str) -> float | None:
    """How many times the FP32 peak the device reaches in a dtype; None if neither the peaks nor its family tell."""
    accelerator = facts.device.accelerator
    wide = accelerator.peak("fp32") if accelerator else None
    narrow = accelerator.peak(dtype) if accelerator else None
    if narrow and wide:
        return narrow / wide
    if dtype == "fp64":  # which differs between GPUs that run the same kernels
        return fp64_ratio(facts.device.arch) if facts.device.name else None
    return geforce_ratio(facts.device.name or "", facts.device.arch, dtype)


def fp32_saving(
    facts: Facts, work: Mask, dtype: str, low: float, expected: float, high: float, pointwise: float = 0.0
) -> Price:
    """Kernel time that a narrower dtype saves.

    Matmuls with a recorded shape are priced by the device's roofline in `dtype`. For other work, `low`, `expected` and
    `high` are speed-ups, capped by the ratio of the peaks. `pointwise` is the share of the memory-bound kernels' time
    that narrower tensors may save; half of it is expected.
    """
    accelerator = facts.device.accelerator
    narrow = accelerator.peak(dtype) if accelerator else None
    known = peak_ratio(facts, dtype)
    ratio = high if known is None else known
    if dtype != "tf32":
        work = work | _fp32_attention(facts)
    time = facts.gpu.spent_ns(work) / facts.steps.count
    shaped = [s for s in facts.gemms.shapes if s.dtype == "fp32" and s.tensor_core is False]
    products = _measured_products(facts, shaped, dtype)
    by_shape = bool(narrow) and products.speedup is None
    shaped_ns = sum(s.duration_ns for s in shaped) / facts.steps.count if by_shape else 0.0
    if products.speedup is not None:
        shaped_ns = sum(part.time_ns for part in products.parts)
    rest = max(0.0, time - shaped_ns)
    if products.speedup is not None:
        of_shapes: Sequence[float] = products.gains_ns(shaped_ns)
    else:
        left = (
            sum(at_rate_ns(facts, s, narrow * efficiency, dtype) for s in shaped) / facts.steps.count if narrow else 0.0
            for efficiency in ROOFLINE_EFFICIENCY
        )
        of_shapes = [max(0.0, shaped_ns - left_ns) for left_ns in left]
    casts_ns = 0.0 if facts.infers or dtype == "tf32" else _casts_ns(facts, shaped)
    gains = [
        max(0.0, rest * (1 - 1 / max(1.0, min(speedup, ratio))) + gain_ns - casts_ns)
        for speedup, gain_ns in zip((low, expected, high), of_shapes, strict=True)
    ]
    light = facts.gpu.is_kernel & facts.gpu.kind.among(*FUSIBLE_KINDS)
    light &= ~(facts.regions.update_work | facts.regions.work_under(facts.regions.zero_grad))  # the weights stay FP32
    light_ns = facts.gpu.spent_ns(light) / facts.steps.count * pointwise
    light_gains = (0.0, 0.5 * light_ns, light_ns)
    peak = "a higher peak rate" if known is None else f"{known:.0f} times the peak rate"
    speed = f"{count(low)} to {count(min(high, ratio))} times the speed"
    if products.speedup is not None:
        speed = f"{products.speedup:.1f} times the speed where shapes were recorded"
    elif shaped_ns:
        roofline = f"the {dtype} roofline ({percent(ROOFLINE_EFFICIENCY[1])} of the peak)"
        speed = f"{roofline} if shapes were recorded, else {speed}"
    variants = [[*shorter(facts, work, a), *shorter(facts, light, b)] for a, b in zip(gains, light_gains, strict=True)]
    bounds = gains[0], gains[1] + light_gains[1], gains[2] + light_gains[2]
    caveat = peak_caveat(facts, "fp32", dtype, "hbm_gb_per_s") if narrow else ""
    basis = f"{products.source.words}. Assumes that these kernels run at {speed}; {dtype} has {peak}{caveat}."
    if casts_ns:
        basis += f" Casts of autocast take {ms(casts_ns)}."
    if light_ns:
        whole = ms(light_ns / pointwise)
        basis += (
            f" Narrower tensors also save up to {ms(light_ns)} of the {whole} in memory-bound kernels, half expected."
        )
    worst, best = (variants[0], variants[2]) if bounds[0] < bounds[2] else (None, None)
    price = priced(facts, bounds, variants[1], basis, low=worst, high=best)
    return replace(price, experiments=products.experiments)


def _fp32_attention(facts: Facts) -> Mask:
    """Fused attention of FP32 tensors, which other kernels do in 16 bits, whatever units they use now."""
    return facts.gpu.kind.among("attention") & facts.tensor_core_work.dtype.among("fp32", "tf32")


def _casts_ns(facts: Facts, shapes: Sequence[GemmShape]) -> float:
    """What the kernels take per step that cast both factors of each product of the forward pass, and their gradients,
    at the memory bandwidth; 0 if that is unknown. What runs between batched products is narrow already.
    """
    accelerator, steps = facts.device.accelerator, facts.steps
    bandwidth = accelerator.hbm_gb_per_s if accelerator else None
    if not bandwidth:
        return 0.0
    of_rows = facts.slices.of(OP, len(facts.trace.ops))
    elements = 0
    for shape in shapes:
        if shape.batch == 1:
            calls = of_rows[shape.rows]
            forward = np.count_nonzero(facts.slices.ancestor(calls, facts.regions.backward) < 0)
            elements += forward * shape.k * (shape.m + shape.n)
    passes = 2 if facts.trains else 1
    return float(passes * elements * CAST_BYTES / (bandwidth * HBM_SHARE) / steps.count)


def _measured_products(facts: Facts, shapes: Sequence[GemmShape], dtype: str) -> MeasuredWork:
    """Matmuls and fused attention in FP32, and in a narrower dtype. TF32 changes no attention."""
    steps = facts.steps.count
    works: list[tuple[Matmul | Attention, int, int]] = [
        (shape.work, shape.duration_ns, shape.calls) for shape in shapes
    ]
    if dtype != "tf32":
        works += [
            (call.work, call.duration_ns, call.calls) for call in facts.attention_calls if call.work.dtype == "fp32"
        ]
    return measured(
        facts,
        [
            Part(duration_ns / steps, Comparison(work, replace(work, dtype=dtype)), calls / steps)
            for work, duration_ns, calls in works
        ],
    )


def with_casts_of_autocast(facts: Facts, price: Price, work: Mask) -> Price:
    """The price with a low end from which the host's time for the casts of both factors of each product is subtracted,
    as far as the GPU is idle: autocast launches them in every step.
    """
    launches = distinct_values(facts.links.launch[facts.gpu.is_inside & (facts.links.launch >= 0)])
    if len(launches) < 2:
        return price
    dispatch_ns = median(np.diff(np.sort(facts.trace.runtime.start[launches])))
    casts = 2 * int((work & facts.gpu.is_inside).sum()) / facts.steps.count
    seen_ns = casts * dispatch_ns * facts.gpu.idle.total / facts.steps.window_ns
    basis = f"{price.basis} At worst, the host needs {ms(seen_ns)} more to launch the casts of autocast."
    return within(facts, price, max(0.0, price.low_ns - seen_ns), price.high_ns, basis)


def kernel_evidence(facts: Facts, work: Mask, limit: int = 5) -> list[Evidence]:
    """The longest kernels of a mask, each with the operator that launched it and the user's line."""
    count = facts.steps.count
    out = []
    for one in facts.work_by_name(work)[:limit]:
        longest = int(one.rows[facts.gpu.in_window[one.rows].argmax()])
        name, _ = operator_of_work(facts, longest)
        place = place_of_work(facts, longest)
        library = library_around(facts, int(facts.source_slices[longest]), place)
        out.append(
            Evidence(
                what=named(short_name(one.name)),
                us_per_step=round(one.total / count / 1e3, 3),
                calls_per_step=round(len(one.rows) / count, 3),
                detail=" in ".join(part for part in (name, library) if part) or None,
                location=place,
            )
        )
    return out
