"""Matmuls and convolutions of a CPU-only run by size, as experiments."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from traceopt.analyzer.arrays.grouping import group_rows, split
from traceopt.analyzer.arrays.intervals import Intervals
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.tables.json_values import listed
from traceopt.analyzer.vocabulary.formulas.flop_formulas import convolution_arguments
from traceopt.analyzer.vocabulary.gemm_ops import gemm_shape
from traceopt.analyzer.work.cpu_work import CpuOperator
from traceopt.result.experiments import DTYPES, Comparison, Convolution, Experiment, Matmul
from traceopt.rules.savings.measured import MeasuredWork, Part, measured
from traceopt.rules.savings.price import Price
from traceopt.rules.savings.pricing import area_of
from traceopt.rules.savings.work.cpu_operators import faster

Change = Callable[[Experiment], Experiment]  # what the fix makes of the work


def measured_operators(facts: Facts, operators: Sequence[CpuOperator], change: Change) -> MeasuredWork:
    """The operators by size, with what was measured of them on this machine."""
    parts = []
    for area, one in (size for operator in operators for size in _by_size(facts, operator)):
        comparison = None if one is None else Comparison(one, change(one))
        parts.append(Part(facts.steps.mean_ns(area), comparison))
    return measured(facts, parts)


def measured_price(facts: Facts, area: Intervals, work: MeasuredWork, otherwise: Price | None) -> Price | None:
    """What work that runs in this area saves with its measured speedup; `otherwise` if it was not measured."""
    price, speedup = otherwise, work.speedup
    if speedup is not None:
        price = faster(facts, [(area, speedup)], (1.0, 1.0, 1.0), f"{work.words}.")
    return None if price is None else replace(price, experiments=work.experiments)


def in_dtype(dtype: str) -> Change:
    return lambda one: replace(one, dtype=dtype)


def under_autocast(dtype: str) -> Change:
    """Matmuls whose factors are cast at each call."""
    return lambda one: replace(one, dtype=dtype, from_fp32=True)


def in_channels_last(one: Experiment) -> Experiment:
    return replace(one, channels_last=True)


def _by_size(facts: Facts, operator: CpuOperator) -> Iterator[tuple[Intervals, Experiment | None]]:
    ops = facts.trace.ops
    rows = facts.slices.row[operator.rows]
    first, group = group_rows(ops.dims[rows], ops.concrete[rows])
    for index, mine in enumerate(split(operator.rows, group, len(first))):
        row = rows[first[index]]
        dims, values = (
            listed(facts.trace.texts[code]) if code >= 0 else None for code in (ops.dims[row], ops.concrete[row])
        )
        yield area_of(facts, mine), _experiment(facts, operator, dims, values)


def _experiment(facts: Facts, operator: CpuOperator, dims: Any, values: Any) -> Experiment | None:
    if operator.dtype not in DTYPES:
        return None
    if operator.is_convolution:
        known = convolution_arguments(operator.name, dims, values)
        return None if known is None else Convolution(**known, dtype=operator.dtype, backward=facts.trains)
    shape = gemm_shape(operator.name, dims)
    return None if shape is None else Matmul(*shape, dtype=operator.dtype)
