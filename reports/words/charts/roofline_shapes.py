"""The shapes of matmuls, convolutions and attention whose place in the roofline is known."""

from __future__ import annotations

from collections.abc import Iterator

from traceopt.result.document import Result
from traceopt.result.sections.work_rows import Gemm, ShapedOperator
from traceopt.result.words import quantities


def roofline_shapes(result: Result, rows: int) -> Iterator[tuple[str, Gemm | ShapedOperator, str]]:
    """Anchor, row and name of the shapes whose place in the roofline is known."""
    for number, gemm in enumerate(result.gemms[:rows], 1):
        batch = f"{gemm.batch} x " if gemm.batch > 1 else ""
        if gemm.roof_share is not None:
            yield f"gemms-{number}", gemm, f"{gemm.op} {batch}{gemm.m}x{gemm.n}x{gemm.k}"
    for number, op in enumerate(result.shaped_ops[:rows], 1):
        if op.roof_share is not None:
            yield f"shaped-{number}", op, f"{op.name} {op.sizes}"


def shape_text(name: str, row: Gemm | ShapedOperator) -> str:
    reached = f"{quantities.flop_rate(row.tflops or 0.0)} at {quantities.rate_number(row.intensity)} FLOP/B"
    limit = "memory bandwidth" if row.roof == "memory" else f"{row.dtype} peak"
    return f"{name} {row.dtype}: {reached}, {quantities.percent(row.roof_share)} of the {limit}"
