"""GPU work in FP64, and where its data comes from."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from traceopt.analyzer.arrays.grouping import distinct_values
from traceopt.analyzer.tables.schema import I8, MEMCPY, Mask
from traceopt.analyzer.timeline.call_tree import OP
from traceopt.analyzer.timeline.regions import Regions
from traceopt.analyzer.vocabulary.kernels.kernel_names import is_math_function
from traceopt.analyzer.work.tensor_core_work import TensorCoreWork


class DoublePrecision(Struct, frozen=True):
    """Masks have the shape of the device's work."""

    products: Mask  # matmuls, convolutions and attention
    other: Mask  # other kernels
    functions: Mask  # those of them that take many operations for each number, such as sin
    copied: I8  # the operators that copy FP64 numbers to the device. Slices


def find_double_precision(regions: Regions, work: TensorCoreWork) -> DoublePrecision:
    gpu, slices, ops, texts = regions.gpu, regions.slices, regions.trace.ops, regions.trace.texts
    double = [code for code in distinct_values(ops.types).tolist() if code >= 0 and '"double"' in texts[code]]
    typed = np.isin(ops.types, double)
    of_work = regions.links.op
    copies = np.flatnonzero((gpu.work.kind == MEMCPY) & (of_work >= 0) & gpu.is_inside)
    to_device = np.array(["HtoD" in name for name in regions.trace.names] or [False])[gpu.work.name[copies]]
    rows = of_work[copies[to_device]]
    other = np.asarray(gpu.is_compute & ~work.eligible & gpu.dtype.among("fp64") & gpu.is_inside)
    kernels = distinct_values(gpu.work.name[other]).tolist()
    functions = [kernel for kernel in kernels if is_math_function(regions.trace.names[kernel])]
    return DoublePrecision(
        products=np.asarray(work.eligible & work.dtype.among("fp64") & gpu.is_inside),
        other=other,
        functions=other & np.isin(gpu.work.name, functions),
        copied=distinct_values(slices.of(OP, len(ops))[rows[typed[rows]]]).astype(np.int64),
    )
