"""Work that Tensor Cores could do (matmuls, convolutions, attention), and whether they did it."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from msgspec import Struct

from traceopt.analyzer.arrays.grouping import Categorical, distinct
from traceopt.analyzer.tables.json_values import listed
from traceopt.analyzer.tables.schema import Mask
from traceopt.analyzer.tables.trace import Trace
from traceopt.analyzer.timeline.call_tree import OP, Slices
from traceopt.analyzer.timeline.device import TraceDevice
from traceopt.analyzer.timeline.gpu_work import GpuWork
from traceopt.analyzer.timeline.launch_links import LaunchLinks
from traceopt.analyzer.vocabulary import op_names
from traceopt.analyzer.vocabulary.kernels.kernel_names import ELIGIBLE_KINDS


class TensorCoreWork(Struct, frozen=True, dict=True):
    """Masks have the shape of the device's work; times are kernel time inside the window, ns."""

    trace: Trace
    slices: Slices
    links: LaunchLinks
    gpu: GpuWork
    device: TraceDevice

    @cached_property
    def eligible(self) -> Mask:
        return self.gpu.is_kernel & self.gpu.kind.among(*ELIGIBLE_KINDS)

    @cached_property
    def used(self) -> Mask:
        return np.asarray(self.eligible & (self.gpu.tensor_core == 1))

    @cached_property
    def unused(self) -> Mask:
        return np.asarray(self.eligible & (self.gpu.tensor_core == 0))

    def time_ns(self, mask: Mask) -> int:
        return int(self.gpu.step_ns[mask].sum())

    @property
    def kernel_ns(self) -> int:
        return self.time_ns(self.gpu.is_kernel)

    @property
    def eligible_ns(self) -> int:
        return self.time_ns(self.eligible)

    @property
    def used_ns(self) -> int:
        return self.time_ns(self.used)

    @property
    def unknown_ns(self) -> int:
        return self.time_ns(self.eligible & (self.gpu.tensor_core == -1))

    @cached_property
    def dtype(self) -> Categorical:
        """Operand type of each eligible kernel: from its operator's tensors if recorded, else from its name; "" if
        unknown or not eligible. A name that says FP8 or FP4 decides, because the tensors of an operator that quantizes
        its inputs are wider. "tf32" if FP32 tensors ran on Tensor Cores.
        """
        rows = np.flatnonzero(self.eligible)
        ops, named = self.trace.ops, self.gpu.dtype
        typed = np.zeros(len(self.slices), bool)
        if len(ops):
            typed[self.slices.of(OP, len(ops))[ops.types >= 0]] = True
        owner = self.slices.ancestor(self.links.launch_slice[rows], typed)
        rows, owner = rows[owner >= 0], owner[owner >= 0]
        texts, of_row = distinct(ops.types[self.slices.row[owner]])
        of_text = [_operand_dtype(self.trace.texts[text]) or "" for text in texts]
        recorded = np.array([dtype != "" for dtype in of_text], bool)[of_row] & ~named.among("fp8", "fp4")[rows]
        codes = np.where(self.eligible, named.codes + 1, 0).astype(np.int32)
        codes[rows[recorded]] = (1 + len(named.values) + of_row)[recorded]
        types = ["", *named.values, *of_text, "tf32"]
        rounded = named.among("tf32") | ((self.gpu.tensor_core == 1) & self.device.rounds_fp32)
        rounded &= Categorical(types, codes).among("fp32")
        return Categorical(types, np.where(rounded, len(types) - 1, codes))


def _operand_dtype(text: str) -> str | None:
    """The narrowest floating type among an operator's tensors, in which it computes."""
    known = [op_names.profiler_dtype(str(t)) for t in listed(text) or []]
    order = ("fp4", "fp8", "int8", "fp16", "bf16", "fp32", "fp64")
    return next((dtype for dtype in order if dtype in known), None)
