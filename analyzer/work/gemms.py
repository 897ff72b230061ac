"""Matrix products: shape, type, rate, share of peak, alignment, and where they are called."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from msgspec import Struct

from traceopt.analyzer.arrays.grouping import distinct_values, group_rows
from traceopt.analyzer.tables.json_values import listed
from traceopt.analyzer.tables.schema import I4, I8, Mask
from traceopt.analyzer.tables.trace import Trace
from traceopt.analyzer.timeline.call_tree import OP, Slices
from traceopt.analyzer.timeline.device import TraceDevice
from traceopt.analyzer.timeline.gpu_work import GpuWork
from traceopt.analyzer.timeline.launch_links import LaunchLinks
from traceopt.analyzer.vocabulary import op_names
from traceopt.analyzer.vocabulary.architectures import DTYPE_BYTES, needed_multiple
from traceopt.analyzer.vocabulary.gemm_ops import gemm_shape, is_gemm, operand_type
from traceopt.analyzer.vocabulary.kernels.kernel_entries import MEMORY_BOUND_PRODUCT
from traceopt.result.experiments import Matmul

MOST_OF_PEAK = 1.03  # clocks may be a little above those of the datasheet
BALANCE = 10.0  # FLOP per byte that the FP32 units of any GPU since 2017 do while memory delivers the byte (A100: 12)


class GemmShape(Struct, frozen=True):
    """D[m,n] = A[m,k] B[k,n], `batch` times, of one operator and type. `rows` are the calls' rows of trace.ops."""

    op: str
    m: int
    n: int
    k: int
    batch: int
    dtype: str  # type of the left factor; "tf32" if FP32 tensors ran on Tensor Cores
    rows: I8
    duration_ns: int  # what the calls take of the window
    kernel_ns: int  # GPU time of the calls inside the window: more, if several GPUs work at the same time
    calls: int
    tensor_core: bool | None
    kernel_alignment: int | None  # of the slowest kernel, from its name
    kernel: str  # name of the slowest kernel

    @property
    def work(self) -> Matmul:
        """One call, as the experiment that repeats it."""
        return Matmul(self.m, self.n, self.k, self.batch, self.dtype)

    @property
    def flops(self) -> int:
        """FLOP of all calls: 2 m n k batch each (a multiply-add counts as two)."""
        return 2 * self.m * self.n * self.k * self.batch * self.calls

    @property
    def tflops(self) -> float | None:
        return self.flops / self.kernel_ns / 1e3 if self.kernel_ns else None

    @property
    def intensity(self) -> float:
        """Arithmetic intensity: FLOP per byte that must be moved."""
        return self.flops / max(1, self.least_bytes(DTYPE_BYTES.get(self.dtype, 2)))

    def least_bytes(self, dtype_bytes: float) -> int:
        """Bytes of all calls if A, B and D are read or written once."""
        once = self.m * self.k + self.k * self.n + self.m * self.n
        return round(once * self.batch * self.calls * dtype_bytes)


class Gemms(Struct, frozen=True, dict=True):
    """The matrix products of the window whose shapes were recorded, by shape, longest first.

    Shapes that no device of this kind could multiply in their time are not those of the kernels, so they are unknown.
    """

    trace: Trace
    slices: Slices
    links: LaunchLinks
    gpu: GpuWork
    device: TraceDevice

    @cached_property
    def owner(self) -> I8:
        """For every row of the device's work, the row of trace.ops of the product that launched it; -1: none."""
        ops = self.trace.ops
        names = np.array([is_gemm(name) for name in self.trace.names] or [False])
        matmuls = names[ops.name] & self.trace.sized if len(ops) else np.zeros(0, bool)
        wanted = self.slices.mask(self.slices.of(OP, len(ops))[np.flatnonzero(matmuls)])
        owner = self.slices.ancestor(self.links.launch_slice, wanted)
        row = self.slices.row[np.maximum(owner, 0)] if len(self.slices) else owner
        return np.where((owner >= 0) & self.gpu.is_kernel, row, -1).astype(np.int64)

    @cached_property
    def shapes(self) -> list[GemmShape]:
        return [shape for shape in self._recorded_shapes if not self._is_too_fast(shape)]

    @cached_property
    def too_fast(self) -> I8:
        """Rows of trace.ops whose shapes are impossible in their time."""
        rows = [shape.rows for shape in self._recorded_shapes if self._is_too_fast(shape)]
        return np.concatenate([np.empty(0, np.int64), *rows])

    def _is_too_fast(self, shape: GemmShape) -> bool:
        """Whether it is above the peak, if the vendor's document confirms that."""
        accelerator, share = self.device.accelerator, self.peak_share(shape)
        verified = accelerator is not None and accelerator.is_verified(shape.dtype) is True
        return verified and share is not None and share > MOST_OF_PEAK

    @cached_property
    def _recorded_shapes(self) -> list[GemmShape]:
        work = np.flatnonzero((self.owner >= 0) & self.gpu.is_inside)
        owner = self.owner[work]
        signatures = self.signatures(owner)
        first, group = group_rows(*signatures)
        shapes = []
        for index, row in enumerate(first.tolist()):  # distinct shapes only
            mine = group == index
            name, dims, types = (int(column[row]) for column in signatures)
            shape = self._shape(name, dims, types, work[mine], owner[mine])
            if shape is not None:
                shapes.append(shape)
        return sorted(shapes, key=lambda s: (-s.duration_ns, s.op, s.m, s.n, s.k))

    def signatures(self, rows: I8) -> tuple[I4, I4, I4]:
        """Operator, sizes and types of rows of trace.ops, which are equal for calls of one shape."""
        ops = self.trace.ops
        return ops.name[rows], ops.dims[rows], ops.types[rows]

    def _shape(self, name: int, dims: int, types: int, work: I8, owner: I8) -> GemmShape | None:
        op = self.trace.names[name]
        stored = listed(self.trace.texts[types]) if types >= 0 else None
        size = gemm_shape(op, listed(self.trace.texts[dims]), stored)
        if size is None:
            return None
        dtype = op_names.profiler_dtype(operand_type(op, stored) or "")
        duration = self.gpu.in_window[work]
        tensor_core = self.gpu.tensor_core[work]
        slowest = int(work[duration.argmax()])
        kernel = self.gpu.class_of(slowest)
        uses = True if (tensor_core == 1).any() else None if (tensor_core == -1).all() else False
        if dtype is None or dtype == "uint8":  # bytes that hold packed narrow elements
            dtype = kernel.dtype or "unknown"
        if dtype == "fp32" and (kernel.dtype == "tf32" or (uses and self.device.rounds_fp32)):
            dtype = "tf32"
        rows = distinct_values(owner)
        return GemmShape(
            op,
            *size,
            dtype,
            rows,
            int(self.gpu.step_ns[work].sum()),
            int(duration.sum()),
            len(rows),
            uses,
            kernel.alignment,
            self.trace.names[self.gpu.work.name[slowest]],
        )

    @cached_property
    def memory_bound(self) -> Mask:
        """The device's products that reading the operands limits, whichever units compute: their arithmetic takes the
        ordinary FP32 units less time than the device needs to move each operand once. By shape; without a shape, by
        kernels that are made for vectors and a few rows. Shape (len(gpu.work),).
        """
        accelerator = self.device.accelerator
        peak, bandwidth = (accelerator.peak("fp32"), accelerator.hbm_gb_per_s) if accelerator else (None, None)
        balance = peak * 1e3 / bandwidth if peak and bandwidth else BALANCE
        low = [shape.rows for shape in self.shapes if shape.intensity < balance]
        by_shape = np.isin(self.owner, np.concatenate(low)) if low else np.zeros(len(self.gpu.work), bool)
        made_for_it = np.array([MEMORY_BOUND_PRODUCT.search(name) is not None for name in self.trace.names] or [False])
        return np.asarray(by_shape | ((self.owner < 0) & made_for_it[self.gpu.work.name]))

    @cached_property
    def total_ns(self) -> int:
        return sum(shape.duration_ns for shape in self.shapes)

    @cached_property
    def flops(self) -> int:
        return sum(shape.flops for shape in self.shapes)

    @cached_property
    def known_share(self) -> float | None:
        """Part of the time of matmul kernels that has a shape. Those of convolutions do not count; None: no others."""
        convolutions = np.array([op_names.is_convolution(name) for name in self.trace.names] or [False])
        convolves = convolutions[self.slices.name] & (self.slices.kind == OP)
        kernels = np.flatnonzero(self.gpu.is_kernel & self.gpu.kind.among("gemm") & self.gpu.is_inside)
        kernels = kernels[self.slices.ancestor(self.links.launch_slice[kernels], convolves) < 0]
        time = self.gpu.in_window[kernels]
        if not len(kernels):
            return None
        rows = np.concatenate([np.empty(0, np.int64), *(shape.rows for shape in self.shapes)])
        return float(time[np.isin(self.owner[kernels], rows)].sum() / time.sum())

    def batch_rows(self, shape: GemmShape) -> int:
        """The size that grows with the batch: M; or K for the gradient of a weight whose forward is also in
        the trace.
        """
        weight = {shape.m, shape.n}
        forward = (s for s in self.shapes if s.batch == 1 and s.m == shape.k and {s.n, s.k} == weight)
        is_gradient = self._in_backward(shape) and any(not self._in_backward(s) for s in forward)
        return shape.k if is_gradient else shape.m

    def _in_backward(self, shape: GemmShape) -> bool:
        return int(shape.rows[0]) in self._backward

    @cached_property
    def _backward(self) -> set[int]:
        """Rows of trace.ops of the shapes' first calls that are inside a backward node."""
        names = np.array([op_names.is_backward(name) for name in self.trace.names], bool)
        node = names[self.slices.name] & (self.slices.kind == OP)
        first = np.array([shape.rows[0] for shape in self.shapes], np.int64)
        inside = self.slices.ancestor(self.slices.of(OP, len(self.trace.ops))[first], node) >= 0
        return set(first[inside].tolist())

    def aligned(self, shape: GemmShape) -> bool | None:
        """Whether N and K are multiples of what Tensor Cores need (16 bytes); M does not matter. None: unknown, or the
        device has none for the type.
        """
        arch = self.device.arch
        if shape.dtype not in ("tf32", "fp16", "bf16", "fp8", "fp4", "int8", "fp32"):
            return None
        if arch is not None and not arch.has_matrix_unit(shape.dtype):
            return None
        multiple, _ = needed_multiple(shape.dtype, arch)
        return shape.n % multiple == 0 and shape.k % multiple == 0

    def peak_share(self, shape: GemmShape) -> float | None:
        """Achieved share of the device's dense peak in the type that the kernels computed in."""
        accelerator = self.device.accelerator
        peak = accelerator.peak(shape.dtype) if accelerator else None
        return shape.tflops / peak if peak and shape.tflops is not None else None
