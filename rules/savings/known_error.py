"""How exact predicted savings are known to be: no stated range is narrower."""

from __future__ import annotations

from traceopt.rules.savings.price import Price

# Of a predicted saving: all measured gains differ from their prediction by this share or less, as
# `python benchmarks/savings/widths.py` computes from the measured pairs (docs/accuracy.md). There are too few pairs of
# one kind of fix for a width of its own.
ERROR_ON_CPU, ERROR_ON_GPU = 0.27, 0.24
MAX_SAVED_SHARE = 0.95  # of the step; something always remains


def known_error(has_gpu: bool) -> float:
    """The error of a saving of a run with or without a GPU."""
    return ERROR_ON_GPU if has_gpu else ERROR_ON_CPU


def known_range(low: float, expected: float, high: float, error: float) -> tuple[float, float]:
    """Both ends of a saving's range, at least as far from the expected saving as the known error."""
    return min(low, (1 - error) * expected), max(high, (1 + error) * expected)


def saving_of_step(step_ns: float, low_ns: float, est_ns: float, high_ns: float, basis: str, error: float) -> Price:
    """A saving in ns per step: low <= est <= high, at least as wide as the known error, but never all of the step."""
    most = MAX_SAVED_SHARE * step_ns
    est = min(max(0.0, est_ns), most)
    low, high = known_range(max(0.0, low_ns), est, high_ns, error)
    share = round(est / step_ns, 6) if step_ns else 0.0
    bounds_ns = low, est, max(est, high_ns)
    return Price(round(low), round(est), round(min(high, most)), share, basis, bounds_ns, error=error)
