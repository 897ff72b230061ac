"""What a matrix product would take if it ran as its device allows: bounds for savings of shapes and types."""

from __future__ import annotations

from collections.abc import Sequence

from traceopt.analyzer.arrays.percentiles import percentiles
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.vocabulary.architectures import DTYPE_BYTES
from traceopt.analyzer.work.gemms import GemmShape

HBM_SHARE = 0.8  # of the memory bandwidth's peak that a product can reach
_SIMILAR_SIZE = 8  # times fewer or more FLOP a call
_SIMILAR_INTENSITY = 4


def peak_caveat(facts: Facts, *figures: str) -> str:
    """ " (peak unverified)" or " (peak from your settings)" behind what rests on these peak rates, else nothing."""
    accelerator = facts.device.accelerator
    caveat = accelerator.caveat(*figures) if accelerator else ""
    return f" ({caveat})" if caveat else ""


def memory_ns(facts: Facts, shape: GemmShape, dtype: str) -> float:
    """Time to move the operands and the result of all calls once; 0 where the bandwidth is not known."""
    accelerator = facts.device.accelerator
    bandwidth = accelerator.hbm_gb_per_s if accelerator else None
    return shape.least_bytes(DTYPE_BYTES.get(dtype, 2)) / (bandwidth * HBM_SHARE) if bandwidth else 0.0


def at_rate_ns(facts: Facts, shape: GemmShape, tflops: float, dtype: str) -> float:
    """Time of all calls at a compute rate, bounded by memory, never above what was measured."""
    return min(float(shape.duration_ns), max(shape.flops / (tflops * 1e3), memory_ns(facts, shape, dtype)))


def intensity(shape: GemmShape) -> float:
    """FLOP for each byte that must be moved."""
    return shape.flops / max(1, shape.least_bytes(DTYPE_BYTES.get(shape.dtype, 2)))


def alignment_gains_ns(
    facts: Facts, shapes: Sequence[GemmShape], fallback_speedup: float
) -> list[tuple[float, float, float]]:
    """Low, expected and high gain of padding each shape, over the window.

    The rate to expect is that of aligned products of the same type, about the same size and intensity in the same
    trace: their quartiles. Without any, `fallback_speedup`, give or take a part.
    """
    aligned: dict[str, list[tuple[float, float, float]]] = {}  # by type: FLOP of a call, intensity, rate
    for shape in facts.gemms.shapes if shapes else ():
        if shape.tflops and facts.gemms.aligned(shape):
            aligned.setdefault(shape.dtype, []).append((shape.flops / shape.calls, intensity(shape), shape.tflops))
    return [_alignment_gain_ns(facts, shape, aligned.get(shape.dtype, []), fallback_speedup) for shape in shapes]


def _alignment_gain_ns(
    facts: Facts, shape: GemmShape, aligned: list[tuple[float, float, float]], fallback_speedup: float
) -> tuple[float, float, float]:
    size, own = shape.flops / shape.calls, intensity(shape)
    rates = [
        rate
        for flops, its, rate in aligned
        if size / _SIMILAR_SIZE <= flops <= size * _SIMILAR_SIZE
        and 1 / _SIMILAR_INTENSITY <= its / own <= _SIMILAR_INTENSITY
    ]
    now = shape.tflops or 0.0
    usual = now * fallback_speedup
    expected = percentiles(rates, 25, 50, 75) if rates else [usual * 0.67, usual, usual * 1.25]
    low, est, high = (
        shape.duration_ns - at_rate_ns(facts, shape, max(rate, now), shape.dtype) if now else 0.0 for rate in expected
    )
    return low, est, high
