"""Which work runs in FP32 and TF32, and what a narrower dtype would save: shared by precision rules."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
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


def tf32_work(facts: Facts) -> Mask:
    """Matmuls, convolutions and attention of FP32 tensors on Tensor Cores. Shape (len(gpu.work),)."""
    work = facts.tensor_core_work
    return work.eligible & ~work.unused & work.dtype.among("tf32")


class Wide(Struct, frozen=True):
    """Work in FP32 or TF32, and how many times as fast it is in the narrower dtype, if no better source knows: low,
    expected and high, at most the ratio of the peaks.
    """

    work: Mask  # shape (len(gpu.work),)
    dtype: str  # "fp32" or "tf32"
    speedups: tuple[float, float, float]


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


def peak_ratio(facts: Facts, dtype: str, wide: str = "fp32") -> float | None:
    """How many times the peak of a wide dtype the device reaches in a dtype; None if neither the peaks nor its family
    tell.
    """
    accelerator = facts.device.accelerator
    slow, fast = (accelerator.peak(name) if accelerator else None for name in (wide, dtype))
    if fast and slow:
        return fast / slow
    if dtype == "fp64":  # which differs between GPUs that run the same kernels
        return fp64_ratio(facts.device.arch) if facts.device.name else None
    slow, fast = (geforce_ratio(facts.device.name or "", facts.device.arch, name) for name in (wide, dtype))
    return fast / slow if fast and slow else None


def narrow_saving(facts: Facts, wide: Sequence[Wide], dtype: str, pointwise: float = 0.0) -> Price:
    """Kernel time that a narrower dtype saves.

    FP32 matmuls with a recorded shape are priced by the device's roofline in `dtype`, if nobody measured them.
    `pointwise` is the share of the memory-bound kernels' time that narrower tensors may save; half of it is expected.
    """
    shapes = [shape for part in wide for shape in _shapes(facts, part.dtype)]
    products = _measured_products(facts, shapes, dtype)
    casts_ns = 0.0 if facts.infers or dtype == "tf32" else _casts_ns(facts, shapes)
    counted = np.logical_or.reduce([part.work for part in wide])
    attention = np.zeros_like(counted) if dtype == "tf32" else _fp32_attention(facts) & ~counted
    parts = [_gains(facts, part, part.work | attention & (part.dtype == "fp32"), dtype, products) for part in wide]
    light = facts.gpu.is_kernel & facts.gpu.kind.among(*FUSIBLE_KINDS)
    light &= ~(facts.regions.update_work | facts.regions.work_under(facts.regions.zero_grad))  # the weights stay FP32
    light_ns = facts.gpu.spent_ns(light) / facts.steps.count * pointwise
    light_gains = (0.0, 0.5 * light_ns, light_ns)
    gains = [max(0.0, sum(part.gains_ns[at] for part in parts) - casts_ns) for at in range(3)]
    variants = []
    for at, gain_ns in enumerate(gains):
        whole_ns = sum(part.gains_ns[at] for part in parts)
        kept = gain_ns / whole_ns if whole_ns else 0.0
        changes = [change for part in parts for change in shorter(facts, part.work, part.gains_ns[at] * kept)]
        variants.append([*changes, *shorter(facts, light, light_gains[at])])
    bounds = gains[0], gains[1] + light_gains[1], gains[2] + light_gains[2]
    main = max(parts, key=lambda part: part.gains_ns[1])
    basis = f"{products.source.words}. Assumes that these kernels run at {main.words}."
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


class _Gains(Struct, frozen=True):
    """What work saves per step: low, expected and high. `words`: at which speed."""

    work: Mask
    gains_ns: tuple[float, float, float]
    words: str


def _gains(facts: Facts, wide: Wide, work: Mask, dtype: str, products: MeasuredWork) -> _Gains:
    time_ns = facts.gpu.spent_ns(work) / facts.steps.count
    accelerator = facts.device.accelerator
    narrow = accelerator.peak(dtype) if accelerator else None
    known = peak_ratio(facts, dtype, wide.dtype)
    speedups = [max(1.0, speedup if known is None else min(speedup, known)) for speedup in wide.speedups]
    shapes = [
        s for s in facts.gemms.shapes if s.dtype == wide.dtype and (s.tensor_core is False) is (s.dtype == "fp32")
    ]
    shaped_ns = sum(s.duration_ns for s in shapes) / facts.steps.count
    of_shapes: Sequence[float] = (0.0, 0.0, 0.0)
    speed = f"{count(speedups[0])} to {count(speedups[2])} times the speed"
    if products.speedup is not None:
        shaped_ns = sum(part.time_ns for part in products.parts if _dtype(part) == wide.dtype)
        of_shapes = products.gains_ns(shaped_ns)
        speed = f"{products.speedup:.1f} times the speed where shapes were recorded"
    elif narrow and wide.dtype == "fp32":
        left = (
            sum(at_rate_ns(facts, s, narrow * efficiency, dtype) for s in shapes) / facts.steps.count
            for efficiency in ROOFLINE_EFFICIENCY
        )
        of_shapes = [max(0.0, shaped_ns - left_ns) for left_ns in left]
        if shaped_ns:
            roofline = f"the {dtype} roofline ({percent(ROOFLINE_EFFICIENCY[1])} of the peak)"
            speed = f"{roofline} if shapes were recorded, else {speed}"
    else:
        shaped_ns = 0.0
    rest_ns = max(0.0, time_ns - shaped_ns)
    low, expected, high = (
        rest_ns * (1 - 1 / speedup) + gain_ns for speedup, gain_ns in zip(speedups, of_shapes, strict=True)
    )
    peak = "a higher peak rate" if known is None else f"{known:.0f} times the peak rate"
    caveat = peak_caveat(facts, wide.dtype, dtype, "hbm_gb_per_s") if narrow else ""
    return _Gains(work, (low, expected, high), f"{speed}; {dtype} has {peak}{caveat}")


def _dtype(part: Part) -> str | None:
    before = part.comparison.before if part.comparison is not None else None
    return before.dtype if isinstance(before, Matmul | Attention) else None


def _shapes(facts: Facts, dtype: str) -> list[GemmShape]:
    """The matmuls in TF32, or in FP32 on kernels known not to use Tensor Cores."""
    return [s for s in facts.gemms.shapes if s.dtype == dtype and (s.tensor_core is False) is (dtype == "fp32")]


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
