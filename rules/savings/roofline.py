"""How long a matmul would take at the device's limits: bounds for savings from shapes and data types."""

from __future__ import annotations

from collections.abc import Sequence

from traceopt.analyzer.arrays.percentiles import percentiles
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.vocabulary.architectures import DTYPE_BYTES
from traceopt.analyzer.work.gemms import GemmShape

HBM_SHARE = 0.8  # of the peak memory bandwidth that a kernel can reach
_LARGER = 8  # matmuls to compare with have at most 8 times more FLOP per call: larger ones are faster
_SIMILAR_INTENSITY = 4  # and at most 4 times lower or higher intensity


def peak_caveat(facts: Facts, *figures: str) -> str:
    """A caveat for numbers based on these peak rates: " (peak unverified)", " (peak from your settings)" or ""."""
    accelerator = facts.device.accelerator
    caveat = accelerator.caveat(*figures) if accelerator else ""
    return f" ({caveat})" if caveat else ""


def memory_ns(facts: Facts, shape: GemmShape, dtype: str) -> float:
    """Time to move the operands and the result of all calls once; 0 if the bandwidth is unknown."""
    accelerator = facts.device.accelerator
    bandwidth = accelerator.hbm_gb_per_s if accelerator else None
    return shape.least_bytes(DTYPE_BYTES.get(dtype, 2)) / (bandwidth * HBM_SHARE) if bandwidth else 0.0


def at_rate_ns(facts: Facts, shape: GemmShape, tflops: float, dtype: str) -> float:
    """Time of all calls at a compute rate, bounded by memory bandwidth and never above the measured time."""
    at_limit = max(shape.flops / (tflops * 1e3), memory_ns(facts, shape, dtype))
    return shape.duration_ns * min(1.0, at_limit / max(1, shape.kernel_ns))


def too_narrow(alignment: int | None, dtype: str | None) -> bool:
    """Whether a kernel loads its operands in pieces of so few elements that it must be one for misaligned operands."""
    return alignment is not None and alignment * DTYPE_BYTES.get(dtype or "fp16", 2) < 8


def alignment_gains_ns(
    facts: Facts, shapes: Sequence[GemmShape], fallback_speedup: float
) -> list[tuple[float, float, float]]:
    """Low, expected and high gain of padding each shape, over the window.

    The expected rates are the quartiles of aligned matmuls in the same trace with the same data type and similar
    intensity that are not much larger; a kernel for misaligned operands is no aligned matmul. Without any, the rates
    are 0.67, 1 and 1.25 times `fallback_speedup`.
    """
    aligned: dict[str, list[tuple[float, float, float]]] = {}  # by data type: FLOP per call, intensity, TFLOP/s
    for shape in facts.gemms.shapes if shapes else ():
        if shape.tflops and facts.gemms.aligned(shape) and not too_narrow(shape.kernel_alignment, shape.dtype):
            aligned.setdefault(shape.dtype, []).append((shape.flops / shape.calls, shape.intensity, shape.tflops))
    return [_alignment_gain_ns(facts, shape, aligned.get(shape.dtype, []), fallback_speedup) for shape in shapes]


def _alignment_gain_ns(
    facts: Facts, shape: GemmShape, aligned: list[tuple[float, float, float]], fallback_speedup: float
) -> tuple[float, float, float]:
    size, own = shape.flops / shape.calls, shape.intensity
    rates = [
        rate
        for flops, its, rate in aligned
        if flops <= size * _LARGER and 1 / _SIMILAR_INTENSITY <= its / own <= _SIMILAR_INTENSITY
    ]
    now = shape.tflops or 0.0
    usual = now * fallback_speedup
    expected = percentiles(rates, 25, 50, 75) if rates else [usual * 0.67, usual, usual * 1.25]
    low, est, high = (
        shape.duration_ns - at_rate_ns(facts, shape, max(rate, now), shape.dtype) if now else 0.0 for rate in expected
    )
    return low, est, high
