"""Convolutions and attention by shape: GPU time, achieved FLOP/s, and their share of the device's peak."""

from __future__ import annotations

import msgspec
import numpy as np

from traceopt.analyzer.arrays.grouping import group_rows, split
from traceopt.analyzer.facts import Facts
from traceopt.analyzer.vocabulary.formulas.flop_formulas import argument_sizes
from traceopt.analyzer.vocabulary.gemm_ops import is_gemm
from traceopt.document.tables.kernel_rates import roof_point
from traceopt.result.sections.work_rows import ShapedOperator
from traceopt.result.words.rounding import rate, rounded, us
from traceopt.rules.evidence import locations_of

MAX_ROWS = 200


def shaped_operators(facts: Facts) -> list[ShapedOperator]:
    """Longest first, at most MAX_ROWS; empty without a GPU or shapes. Matmuls are in a table of their own."""
    flops, gpu, trace = facts.flops, facts.gpu, facts.trace
    counted = flops.counted
    if not facts.has_gpu or not len(counted.slices):
        return []
    others = np.array([not is_gemm(name) for name in trace.names])[facts.slices.name[counted.slices]]
    work = np.flatnonzero((flops.owner >= 0) & gpu.is_inside)
    work = work[others[flops.owner[work]]]
    if not len(work):
        return []
    time_ns = np.bincount(flops.owner[work], weights=gpu.in_window[work], minlength=len(counted.slices))
    ran = np.flatnonzero(time_ns > 0)
    row = facts.slices.row[counted.slices[ran]]
    ops = trace.ops
    first, group = group_rows(ops.name[row], ops.dims[row], ops.types[row], ops.concrete[row])
    total = np.bincount(group, weights=time_ns[ran])
    shown = np.argsort(-total, kind="stable")[:MAX_ROWS]
    of_shape = split(np.arange(len(ran)), group, len(first))
    places = locations_of(facts, counted.slices[ran[first[shown]]].tolist())
    accelerator = facts.device.accelerator
    out = []
    for index, place in zip(shown.tolist(), places, strict=True):
        mine = ran[of_shape[index]]
        kernels = work[np.isin(flops.owner[work], mine)]
        longest = int(kernels[gpu.in_window[kernels].argmax()])
        dtype = flops.dtype_of(longest)
        tflops = float(counted.executed[mine].sum() / total[index]) / 1e3
        peak = accelerator.peak(dtype) if accelerator and dtype else None
        elements, flop = float(counted.elements[mine].sum()), float(counted.executed[mine].sum())
        point = roof_point(tflops, elements, flop, dtype, accelerator)
        used = gpu.tensor_core[kernels[facts.tensor_core_work.eligible[kernels]]]
        op_row = int(row[first[index]])
        name = trace.names[ops.name[op_row]]
        out.append(
            ShapedOperator(
                name=name,
                sizes=argument_sizes(name, _json(ops.dims[op_row], facts), _json(ops.concrete[op_row], facts)),
                dtype=dtype,
                calls_per_step=rate(len(mine) / facts.steps.count),
                us_per_step=us(total[index] / facts.steps.count),
                tflops=round(tflops, 6),
                peak_share=None if not peak else round(tflops / peak, 6),
                tensor_core=True if (used == 1).any() else False if len(used) and (used == 0).all() else None,
                location=place,
                gb_per_s=rounded(point.gb_per_s),
                intensity=rounded(point.intensity),
                roof=point.roof,
                roof_share=rounded(point.roof_share),
            )
        )
    return out


def _json(text: int, facts: Facts) -> object:
    try:
        return msgspec.json.decode(facts.trace.texts[text]) if text >= 0 else None
    except msgspec.DecodeError:
        return None
